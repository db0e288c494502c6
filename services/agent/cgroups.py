"""Where a container's cgroup is, and which CPUs and memory zones it has. Pure: the caller reads the
files.

1. The runtime gives a path (`/kubepods/pod1/id`), or `slice:prefix:name` if systemd keeps cgroups.
   The slice `a-b.slice` lies in `a.slice`.
2. cgroup v2 has one tree, v1 one for cpuset. Effective sets leave out CPUs that are offline.

Sources: Linux Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/cpusets.rst; runc
libcontainer/cgroups/systemd (ExpandSlice).
"""

from __future__ import annotations

from collections.abc import Callable

from services.agent.core import Cpuset
from shared.kubelet.cpuset import parse_cpus

# Returns the text of a file by its path below the root of cgroups; None if there is no such file.
Read = Callable[[str], str | None]
_V2 = ("cpuset.cpus.effective", "cpuset.mems.effective")
_V1 = ("cpuset.effective_cpus", "cpuset.effective_mems")


def folder(path: str) -> str:
    """Return the folder of a container's or pod's path, relative to the root of its tree."""
    parts = path.split(":")
    if len(parts) != 3:
        is_slice = path.endswith(".slice") and "/" not in path
        return _slices(path) if is_slice else path.strip("/")
    prefix = "-".join(part for part in parts[1:] if part)
    return f"{_slices(parts[0])}/{prefix}.scope".lstrip("/")


def _slices(name: str) -> str:
    pieces = name.removesuffix(".slice").split("-")
    return "/".join(f"{'-'.join(pieces[: end + 1])}.slice" for end in range(len(pieces)))


def tree(read: Read) -> str:
    """Return the prefix of the tree that has cpusets: empty for cgroup v2."""
    return "" if read("cgroup.controllers") is not None else "cpuset/"


def measure(read: Read, path: str) -> Cpuset | None:
    """Return the CPUs and memory zones of a container's cgroup; None if it does not exist or has no
    cpuset controller.
    """
    if not path:
        return None
    prefix = tree(read)
    cpus, mems = (read(f"{prefix}{folder(path)}/{name}") for name in (_V1 if prefix else _V2))
    return None if cpus is None or mems is None else Cpuset(parse_cpus(cpus), parse_cpus(mems))
