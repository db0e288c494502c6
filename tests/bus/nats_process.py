"""A NATS server that a test may kill, wipe and start again on its port."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

from services.embedded.binaries import find_nats_server
from tests.fixtures.ports import free_port


class NatsProcess:
    """nats-server with JetStream in `folder`, with a user and a password."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"nats://topolog:s3cr%2Ft@127.0.0.1:{self._port}"
        self._config = folder / "nats.conf"
        self._config.write_text(
            f'host: "127.0.0.1"\nport: {self._port}\njetstream {{ store_dir: "{folder / "js"}" }}\n'
            'authorization { user: topolog, password: "s3cr/t" }\n'
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it listens."""
        self._process = subprocess.Popen(
            [find_nats_server(), "-c", str(self._config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(3000):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError(f"nats-server did not start on port {self._port}: exit code {self._process.poll()}")

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def wipe(self) -> None:
        """Lose the JetStream volume (while stopped)."""
        shutil.rmtree(self._folder / "js", ignore_errors=True)
