"""A whole `topolog up` as real processes, to be watched, killed and queried by the tests of the
road.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import msgspec
import psutil
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[2]
# A part of each server's command line. Services are recognized by their ports.
SERVERS = {"nats": "nats-server", "postgres": "-D"}


class Road:
    """A running `topolog up`, with a console only if `flags` have `--console`: on two cores it
    slows each road. `lines` are its JSON lines so far.
    """

    def __init__(self, folder: Path, *flags: str, env: dict[str, str] | None = None) -> None:
        self.folder = folder
        self._out = (folder.parent / f"{folder.name}.out").open("a+")
        command = [
            sys.executable,
            "-m",
            "services.cli.main",
            "up",
            "--data-dir",
            str(folder),
            "--json",
            *(() if "--console" in flags else ("--no-console",)),
            *flags,
        ]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
        )

    def lines(self) -> list[dict[str, Any]]:
        """Return every complete JSON line that was printed."""
        text = Path(self._out.name).read_text()
        whole = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [msgspec.json.decode(line) for line in whole if line.startswith("{")]

    def output(self) -> str:
        """All that was printed, for messages of failed tests."""
        return Path(self._out.name).read_text()[-4000:]

    def services(self) -> dict[str, int]:
        """HTTP port by child name, empty until ready."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            notes = msgspec.json.decode((self.folder / "services.json").read_bytes())
            return {note["name"]: note["http_port"] for note in notes}
        return {}

    def get(self, name: str, path: str) -> Any:
        """GET from a service. Return None if it does not answer."""
        return self._ask(Request(f"http://127.0.0.1:{self.services()[name]}{path}"))

    def count(self, name: str, metric: str, **labels: str) -> float:
        """Return a counter of a service, summed over all labels that are not given; 0 while the
        service does not answer.
        """
        return sum(self.samples(name, metric, **labels).values())

    def samples(self, name: str, metric: str, **labels: str) -> dict[str, float]:
        """Return the values of a metric with these labels, by all their labels; {} while the
        service does not answer.
        """
        with (
            contextlib.suppress(OSError),
            urlopen(f"http://127.0.0.1:{self.services()[name]}/metrics", timeout=10) as answer,
        ):
            families = text_string_to_metric_families(answer.read().decode())
            samples = [
                sample for family in families for sample in family.samples if sample.name == metric
            ]
            fitting = [sample for sample in samples if labels.items() <= sample.labels.items()]
            return {
                ", ".join(f"{key} {each.labels[key]}" for key in sorted(each.labels)): each.value
                for each in fitting
            }
        return {}

    def child(self, pid: int) -> str:
        """Return the name of the service with this process id. Raises LookupError, psutil.Error."""
        process = psutil.Process(pid)
        for name, port in self.services().items():
            if _serves(process, port):
                return name
        raise LookupError(f"process {pid} is no child")

    def kube(self, path: str, method: str = "GET", body: Any = None) -> Any:
        """Send a request to the simulated Kubernetes API."""
        data = None if body is None else msgspec.json.encode(body)
        url = f"http://127.0.0.1:{self.services()['simulator']}{path}"
        form = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return self._ask(Request(url, data=data, method=method, headers={"Content-Type": form}))

    @staticmethod
    def _ask(request: Request) -> Any:
        try:
            with urlopen(request, timeout=10) as answer:
                return msgspec.json.decode(answer.read())
        except HTTPError as error:
            return msgspec.json.decode(error.read() or b"null")
        except (URLError, OSError):
            return None

    def pid(self, name: str) -> int:
        """Return the child's current process id. Raises LookupError while it does not run."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if (
                    _is_server(child, name)
                    if name in SERVERS
                    else _serves(child, self.services().get(name, 0))
                ):
                    return child.pid
        raise LookupError(f"no child {name}")

    def kill(self, name: str) -> None:
        """Kill the child with kill -9, and wait until the supervisor has restarted it. Do nothing
        after the end of the road.
        """
        old_pid = wait_until(
            lambda: self._pid(name) or self._ending(), 60, f"{name} does not run", self.output
        )
        if self._ending():
            return
        os.kill(old_pid, signal.SIGKILL)
        again = lambda: self._pid(name) not in (0, old_pid) or self._ending()  # noqa: E731
        wait_until(again, 60, f"{name} was not restarted", self.output)

    def _pid(self, name: str) -> int:
        with contextlib.suppress(LookupError, psutil.Error):
            return self.pid(name)
        return 0

    def _ending(self) -> bool:
        return self.process.poll() is not None or any("summary" in line for line in self.lines())

    def summary(self) -> dict[str, Any]:
        """The newest status or summary of the workload."""
        states = [line.get("summary") or line.get("status") for line in self.lines()]
        statuses = [status for status in states if status]
        return statuses[-1] if statuses else {}

    def wait(self, timeout_s: float) -> int:
        """Wait for the end, and return the exit code."""
        return self.process.wait(timeout_s)

    def stop(self) -> int:
        """Ctrl-C."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


def _is_server(process: psutil.Process, name: str) -> bool:
    command = process.cmdline()
    return SERVERS[name] in command or any(part.endswith(SERVERS[name]) for part in command[:1])


def _serves(process: psutil.Process, port: int) -> bool:
    """Whether the process serves on this port, by its environment or its command line."""
    ports = [
        process.environ().get("TOPOLOG_HTTP_PORT", ""),
        *(part.rpartition("=")[2] for part in process.cmdline()),
    ]
    return str(port) in ports


def wait_until(
    true: Callable[[], Any], timeout_s: float, failure: str, detail: Callable[[], str] = str
) -> Any:
    """Poll until `true()` is truthy, and return its value."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        value = true()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"{failure}\n{detail()}")


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Yield a short data folder that a service account may enter. It is removed afterwards."""
    with tempfile.TemporaryDirectory(
        prefix="topolog-road-", dir="/tmp", ignore_cleanup_errors=True
    ) as made:
        Path(made).chmod(0o711)
        yield Path(made) / "data"


@contextlib.contextmanager
def running(path: Path, *flags: str, env: dict[str, str] | None = None) -> Iterator[Road]:
    """Yield a road that is ready. It is killed at the end if it still runs."""
    road = Road(path, *flags, env=env)
    try:
        yield ready(road)
    finally:
        ended(road)


def ready(road: Road) -> Road:
    """Return the road once it is ready."""
    wait_until(
        lambda: road.services() or road.process.poll() is not None,
        60,
        "topolog up was never ready",
        road.output,
    )
    assert road.process.poll() is None or road.lines(), road.output()
    return road


def ended(road: Road) -> None:
    """Stop the process, and kill it if that takes too long."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        road.stop()
    if road.process.poll() is None:
        road.process.kill()


def topolog(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    command = [sys.executable, "-m", "services.cli.main", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def verified(path: Path) -> dict[str, Any]:
    """Return the output of `topolog replay verify` for a stopped data folder. Fails if an invariant
    is broken.
    """
    done = topolog("replay", "verify", "--data-dir", str(path), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return msgspec.json.decode(done.stdout, type=dict[str, Any])
