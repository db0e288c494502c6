"""The reads of one node, combined into a `Scan`.

Lists pods at every scan, reads allocatable resources and files if they changed, /sys now and then.
The moment of reading is taken first: a change during a scan counts as after it. Must not know when
to scan, nor the use of the result.
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
from services.exporter.kubelet_config import KubeletConfigError, KubeletSettings
from services.exporter.kubelet_sources import KubeletSources
from services.exporter.settings import ExporterSettings, NodeSpec
from services.exporter.slices import Device
from services.exporter.source_grpc import AnswerTooLarge
from services.exporter.statement import StatementReader
from services.exporter.sysfs import Machine, read_machine
from services.exporter.sysfs_cpus import read_layout
from shared.domain.cpus import CpuLayout
from shared.domain.report import UNKNOWN, DynamicGroup, Freshness
from shared.file_signature import ABSENT, Signature, signature

Signatures = tuple[Signature, ...]
Ids = dict[str, frozenset[str]]
# The podresources socket's signature, and the healthy devices of each resource.
Offering = tuple[Signature, Ids]

STEADY_TRIES = 3


class Source(Protocol):
    """A source of podresources answers."""

    async def pods(self) -> tuple[ListedPod, ...]:
        """Return the listed pods."""

    async def allocatable(self) -> Allocatable:
        """Return the allocatable resources."""

    async def close(self) -> None:
        """Close the connection."""


class DeviceSource(Protocol):
    """A source of the devices that drivers publish for claims."""

    def of(self, node: str, pods: Iterable[ListedPod]) -> tuple[Device, ...] | None:
        """Return a node's devices; None while they are unknown."""


class NodeReader:
    """Reads one node; keeps machine, configuration and checkpoints between scans."""

    def __init__(
        self,
        spec: NodeSpec,
        settings: ExporterSettings,
        source: Source,
        device_source: DeviceSource | None = None,
    ) -> None:
        self._spec = spec
        self._sysfs = Path(spec.sysfs)
        self._socket = spec.socket.removeprefix("unix://")
        self._settings = settings
        self._source = source
        self._device_source = device_source
        self._dynamic: tuple[tuple[Device, ...], Machine, tuple[DynamicGroup, ...]] | None = None
        self._checkpoint_paths = (
            [f"{spec.kubelet_dir}/{name}" for name in folders.CHECKPOINTS]
            if spec.kubelet_dir
            else []
        )
        absent = (ABSENT,) * len(self._checkpoint_paths)
        self._checkpoints: tuple[Signatures, Checkpoints] = absent, checkpoints.NOTHING_READ
        self._files = checkpoints.Files()
        self._offered: tuple[Offering | None, float, Allocatable] | None = None
        self._boot_id = ""
        self._machine: tuple[float, Machine] | None = None
        self._sources = KubeletSources(settings.places(spec))
        self._statement = StatementReader(spec.agent_dir)
        self._sources_read: tuple[Signature, float] = ABSENT, 0.0
        self._from_files: tuple[KubeletSettings, KubeletSettings] | None = None
        self._answer: tuple[Signature, float, KubeletSettings] | None = None

    async def scan(self) -> Scan:
        """Return one scan. Raises SourceError, SysfsError, KubeletConfigError or ValueError."""
        freshness = Freshness(self._boot(), folders.boot_time_ms())
        machine, kubelet = self._read_machine(), await self._kubelet()
        written = self._signatures()
        allocatable = await self._allocatable(written)
        unlisted = False
        try:
            pods, stored = await self._list(written)
        except AnswerTooLarge:
            pods, stored, unlisted = (), self._stored(written), True
            if not checkpoints.covers(stored, allocatable):
                raise
        dynamic = None
        if self._device_source is not None:
            dynamic = self._groups(machine, self._device_source.of(self._spec.name, pods))
        version = self._settings.kubelet_version
        return Scan(
            freshness,
            machine,
            allocatable,
            pods,
            kubelet,
            stored,
            version,
            dynamic,
            unlisted,
            self._statement.read(),
        )

    async def _allocatable(self, written: Signatures) -> Allocatable:
        """Return the allocatable resources, read at least as often as /sys.

        Between reads the last answer holds while the same kubelet listens and its checkpoint has
        the answered devices registered: kubelets write it at each change of a device's health
        (kubelet 1.36, genericDeviceUpdateCallback), and all else is fixed at their start.
        """
        now_s, offering = time.monotonic(), self._offering(written)
        if (
            self._offered is None
            or offering is None
            or self._offered[0] != offering
            or now_s >= self._offered[1]
        ):
            answer = await self._source.allocatable()
            agreed = offering if offering is not None and offering[1] == _ids(answer) else None
            self._offered = agreed, now_s + self._settings.machine_interval_s, answer
        return self._offered[2]

    def _offering(self, written: Signatures) -> Offering | None:
        """Return the listening kubelet and the healthy devices in its checkpoint, if known."""
        stored = self._stored(written)
        if "://" in self._socket or checkpoints.DEVICES not in stored.read:
            return None
        devices = {resource: ids for resource, ids in stored.registered.items() if ids}
        return signature(self._socket), devices

    def _groups(
        self, machine: Machine, devices: tuple[Device, ...] | None
    ) -> tuple[DynamicGroup, ...] | None:
        if devices is None:
            return None
        cached = self._dynamic
        if cached is None or cached[0] is not devices or cached[1] is not machine:
            zones = frozenset(node.id for node in machine.nodes)
            groups = slices.groups(devices, folders.FolderTree(self._sysfs), zones)
            cached = self._dynamic = devices, machine, groups
        return cached[2]

    def forget(self) -> None:
        """Read everything at the next scan: after a failure the node may be a different one."""
        self._boot_id, self._machine, self._offered = "", None, None
        self._sources.forget()

    async def close(self) -> None:
        """Close the source."""
        await self._source.close()

    def _boot(self) -> str:
        if not self._boot_id:
            configured = Path(self._settings.boot_id_file) if self._settings.boot_id_file else None
            self._boot_id = folders.boot_id(self._sysfs, configured)
        return self._boot_id

    def _read_machine(self) -> Machine:
        """Return the machine, read again after `machine_interval_s`.

        A running kubelet hardly notices its changes sooner.
        """
        now_s = time.monotonic()
        if self._machine is None or now_s - self._machine[0] >= self._settings.machine_interval_s:
            tree = folders.FolderTree(self._sysfs)
            machine = read_machine(tree)
            layout = self._layout(tree, machine)
            self._machine = now_s, msgspec.structs.replace(machine, cpus=layout)
        return self._machine[1]

    async def _kubelet(self) -> KubeletSettings:
        """Return the kubelet's settings: by its endpoint if allowed, else by its sources."""
        if not self._settings.kubelet_config_uri:
            return self._by_sources()
        try:
            return await self._by_endpoint()
        except KubeletConfigError:
            settings = self._by_sources()
            if settings.policy == UNKNOWN:
                raise
            return settings

    def _by_sources(self) -> KubeletSettings:
        """Return the merged sources, read again if a file changed, a kubelet started, or now and
        then (the command line is no file that can be watched).
        """
        now_s, socket = time.monotonic(), signature(self._socket)
        if self._sources_read[0] != socket or now_s >= self._sources_read[1]:
            self._sources.forget()
            self._sources_read = socket, now_s + self._settings.machine_interval_s
        merged = self._sources.read()
        # The report is made again only if the same object does not come back.
        if self._from_files is None or self._from_files[0] != merged:
            self._from_files = merged, self._overridden(merged)
        return self._from_files[1]

    async def _by_endpoint(self) -> KubeletSettings:
        """Return the kubelet's own answer, requested every `machine_interval_s`.

        Requested again if a new kubelet listens, which may have another configuration. After a
        failure the last answer holds until the next one.
        """
        now_s, socket = time.monotonic(), signature(self._socket)
        answer = self._answer
        if answer is None or answer[0] != socket or now_s >= answer[1]:
            settings = self._settings
            endpoint = Endpoint(
                settings.kubelet_config_uri, settings.kubelet_ca_file, settings.kubelet_token_file
            )
            try:
                text = await asyncio.to_thread(configz.fetch, endpoint)
                kubelet = self._overridden(kubelet_config.parse(text, endpoint.uri))
                pause_s = settings.machine_interval_s
            except KubeletConfigError:
                if answer is None:
                    raise
                kubelet, pause_s = answer[2], settings.interval_s / 2
            answer = self._answer = socket, now_s + pause_s, kubelet
        return answer[2]

    def _overridden(self, kubelet: KubeletSettings) -> KubeletSettings:
        """Apply the exporter's own flags."""
        policy = self._settings.topology_manager_policy or kubelet.policy
        scope = self._settings.topology_manager_scope or kubelet.scope
        checked = kubelet_config.checked(policy, scope, kubelet.options, "flags")
        return msgspec.structs.replace(kubelet, policy=checked.policy, scope=checked.scope)

    def _layout(self, tree: folders.FolderTree, machine: Machine) -> CpuLayout:
        """Return the CPU layout; it changes only if other CPUs are online."""
        previous = self._machine[1] if self._machine is not None else Machine()
        if previous.cpus is not None and previous.zone_of_cpu == machine.zone_of_cpu:
            return previous.cpus
        return read_layout(tree, machine.zone_of_cpu)

    async def _list(self, signatures: Signatures) -> tuple[tuple[ListedPod, ...], Checkpoints]:
        """List pods while the checkpoints stay as they were, by these `signatures`.

        Otherwise a pod could be taken for its successor on the same CPUs. If they change at each
        try, the result is without checkpoints.
        """
        for _ in range(STEADY_TRIES):
            pods = await self._source.pods()
            stored, current = self._stored(signatures), self._signatures()
            if current == signatures:
                return pods, stored
            signatures = current
        return pods, checkpoints.NOTHING_READ

    def _signatures(self) -> Signatures:
        # The kubelet replaces a file at each change, so inode, size and time show it.
        return tuple(signature(path) for path in self._checkpoint_paths)

    def _stored(self, signatures: Signatures) -> Checkpoints:
        """Return the checkpoints; decode only the files that changed."""
        previous = self._checkpoints[0]
        if previous != signatures:
            contents: list[bytes | None] = []
            for path, old, new in zip(self._checkpoint_paths, previous, signatures, strict=True):
                contents.append((folders.read_bounded(path) or b"") if old != new else None)
            files = self._files = checkpoints.read(self._files, *contents)
            self._checkpoints = signatures, checkpoints.of(files.cpu, files.memory, files.devices)
        return self._checkpoints[1]


def _ids(answer: Allocatable) -> Ids:
    ids: dict[str, set[str]] = {}
    for group in answer.devices:
        ids.setdefault(group.resource, set()).update(group.ids)
    return {resource: frozenset(devices) for resource, devices in ids.items() if devices}
