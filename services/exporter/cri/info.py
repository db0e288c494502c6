"""What a runtime's free-form words about a container mean: its CPUs, memory nodes, limits and
devices, and which are its own.

Pure. CRI leaves `info` open; containerd and CRI-O both put JSON under the key `info` that holds the
container's OCI runtime spec (container_status.go of each). What lacks that is an error which says
who said what. A cpuset alone tells nothing: shared containers have one too, so CPUs are a
container's own where its pod is Guaranteed (by its cgroup) and its CPU shares are 1024 for each of
them, as of every container that the static CPU Manager serves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from services.exporter.answers import MemoryBlock
from services.exporter.sysfs import SysfsError, parse_ids
from shared.kubelet.cpuset import MAX_CPU_ID

INFO = "info"
SHARES_OF_A_CPU = 1024
MAX_INFO_BYTES = 4 << 20
MAX_BYTES = 2**50
_LOWER_QOS = re.compile(r"(?:^|[/-])(?:burstable|besteffort)(?:[/.-]|$)")
_PAGE_SIZE = re.compile(r"(\d{1,7})([KMG])B")


class CriInfoError(ValueError):
    """A runtime's answer lacks what is needed; names runtime, container, field and what was there
    instead.
    """


class Known(msgspec.Struct, frozen=True):
    """One container as its runtime made it: cgroup below the hierarchy's root, Linux lists of CPUs
    and memory nodes (empty: all), limits in bytes, environment variables `PCIDEVICE_*`, device
    nodes as (path, major, minor)."""

    cgroup: str
    guaranteed: bool
    cpus: str = ""
    mems: str = ""
    shares: int = 0
    memory_bytes: int = 0
    hugepages: dict[str, int] = {}
    pci: dict[str, str] = {}
    nodes: tuple[tuple[str, int, int], ...] = ()


class _Cpu(msgspec.Struct):
    cpus: str | None = None
    mems: str | None = None
    shares: int | None = None


class _Memory(msgspec.Struct):
    limit: int | None = None


class _Hugepages(msgspec.Struct, rename="camel"):
    page_size: str
    limit: int = 0


class _Resources(msgspec.Struct, rename="camel"):
    cpu: _Cpu | None = None
    memory: _Memory | None = None
    hugepage_limits: list[_Hugepages] | None = None


class _Device(msgspec.Struct):
    path: str
    major: int = 0
    minor: int = 0


class _Linux(msgspec.Struct):
    cgroups_path: str | None = msgspec.field(default=None, name="cgroupsPath")
    resources: _Resources | None = None
    devices: list[_Device] | None = None


class _Process(msgspec.Struct):
    env: list[str] | None = None


class _Spec(msgspec.Struct):
    linux: _Linux | None = None
    process: _Process | None = None


class _Info(msgspec.Struct, rename="camel"):
    runtime_spec: _Spec | None = None


def read(info: Mapping[str, str], who: str) -> Known:
    """What `info` of a verbose status says; `who` names runtime and container. Raises CriInfoError."""
    text = info.get(INFO)
    if text is None:
        said = ", ".join(sorted(info))[:120] or "nothing"
        raise CriInfoError(
            f"{who}: its verbose status has no {INFO!r} but {said}; containerd and CRI-O are known to tell it"
        )
    if len(text) > MAX_INFO_BYTES:
        raise CriInfoError(
            f"{who}: its info has {len(text)} characters, at most {MAX_INFO_BYTES} are read"
        )
    try:
        found = msgspec.json.decode(text, type=_Info)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise CriInfoError(
            f"{who}: its info is no JSON with an OCI runtime spec: {error}; it begins {text[:60]!r}"
        ) from None
    linux = found.runtime_spec.linux if found.runtime_spec is not None else None
    if found.runtime_spec is None or linux is None or not linux.cgroups_path:
        lacking = (
            "runtimeSpec"
            if found.runtime_spec is None
            else "runtimeSpec.linux"
            if linux is None
            else "cgroupsPath"
        )
        raise CriInfoError(
            f"{who}: its info has no {lacking}; a runtime whose containers are no Linux processes is not read"
        )
    resources = linux.resources or _Resources()
    cpu = resources.cpu or _Cpu()
    try:
        return Known(
            cgroup_folder(linux.cgroups_path),
            _LOWER_QOS.search(linux.cgroups_path) is None,
            cpu.cpus or "",
            cpu.mems or "",
            cpu.shares or 0,
            max(0, resources.memory.limit or 0) if resources.memory else 0,
            {
                _hugepages(each.page_size): each.limit
                for each in resources.hugepage_limits or ()
                if each.limit > 0
            },
            _pci((found.runtime_spec.process or _Process()).env or ()),
            tuple((each.path, each.major, each.minor) for each in linux.devices or ()),
        )
    except ValueError as error:
        raise CriInfoError(f"{who}: {error}") from None


def cgroup_folder(path: str) -> str:
    """Where a cgroup is below the root of its hierarchy: a path of cgroupfs, or `SLICE:PREFIX:ID`
    of systemd, whose slices nest by the dashes in their names (systemd.slice(5)). Raises
    ValueError."""
    parts = path.split(":")
    if len(parts) == 3 and parts[0].endswith(".slice"):
        names = parts[0].removesuffix(".slice").split("-")
        slices = ["-".join(names[: count + 1]) + ".slice" for count in range(len(names))]
        folder = "/".join([*slices, f"{parts[1]}-{parts[2]}.scope"])
    else:
        folder = path.strip("/")
    if not folder or ".." in folder.split("/") or "\0" in folder:
        raise ValueError(f"cgroupsPath {path[:200]!r} is no path of a cgroup")
    return folder


def own_cpus(known: Known, cpuset: str, who: str) -> tuple[int, ...]:
    """The CPUs that nobody else gets, of the container's cpuset. Raises CriInfoError."""
    cpus = _ids(cpuset, f"{who}: cpuset.cpus")
    if cpus and cpus[-1] > MAX_CPU_ID:
        raise CriInfoError(f"{who}: cpuset.cpus {cpuset[:80]!r} goes beyond CPU {MAX_CPU_ID}")
    return cpus if known.guaranteed and known.shares == SHARES_OF_A_CPU * len(cpus) else ()


def own_memory(known: Known, mems: str, who: str) -> tuple[MemoryBlock, ...]:
    """What the Memory Manager pinned: limits of a Guaranteed pod's container that is tied to nodes.
    Raises CriInfoError.
    """
    zones = _ids(mems, f"{who}: cpuset.mems")
    if not zones or not known.guaranteed:
        return ()
    sizes = {"memory": known.memory_bytes, **known.hugepages}
    beyond = next((name for name, size in sizes.items() if size > MAX_BYTES), "")
    if beyond:
        raise CriInfoError(
            f"{who}: a limit of {sizes[beyond]} bytes of {beyond}, more than any machine has"
        )
    return tuple(MemoryBlock(name, zones, sizes[name]) for name in sorted(sizes) if sizes[name])


def _ids(text: str, where: str) -> tuple[int, ...]:
    try:
        return parse_ids(text[:4096], where)
    except SysfsError as error:
        raise CriInfoError(str(error)) from None


def _hugepages(page_size: str) -> str:
    """Kubernetes' name of an OCI page size: 2MB -> hugepages-2Mi."""
    found = _PAGE_SIZE.fullmatch(page_size)
    if found is None:
        raise ValueError(f"hugepageLimits: a page of {page_size[:40]!r} is no size like 2MB")
    return f"hugepages-{found[1]}{found[2]}i"


def _pci(env: list[str] | tuple[str, ...]) -> dict[str, str]:
    pairs = (each.split("=", 1) for each in env if each.startswith("PCIDEVICE_") and "=" in each)
    return {name: value for name, value in pairs if not name.endswith("_INFO")}
