"""A real containerd, started here with an image made here: what the exporter reads from it about a pod that runs.

Needs root, containerd, runc and cgroups that may be written (Debian: apt-get install containerd); elsewhere it is skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from services.embedded.binaries import find_nats_server
from services.exporter.answers import ListedContainer, ListedPod, MemoryBlock
from services.exporter.cri import reserve
from services.exporter.cri.source import CriSource
from services.exporter.folders import FolderTree
from services.exporter.source_grpc import SourceError

CGROUPS = Path("/sys/fs/cgroup")
TOOLS = ("containerd", "ctr", "runc")
IMAGE = "localhost/still:1"
MIB = 1 << 20

pytestmark = [
    pytest.mark.containerd,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, TOOLS)) or not os.access(CGROUPS / "cpuset", os.W_OK),
        reason="needs root, containerd, ctr, runc and a writable cpuset hierarchy",
    ),
]


def message(fields: dict[int, object]) -> bytes:
    """A protobuf message of texts, numbers and messages, for the calls that an exporter never makes."""
    out = b""
    for number, value in fields.items():
        if isinstance(value, int):
            out += _varint(number << 3) + _varint(value)
            continue
        data = message(value) if isinstance(value, dict) else str(value).encode()
        out += _varint(number << 3 | 2) + _varint(len(data)) + data
    return out


def _varint(value: int) -> bytes:
    rest = value >> 7
    return bytes([value & 127 | (128 if rest else 0)]) + (_varint(rest) if rest else b"")


def _tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def image() -> bytes:
    """An image of one static program that waits: the NATS server of the tests."""
    layer = _tar({"still": Path(find_nats_server()).read_bytes()})
    rootfs = {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}
    run = {"Cmd": ["/still", "-a", "127.0.0.1", "-p", "-1"]}
    config = {"architecture": "amd64", "os": "linux", "config": run, "rootfs": rootfs}
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    return _tar({"config.json": json.dumps(config).encode(), "layer.tar": layer, "manifest.json": json.dumps(manifest).encode()})


class Containerd:
    """Calls of CRI that make pods; what was made is removed at the end."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}")
        self._sandboxes: list[str] = []

    async def call(self, name: str, fields: dict[int, object]) -> str:
        """The answer's first field, where it is a text."""
        answer: bytes = await self._channel.unary_unary(f"/runtime.v1.RuntimeService/{name}")(message(fields), timeout=60)
        return answer[2 : 2 + answer[1]].decode() if answer else ""

    async def run(self, pod: str, parent: str, resources: dict[int, object]) -> None:
        """A pod of one container `main` on the host's network."""
        host = {1: 2, 2: 0}
        sandbox: dict[int, object] = {1: {1: pod, 2: f"uid-{pod}", 3: "default"}, 8: {1: parent, 2: {1: host}}}
        self._sandboxes.append(await self.call("RunPodSandbox", {1: sandbox}))
        config: dict[int, object] = {1: {1: "main"}, 2: {1: IMAGE}, 15: {1: resources, 2: {3: host}}}
        made = await self.call("CreateContainer", {1: self._sandboxes[-1], 2: config, 3: sandbox})
        await self.call("StartContainer", {1: made})

    async def close(self) -> None:
        for sandbox in self._sandboxes:
            for name in ("StopPodSandbox", "RemovePodSandbox"):
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await self.call(name, {1: sandbox})
        await self._channel.close()


@pytest.fixture
async def containerd(tmp_path: Path) -> AsyncIterator[Containerd]:
    socket, config = tmp_path / "c.sock", tmp_path / "config.toml"
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    config.write_text(
        f'version = 2\nroot = "{tmp_path}/root"\nstate = "{tmp_path}/state"\n[grpc]\naddress = "{socket}"\n'
        f'[{cri}]\nsandbox_image = "{IMAGE}"\nrestrict_oom_score_adj = true\ndisable_apparmor = true\n'
        f'[{cri}.containerd]\nsnapshotter = "native"\n'
    )
    (tmp_path / "image.tar").write_bytes(image())
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(["containerd", "-c", str(config)], stdout=log, stderr=log)  # noqa: ASYNC220
    running = Containerd(socket)
    try:
        await _until_it_answers(socket)
        load = ["ctr", "-a", str(socket), "-n", "k8s.io", "images", "import", str(tmp_path / "image.tar")]
        subprocess.run(load, check=True, capture_output=True, timeout=60)  # noqa: ASYNC221
        yield running
    finally:
        await running.close()
        process.terminate()
        process.wait(20)
        for parent in CGROUPS.glob("*/topolog-test"):
            for folder in sorted(parent.rglob("*/"), reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            with contextlib.suppress(OSError):
                parent.rmdir()


async def _until_it_answers(socket: Path) -> None:
    asked = CriSource(str(socket), FolderTree(Path("/sys")), (), reserve.parse("", ()), 2.0)
    async with asyncio.timeout(30):
        while True:
            try:
                await asked.pods()
            except SourceError:
                await asyncio.sleep(0.1)
            else:
                break
    await asked.close()


async def test_what_a_real_containerd_tells_of_its_pods(containerd: Containerd) -> None:
    pinned: dict[int, object] = {1: 100_000, 2: 100_000, 3: 1024, 4: 256 * MIB, 6: "0", 7: "0"}
    await containerd.run("own", "/topolog-test/pod1", pinned)
    await containerd.run("shared", "/topolog-test/burstable/pod2", {3: 1024, 6: "0"})
    source = CriSource(str(containerd.socket), FolderTree(Path("/sys")), (), reserve.parse("", ()), 10.0)
    await source.allocatable()
    listed = await source.pods()
    await source.close()
    own = ListedContainer("main", (0,), (MemoryBlock("memory", (0,), 256 * MIB),))
    assert listed == (ListedPod("default", "own", (own,)), ListedPod("default", "shared", (ListedContainer("main"),)))
