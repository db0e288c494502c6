"""One node's reads, put together into a `Scan`: the pods every time, what may be handed out and
files when they changed, /sys now and then.

The moment of truth is taken before all of it: what changes during a scan is as if it came after.
Must not know when to scan, nor what becomes of the result.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from services.exporter import checkpoints, configz, folders, kubelet_config, slices
from services.exporter.answers import Allocatable, ListedPod
from services.exporter.checkpoints import Checkpoints
from services.exporter.configz import Endpoint
from services.exporter.core import Scan
from services.exporter.kubelet_config import KubeletConfigError, KubeletFacts
from services.exporter.settings import ExporterSettings, NodeSpec
from services.exporter.slices import Device
from services.exporter.sysfs import Machine, read_machine
from services.exporter.sysfs_cpus import read_layout
from shared.domain.cpus import CpuLayout
from shared.domain.report import DynamicGroup, Freshness
from shared.file_signature import ABSENT, Signature, signature

Signatures = tuple[Signature, ...]
Ids = dict[str, frozenset[str]]
Offering = tuple[Signature, Ids]
"""The podresources socket's signature, and the healthy devices of each resource."""

STEADY_TRIES = 3


class Source(Protocol):
    """Whoever answers podresources."""

    async def pods(self) -> tuple[ListedPod, ...]:
        """The listed pods."""

    async def allocatable(self) -> Allocatable:
        """What may be handed out."""

    async def close(self) -> None:
        """Let go of the connection."""


class Known(Protocol):
    """Whoever knows the devices that drivers publish for claims."""

    def of(self, node: str, pods: Iterable[ListedPod]) -> tuple[Device, ...] | None:
        """A node's devices; None while they are not known."""


class NodeReader:
    """Reads one node. Keeps what changes rarely (machine, configuration, checkpoints) between
    scans.
    """

    def __init__(
        self, spec: NodeSpec, settings: ExporterSettings, source: Source, known: Known | None = None
    ) -> None:
        self._spec = spec
        self._sysfs = Path(spec.sysfs)
        self._socket = spec.socket.removeprefix("unix://")
        own = str(Path(spec.kubelet_dir) / folders.CONFIG_FILE) if spec.kubelet_dir else ""
        self._config_path = settings.kubelet_config or own
        self._settings = settings
        self._source = source
        self._devices = known
        self._dynamic: tuple[tuple[Device, ...], Machine, tuple[DynamicGroup, ...]] | None = None
        self._checkpoint_paths = (
            [f"{spec.kubelet_dir}/{name}" for name in folders.CHECKPOINTS]
            if spec.kubelet_dir
            else []
        )
        none_there = (ABSENT,) * len(self._checkpoint_paths)
        self._checkpoints: tuple[Signatures, Checkpoints] = none_there, checkpoints.NOTHING_READ
        self._files = checkpoints.Files()
        self._offered: tuple[Offering | None, float, Allocatable] | None = None
        self._boot_id = ""
        self._machine: tuple[float, Machine] | None = None
        self._events: tuple[Signature, KubeletFacts] | None = None
        self._answer: tuple[Signature, float, KubeletFacts] | None = None

    async def scan(self) -> Scan:
        """One scan. Raises SourceError, SysfsError, KubeletConfigError or ValueError, each naming
        what is wrong.
        """
        freshness = Freshness(self._boot(), folders.boot_time_ms())
        machine, kubelet = self._read_machine(), await self._kubelet()
        written = self._signature()
        allocatable = await self._allocatable(written)
        pods, stored = await self._list(written)
        dynamic = (
            self._groups(machine, self._devices.of(self._spec.name, pods))
            if self._devices is not None
            else None
        )
        return Scan(
            freshness,
            machine,
            allocatable,
            pods,
            kubelet,
            stored,
            self._settings.kubelet_version,
            dynamic,
        )

    async def _allocatable(self, written: Signatures) -> Allocatable:
        """What may be handed out, asked at least as often as /sys is read. In between it is what it
        was while the same kubelet listens and its checkpoint has those devices registered that were
        answered: kubelets write it at each change of a device's health (kubelet 1.36,
        genericDeviceUpdateCallback), and what else it hands out is fixed at its start."""
        now_s, offering = time.monotonic(), self._offering(written)
        if (
            self._offered is None
            or offering is None
            or self._offered[0] != offering
            or now_s >= self._offered[1]
        ):
            found = await self._source.allocatable()
            agreed = offering if offering is not None and offering[1] == _ids(found) else None
            self._offered = agreed, now_s + self._settings.machine_interval_s, found
        return self._offered[2]

    def _offering(self, written: Signatures) -> Offering | None:
        """Which kubelet listens, and the healthy devices that it wrote down; None where that cannot
        be told.
        """
        stored = self._stored(written)
        if "://" in self._socket or checkpoints.DEVICES not in stored.read:
            return None
        return signature(self._socket), {
            resource: ids for resource, ids in stored.registered.items() if ids
        }

    def _groups(
        self, machine: Machine, found: tuple[Device, ...] | None
    ) -> tuple[DynamicGroup, ...] | None:
        """Devices for claims by zone, sorted anew when they or the machine changed."""
        if found is None:
            return None
        if (
            self._dynamic is None
            or self._dynamic[0] is not found
            or self._dynamic[1] is not machine
        ):
            zones = frozenset(node.id for node in machine.nodes)
            self._dynamic = (
                found,
                machine,
                slices.groups(found, folders.FolderTree(self._sysfs), zones),
            )
        return self._dynamic[2]

    def forget(self) -> None:
        """Read everything anew: after a failure the node may be another than before."""
        self._boot_id, self._machine, self._events, self._offered = "", None, None, None

    async def close(self) -> None:
        """Close the source."""
        await self._source.close()

    def _boot(self) -> str:
        if not self._boot_id:
            configured = Path(self._settings.boot_id_file) if self._settings.boot_id_file else None
            self._boot_id = folders.boot_id(self._sysfs, configured)
        return self._boot_id

    def _read_machine(self) -> Machine:
        """The machine, read anew after `machine_interval_s`: a running kubelet hardly notices its
        changes sooner.
        """
        now_s = time.monotonic()
        if self._machine is None or now_s - self._machine[0] >= self._settings.machine_interval_s:
            tree = folders.FolderTree(self._sysfs)
            machine = read_machine(tree)
            self._machine = (
                now_s,
                msgspec.structs.replace(machine, cpus=self._layout(tree, machine)),
            )
        return self._machine[1]

    async def _kubelet(self) -> KubeletFacts:
        """The kubelet's configuration, parsed anew when its file was written, or asked for anew now
        and then.
        """
        if self._settings.kubelet_config_uri:
            return await self._asked()
        found = signature(self._config_path) if self._config_path else ABSENT
        if self._events is None or self._events[0] != found:
            self._events = found, self._from_file(self._config_path)
        return self._events[1]

    async def _asked(self) -> KubeletFacts:
        """What the kubelet itself says, asked every `machine_interval_s`, and anew where another
        one listens, which may have been started with another configuration; a kubelet that once
        answered keeps what it said until it answers again."""
        now_s, listens = time.monotonic(), signature(self._socket)
        if self._answer is None or self._answer[0] != listens or now_s >= self._answer[1]:
            settings = self._settings
            endpoint = Endpoint(
                settings.kubelet_config_uri, settings.kubelet_ca_file, settings.kubelet_token_file
            )
            try:
                text = await asyncio.to_thread(configz.fetch, endpoint)
                facts, pause_s = (
                    self._over(kubelet_config.parse(text, endpoint.uri)),
                    settings.machine_interval_s,
                )
            except KubeletConfigError:
                if self._answer is None:
                    raise
                facts, pause_s = self._answer[2], settings.interval_s / 2
            self._answer = listens, now_s + pause_s, facts
        return self._answer[2]

    def _from_file(self, path: str) -> KubeletFacts:
        """The file's facts, with the kubelet's defaults for what the file leaves out; without a
        file nothing is known.
        """
        text = folders.read_bounded(path) if path else None
        if path and text is None and self._settings.kubelet_config:
            raise KubeletConfigError(f"{path}: cannot be read; check --kubelet-config")
        return self._over(kubelet_config.parse(text, path) if text else KubeletFacts())

    def _over(self, facts: KubeletFacts) -> KubeletFacts:
        """Flags over what the kubelet's configuration says."""
        policy = self._settings.topology_manager_policy or facts.policy
        scope = self._settings.topology_manager_scope or facts.scope
        checked = kubelet_config.checked(policy, scope, facts.options, "flags")
        return msgspec.structs.replace(
            checked, cpu_policy=facts.cpu_policy, memory_policy=facts.memory_policy
        )

    def _layout(self, tree: folders.FolderTree, machine: Machine) -> CpuLayout:
        """How the CPUs nest, read once as long as the same CPUs are online in the same zones: that
        never changes else.
        """
        known = self._machine[1] if self._machine is not None else Machine()
        if known.cpus is not None and known.zone_of_cpu == machine.zone_of_cpu:
            return known.cpus
        return read_layout(tree, machine.zone_of_cpu)

    async def _list(self, before: Signatures) -> tuple[tuple[ListedPod, ...], Checkpoints]:
        """List while the checkpoints stand still as they were `before`, so that a pod is not taken
        for its successor on the same CPUs; without the checkpoints when they never do."""
        for _ in range(STEADY_TRIES):
            pods = await self._source.pods()
            stored, after = self._stored(before), self._signature()
            if after == before:
                return pods, stored
            before = after
        return pods, checkpoints.NOTHING_READ

    def _signature(self) -> Signatures:
        """The kubelet replaces a file at each change, and its content with it: inode, size and time
        tell.
        """
        return tuple(signature(path) for path in self._checkpoint_paths)

    def _stored(self, signature: Signatures) -> Checkpoints:
        """What the checkpoints say; one that was written is read anew."""
        before = self._checkpoints[0]
        if before != signature:
            files = zip(self._checkpoint_paths, before, signature, strict=True)
            written = [
                (folders.read_bounded(path) or b"") if was != now else None
                for path, was, now in files
            ]
            self._files = checkpoints.read(self._files, *written)
            self._checkpoints = (
                signature,
                checkpoints.of(self._files.cpu, self._files.memory, self._files.devices),
            )
        return self._checkpoints[1]


def _ids(found: Allocatable) -> Ids:
    ids: dict[str, set[str]] = {}
    for group in found.devices:
        ids.setdefault(group.resource, set()).update(group.ids)
    return {resource: frozenset(each) for resource, each in ids.items() if each}
