"""Real container runtimes, started here with an image made here, and pods in them by calls of CRI.

They need root, cgroups that may be written, and Debian's containerd and runc; CRI-O with conmon,
pinns and skopeo, by its own packages or built from its sources. Must not know what a test asks of
them.
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

from services.embedded.binaries import find_nats_server
from services.exporter.cri import reserve
from services.exporter.cri.source import CriSource
from services.exporter.folders import FolderTree
from services.exporter.source_grpc import SourceError

CGROUPS = Path("/sys/fs/cgroup")
IMAGE = "localhost/still:1"
TOOLS = {
    "containerd": ("containerd", "ctr", "runc"),
    "crio": ("crio", "conmon", "pinns", "runc", "skopeo"),
}
MIB = 1 << 20


def lacking(runtime: str) -> str:
    """What this machine lacks to start a runtime; empty for nothing."""
    if os.geteuid() != 0 or not os.access(CGROUPS / "cpuset", os.W_OK):
        return "needs root and a writable cpuset hierarchy"
    missing = [tool for tool in TOOLS[runtime] if not shutil.which(tool)]
    return f"needs {', '.join(missing)}" if missing else ""


def message(fields: dict[int, object]) -> bytes:
    """A protobuf message of texts, numbers and messages, for the calls that an exporter never
    makes.
    """
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
    return _tar(
        {
            "config.json": json.dumps(config).encode(),
            "layer.tar": layer,
            "manifest.json": json.dumps(manifest).encode(),
        }
    )


class Pods:
    """Calls of CRI that make pods; what was made is removed at the end."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}")
        self._sandboxes: list[str] = []

    async def call(self, name: str, fields: dict[int, object]) -> str:
        """The answer's first field, where it is a text."""
        answer: bytes = await self._channel.unary_unary(f"/runtime.v1.RuntimeService/{name}")(
            message(fields), timeout=60
        )
        return answer[2 : 2 + answer[1]].decode() if answer else ""

    async def run(self, pod: str, parent: str, resources: dict[int, object]) -> str:
        """A pod of one container `main` on the host's network; its sandbox."""
        host = {1: 2, 2: 0}
        sandbox: dict[int, object] = {
            1: {1: pod, 2: f"uid-{pod}", 3: "default"},
            8: {1: parent, 2: {1: host}},
        }
        self._sandboxes.append(await self.call("RunPodSandbox", {1: sandbox}))
        config: dict[int, object] = {
            1: {1: "main"},
            2: {1: IMAGE, 18: IMAGE},
            15: {1: resources, 2: {3: host}},
        }
        made = await self.call("CreateContainer", {1: self._sandboxes[-1], 2: config, 3: sandbox})
        await self.call("StartContainer", {1: made})
        return self._sandboxes[-1]

    async def stop(self, sandbox: str) -> None:
        """End a pod and remove it."""
        for name in ("StopPodSandbox", "RemovePodSandbox"):
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self.call(name, {1: sandbox})

    async def close(self) -> None:
        for sandbox in self._sandboxes:
            await self.stop(sandbox)
        await self._channel.close()


@contextlib.asynccontextmanager
async def running(runtime: str, folder: Path) -> AsyncIterator[Pods]:
    """The runtime with the image in it, until the end; with it go its pods and their cgroups."""
    (folder / "image.tar").write_bytes(image())
    pods, process = (
        Pods(folder / "c.sock"),
        (_containerd if runtime == "containerd" else _crio)(folder),
    )
    try:
        await _until_it_answers(folder / "c.sock")
        if runtime == "containerd":
            _into_containerd(folder)
        yield pods
    finally:
        await pods.close()
        process.terminate()
        process.wait(20)
        _remove_cgroups()


def _started(folder: Path, *argv: str) -> subprocess.Popen[bytes]:
    with (folder / "log").open("wb") as log:
        environment = {**os.environ, "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf")}
        return subprocess.Popen(argv, stdout=log, stderr=log, env=environment)


def _containerd(folder: Path) -> subprocess.Popen[bytes]:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    (folder / "config.toml").write_text(
        f'version = 2\nroot = "{folder}/root"\nstate = "{folder}/state"\n[grpc]\naddress = "{folder}/c.sock"\n'
        f'[{cri}]\nsandbox_image = "{IMAGE}"\nrestrict_oom_score_adj = true\ndisable_apparmor = true\n'
        f'[{cri}.containerd]\nsnapshotter = "native"\n'
    )
    return _started(folder, "containerd", "-c", str(folder / "config.toml"))


def _into_containerd(folder: Path) -> None:
    load = [
        "ctr",
        "-a",
        str(folder / "c.sock"),
        "-n",
        "k8s.io",
        "images",
        "import",
        str(folder / "image.tar"),
    ]
    subprocess.run(load, check=True, capture_output=True, timeout=60)


RUNC_HERE = """#!/bin/sh
# CRI-O lowers the score of a sandbox by itself, which not every machine lets root do.
bundle= before=
for each in "$@"; do [ "$before" = --bundle ] && bundle=$each; before=$each; done
[ -n "$bundle" ] && sed -i 's/"oomScoreAdj": *-[0-9]*/"oomScoreAdj":0/' "$bundle/config.json"
exec {runc} "$@"
"""


def _crio(folder: Path) -> subprocess.Popen[bytes]:
    for name in ("cni", "hooks", "bin"):
        (folder / name).mkdir()
    (folder / "bin" / "runc").write_text(RUNC_HERE.format(runc=shutil.which("runc")))
    (folder / "bin" / "runc").chmod(0o755)
    (folder / "cni" / "lo.conflist").write_text(
        '{"cniVersion": "1.0.0", "name": "lo", "plugins": [{"type": "loopback"}]}'
    )
    tables = {
        "crio": {"root": f"{folder}/root", "runroot": f"{folder}/run", "storage_driver": "vfs", "log_dir": f"{folder}/logs",
                 "version_file": f"{folder}/version", "version_file_persist": f"{folder}/kept",
                 "clean_shutdown_file": f"{folder}/clean"},
        "crio.api": {"listen": f"{folder}/c.sock", "stream_port": "0"},
        "crio.runtime": {"default_runtime": "runc", "cgroup_manager": "cgroupfs", "conmon_cgroup": "pod",
                         "pinns_path": str(shutil.which("pinns")), "namespaces_dir": f"{folder}/ns",
                         "container_exits_dir": f"{folder}/exits", "container_attach_socket_dir": f"{folder}/attach",
                         "hooks_dir": [f"{folder}/hooks"], "apparmor_profile": "unconfined"},
        "crio.runtime.runtimes.runc": {"runtime_path": f"{folder}/bin/runc", "runtime_type": "oci",
                                       "runtime_root": f"{folder}/runc", "monitor_path": str(shutil.which("conmon"))},
        "crio.image": {"pause_image": IMAGE, "pause_command": "", "signature_policy": f"{folder}/policy.json"},
        "crio.network": {"network_dir": f"{folder}/cni"},
    }  # fmt: skip
    lines = [line for name, table in tables.items() for line in _table(name, table)]
    (folder / "crio.conf").write_text("\n".join(lines))
    _into_crio(folder)
    return _started(folder, "crio", "--config", str(folder / "crio.conf"), "--config-dir", "")


def _table(name: str, table: dict[str, object]) -> list[str]:
    """Of TOML, whose texts and lists of texts are JSON's."""
    return [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]


def _into_crio(folder: Path) -> None:
    policy, place = folder / "policy.json", f"[vfs@{folder}/root+{folder}/run]{IMAGE}"
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/root"\nrunroot = "{folder}/run"\n'
    )
    copy = [
        "skopeo",
        "--policy",
        str(policy),
        "copy",
        f"docker-archive:{folder}/image.tar",
        f"containers-storage:{place}",
    ]
    environment = {**os.environ, "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf")}
    subprocess.run(copy, check=True, capture_output=True, timeout=60, env=environment)


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


def _remove_cgroups() -> None:
    for parent in CGROUPS.glob("*/topolog-test"):
        for folder in sorted(parent.rglob("*/"), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()
        with contextlib.suppress(OSError):
            parent.rmdir()
