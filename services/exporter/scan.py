"""One node's reads, put together into a `Scan`: List every time, everything slower only when a full scan is asked.

The moment of truth is taken before List. Must not know when to scan, nor what becomes of the result.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from services.exporter import folders, kubelet_config
from services.exporter.answers import Allocatable, ListedPod
from services.exporter.core import Scan
from services.exporter.kubelet_config import KubeletFacts
from services.exporter.placements import CpuEntries
from services.exporter.settings import ExporterSettings, NodeSpec
from services.exporter.sysfs import Machine, read_machine
from shared.domain.report import Freshness
from shared.kubelet.checkpoint import CheckpointError, read_cpu
from shared.kubelet.cpuset import each_cpu

STEADY_TRIES = 3


class Source(Protocol):
    """Whoever answers podresources."""

    async def pods(self) -> tuple[ListedPod, ...]:
        """The listed pods."""

    async def allocatable(self) -> Allocatable:
        """What may be handed out."""

    async def close(self) -> None:
        """Let go of the connection."""


class NodeReader:
    """Reads one node. Keeps what changes rarely (machine, configuration, allocatable) between full scans."""

    def __init__(self, spec: NodeSpec, settings: ExporterSettings, source: Source) -> None:
        self._spec = spec
        self._settings = settings
        self._source = source
        self._checkpoint_path = f"{spec.kubelet_dir}/{folders.CPU_CHECKPOINT}" if spec.kubelet_dir else ""
        self._slow: tuple[str, Machine, KubeletFacts, Allocatable] | None = None
        self._machine: tuple[float, Machine] | None = None
        self._facts: tuple[tuple[int, int, int], KubeletFacts] | None = None

    async def scan(self, full: bool) -> Scan:
        """One scan. Raises SourceError, SysfsError, KubeletConfigError or ValueError, each naming what is wrong."""
        if full or self._slow is None:
            self._slow = await self._read_slow()
        boot_id, machine, kubelet, allocatable = self._slow
        freshness, pods, checkpoint = await self._list(boot_id)
        return Scan(freshness, machine, allocatable, pods, kubelet, read_cpu_entries(checkpoint))

    def forget(self) -> None:
        """Make the next scan a full one: after a failure the node may be another than before."""
        self._slow = self._machine = self._facts = None

    async def close(self) -> None:
        """Close the source."""
        await self._source.close()

    async def _read_slow(self) -> tuple[str, Machine, KubeletFacts, Allocatable]:
        root = Path(self._spec.sysfs)
        configured = Path(self._settings.boot_id_file) if self._settings.boot_id_file else None
        boot_id = folders.boot_id(root, configured)
        return boot_id, self._read_machine(root), self._kubelet(), await self._source.allocatable()

    def _read_machine(self, root: Path) -> Machine:
        """The machine, read anew after `machine_interval_s`: a running kubelet hardly notices its changes sooner."""
        now_s = time.monotonic()
        if self._machine is None or now_s - self._machine[0] >= self._settings.machine_interval_s:
            self._machine = now_s, read_machine(folders.FolderTree(root))
        return self._machine[1]

    def _kubelet(self) -> KubeletFacts:
        """The configuration file's facts, parsed anew when the file was written."""
        path = self._config_path()
        found = folders.signature(str(path)) if path else (0, 0, 0)
        if self._facts is None or self._facts[0] != found:
            self._facts = found, self._read_kubelet(path)
        return self._facts[1]

    def _read_kubelet(self, path: Path | None) -> KubeletFacts:
        """Flags first, then the file's facts; no file means the kubelet's defaults."""
        text = folders.read_bounded(path) if path else None
        if path and text is None and self._settings.kubelet_config:
            raise kubelet_config.KubeletConfigError(f"{path}: cannot be read; check --kubelet-config")
        facts = kubelet_config.parse(text, str(path)) if text else KubeletFacts()
        policy, scope = (
            self._settings.topology_manager_policy or facts.policy,
            self._settings.topology_manager_scope or facts.scope,
        )
        return kubelet_config.checked(policy, scope, facts.options, "flags")

    def _config_path(self) -> Path | None:
        if self._settings.kubelet_config:
            return Path(self._settings.kubelet_config)
        return Path(self._spec.kubelet_dir) / folders.CONFIG_FILE if self._spec.kubelet_dir else None

    async def _list(self, boot_id: str) -> tuple[Freshness, tuple[ListedPod, ...], bytes]:
        """List while the CPU checkpoint stands still, so that a pod is not taken for its successor on the same CPUs;
        without the checkpoint when it never does."""
        for _ in range(STEADY_TRIES):
            before = self._checkpoint_signature()
            freshness = Freshness(boot_id, folders.boot_time_ms())
            pods = await self._source.pods()
            checkpoint = self._checkpoint()
            if self._checkpoint_signature() == before:
                return freshness, pods, checkpoint
        return freshness, pods, b""

    def _checkpoint_signature(self) -> tuple[int, int, int]:
        """The kubelet replaces the file at each change, and its content with it: inode, size and time tell."""
        return folders.signature(self._checkpoint_path) if self._checkpoint_path else (0, 0, 0)

    def _checkpoint(self) -> bytes:
        return (folders.read_bounded(self._checkpoint_path) or b"") if self._checkpoint_path else b""


def read_cpu_entries(checkpoint: bytes) -> CpuEntries:
    """The assignments of a `cpu_manager_state` file; none when it is absent or damaged (its kubelet will complain)."""
    state = read_cpu(checkpoint) if checkpoint else None
    if state is None or isinstance(state, CheckpointError):
        return {}
    return {uid: {name: tuple(each_cpu(cpus)) for name, cpus in held.items()} for uid, held in state.entries.items()}
