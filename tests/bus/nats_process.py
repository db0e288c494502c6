"""A NATS server that a test may kill, wipe and start again on its port, alone or in a cluster."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from services.embedded.binaries import find_nats_server
from tests.fixtures.ports import free_port


class NatsProcess:
    """nats-server with JetStream in `folder`, with a user and a password. `cluster`: more of its
    configuration.
    """

    def __init__(self, folder: Path, cluster: str = "") -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"nats://topolog:s3cr%2Ft@127.0.0.1:{self._port}"
        self._config = folder / "nats.conf"
        self._config.write_text(
            f'host: "127.0.0.1"\nport: {self._port}\njetstream {{ store_dir: "{folder / "js"}" }}\n'
            f'authorization {{ user: topolog, password: "s3cr/t" }}\n{cluster}'
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it listens."""
        self._process = subprocess.Popen(
            [find_nats_server(), "-c", str(self._config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(3000):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError(
            f"nats-server did not start on port {self._port}: exit code {self._process.poll()}"
        )

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: connections stay open without answers."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wipe(self) -> None:
        """Lose the JetStream volume (while stopped)."""
        shutil.rmtree(self._folder / "js", ignore_errors=True)


def cluster(folder: Path) -> dict[str, NatsProcess]:
    """Three servers by name, not yet started, that find each other."""
    routes = {f"n{number}": free_port() for number in range(3)}
    urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes.values())
    made = {}
    for name, port in routes.items():
        (folder / name).mkdir()
        more = (
            f'server_name: {name}\ncluster {{ name: c, listen: "127.0.0.1:{port}", routes: '
            f"[{urls}] }}\n"
        )
        made[name] = NatsProcess(folder / name, more)
    return made
