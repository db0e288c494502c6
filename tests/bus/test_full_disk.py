"""A disk that was full: JetStream's streams accept no message until their owner recreates them."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.embedded.binaries import find_nats_server
from shared.bus import subjects
from shared.bus.jetstream import JetStreamBus
from shared.bus.port import BusUnavailable, Message
from tests.bus.contract import event_message
from tests.fixtures.ports import free_port
from tests.runtime.helpers import until


class SmallDisk:
    """A NATS server on a file system of 10 MB in a mount namespace of its own, which can be filled
    and freed.
    """

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        disk = folder / "disk"
        disk.mkdir()
        config = folder / "nats.conf"
        config.write_text(
            f'host: "127.0.0.1"\nport: {self.port}\njetstream {{ store_dir: "{disk}/js", '
            "max_file_store: 1GB }}\n"
        )
        script = f"mount -t tmpfs -o size=10m tmpfs {disk} && exec {find_nats_server()} -c {config}"
        argv = ["unshare", *([] if os.geteuid() == 0 else ["-U", "-r"]), "-m", "sh", "-c", script]
        self._process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._ballast = Path(f"/proc/{self._process.pid}/root{disk}/ballast")

    def listens(self) -> bool:
        """Wait until the server listens. Return False if the system permits no such file system."""
        for _ in range(500):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return True
            if self._process.poll() is not None:
                return False
            time.sleep(0.02)
        return False

    def fill(self) -> None:
        """Fill the disk, as another program would."""
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        """Free the space again."""
        self._ballast.unlink()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    made = SmallDisk(tmp_path)
    if not made.listens():
        made.stop()
        pytest.skip("this system permits no mount namespaces")
    yield made
    made.stop()


async def test_streams_that_a_full_disk_has_spoilt_take_messages_again_when_there_is_space(
    disk: SmallDisk,
) -> None:
    bus = JetStreamBus(f"nats://127.0.0.1:{disk.port}", patience_s=2.0)
    await bus.ensure_streams()
    batches = bus.reports()
    await until(lambda: bus.since_echo_s() < 5)
    disk.fill()
    for message in (
        event_message(1, "full"),
        Message(subjects.report("full"), os.urandom(9000), {}),
    ):
        with pytest.raises(BusUnavailable):
            await bus.publish_many([message] * 3)
    disk.free()
    for _ in range(20):
        try:
            await bus.publish_many([event_message(7, "after")])
            await bus.publish(subjects.report("after"), b"{}", {})
            break
        except BusUnavailable:
            continue
    else:
        pytest.fail("the streams are as they were when the disk was full")
    while not any(message.subject == subjects.report("after") for message in await anext(batches)):
        pass
    await bus.close()
