"""Settings of the agent."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from services.agent.wishes import MemoryPolicy
from shared.kubelet.cpuset import parse_cpus
from shared.runtime.settings import CommonSettings


class AgentSettings(CommonSettings, frozen=True, kw_only=True):
    """All settings; docs/settings.md describes them.

    `nri_index` orders NRI plugins; later ones override earlier ones. `sysfs`, `cgroups` and
    `host_proc` are mounts of the node's folders, `kubelet_dir` is the kubelet's. `gpu_env` is the
    environment variable that gets the pod's GPUs. `gpu_devices`: containers get their device files,
    too.
    """

    nri_socket: str = "/var/run/nri/nri.sock"
    nri_index: Annotated[str, msgspec.Meta(pattern="^[0-9]{2}$")] = "80"
    sysfs: str = "/sys"
    cgroups: str = "/sys/fs/cgroup"
    host_proc: str = "/proc"
    kubelet_dir: str = "/var/lib/kubelet"
    agent_dir: str = "/run/topolog"
    reserved_cpus: str = ""
    memory_policy: MemoryPolicy = "record"
    unkept: Literal["refuse", "warn"] = "refuse"
    gpu_env: Annotated[str, msgspec.Meta(pattern="^([A-Za-z_][A-Za-z0-9_]*)?$")] = ""
    gpu_devices: bool = False
    interval_s: Annotated[float, msgspec.Meta(ge=0.05, le=600)] = 5.0

    def __post_init__(self) -> None:
        try:
            parse_cpus(self.reserved_cpus)
        except ValueError as error:
            raise ValueError(f"TOPOLOG_RESERVED_CPUS: {error}") from error
