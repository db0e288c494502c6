"""The exporter service: composition only. One round for each node, one outbox, one watch over the
kubelets' folders.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from services.exporter.device_objects import DeviceObjects
from services.exporter.handlers import NodeReporter, NodeStatus
from services.exporter.objects import Objects
from services.exporter.outbox import Outbox, Unpublished
from services.exporter.precedence import gathered
from services.exporter.readiness import Pod, PodReadiness, State
from services.exporter.rte_config import RteConfigError
from services.exporter.scan import NodeReader, Source
from services.exporter.settings import FAKE, HOST_PROC, ExporterSettings, NodeSpec
from services.exporter.slice_source import SliceSource
from services.exporter.source_grpc import GrpcSource
from services.exporter.watch import file_place, kubelet_places, watch_bus, watch_places
from shared.bus.jetstream import JetStreamBus
from shared.bus.port import Bus
from shared.domain.statement import STATEMENT_FILE
from shared.domain.version import VERSION
from shared.kube.port import Kube
from shared.runtime import lean
from shared.runtime.app import Exit, Service, run_service
from shared.runtime.http import json_response
from shared.runtime.settings import SettingsInvalid, load
from shared.telemetry import exporter_names, logs, names
from shared.telemetry.instruments import set_gauge

NAME = "topolog-exporter"
FLUSH_S = 2.0
ONCE_S = 30.0
# Every wakeup costs on every node of a cluster, so background loops look this rarely.
AT_REST_S = 5.0


class Exporter:
    """The nodes of one process: their reporters and the outbox that they share."""

    def __init__(self, bus: Bus, settings: ExporterSettings, kube: Kube | None = None) -> None:
        self._bus = bus
        self._settings = settings
        self._log = logs.get(NAME)
        self._to_bus = "bus" in settings.publish and not settings.no_publish
        outbox = Outbox if self._to_bus else Unpublished
        self.outbox = outbox(bus, self.request_full, self._bus_failed)
        self._specs = {spec.name: spec for spec in settings.specs()}
        self.objects: Objects | None = None
        self.slices: SliceSource | None = None
        if kube is not None and settings.writes_objects:
            self.objects = Objects(kube, settings.add_nrt_owner, self._objects_failed)
        if kube is not None and settings.dra_slices:
            self.slices = SliceSource(kube, self._specs, self._trigger, self._slices_failed)
        self.devices: DeviceObjects | None = None
        if kube is not None and settings.device_objects:
            proc, specs = settings.host_proc or HOST_PROC, self._specs.values()
            self.devices = DeviceObjects(kube, specs, proc, self._objects_failed)
        self.reporters = {name: self._reporter(spec) for name, spec in self._specs.items()}

    def request_full(self) -> None:
        """Publish every node in full soon, because the bus may have lost its reports."""
        for reporter in self.reporters.values():
            reporter.request_full()

    async def report_all(self) -> None:
        """Run every node's rounds; no node waits for another."""
        async with asyncio.TaskGroup() as rounds:
            for reporter in self.reporters.values():
                rounds.create_task(reporter.run())

    async def watch(self) -> None:
        """Trigger a node if its kubelet wrote something, all nodes if the notify file changed."""
        places = []
        for name, spec in self._specs.items():
            if spec.kubelet_dir and self._settings.report_on_change:
                places += kubelet_places(name, spec.kubelet_dir)
            if spec.agent_dir:
                places.append(file_place(name, f"{spec.agent_dir}/{STATEMENT_FILE}"))
        if self._settings.notify_file:
            places += [file_place(name, self._settings.notify_file) for name in self._specs]
        if places:
            await watch_places(places, self._settings.watch_interval_s, self._trigger, self._polls)

    async def watch_bus(self) -> None:
        """Publish in full when the bus is back."""
        if self._to_bus:
            await watch_bus(self._bus, self.request_full)

    async def once(self) -> list[str]:
        """Report every node once; return the problems, empty if all reports were accepted."""
        if self.slices is not None:
            await asyncio.gather(*(self.slices.ask(node) for node in self._specs))
        await asyncio.gather(*(reporter.round() for reporter in self.reporters.values()))
        statuses = [reporter.status for reporter in self.reporters.values()]
        problems = [status.error for status in statuses if status.error]
        if self._to_bus and not await self.outbox.drain(ONCE_S):
            problems.append(f"the bus accepted no report in {ONCE_S:g} s; check --nats-url")
        if self.objects is not None and not await self.objects.flush():
            problems.append("the API server accepted no object; see the warning above")
        return problems

    async def close(self) -> None:
        """Send the queue, then close the sockets."""
        if self._to_bus:
            await self.outbox.drain(FLUSH_S)
        await asyncio.gather(*(reporter.close() for reporter in self.reporters.values()))

    def waiting_for(self) -> str:
        """Return what readiness waits for: the first report of at least one node."""
        statuses = [reporter.status for reporter in self.reporters.values()]
        if any(status.scans for status in statuses):
            return ""
        errors = (status.error for status in statuses if status.error)
        return next(errors, "the first answer of a kubelet")

    def notices(self) -> dict[str, list[str]]:
        """Return the gaps of reports by node, for health: cuts, and unknown policies."""
        return {
            name: list(reporter.status.notices)
            for name, reporter in self.reporters.items()
            if reporter.status.notices
        }

    def state(self) -> State:
        """Return the state for the pod's conditions: the last scans, and the last writes."""
        statuses = [reporter.status for reporter in self.reporters.values()]
        if not all(status.scans or status.error for status in statuses):
            return State()
        fetched = not any(status.error for status in statuses)
        targets = (self.outbox if self._to_bus else None, self.objects)
        accepted = [target.accepted for target in targets if target is not None]
        return State(fetched, None if None in accepted else all(accepted))

    def _trigger(self, node: str) -> None:
        self.reporters[node].trigger()

    def _reporter(self, spec: NodeSpec) -> NodeReporter:
        reader = NodeReader(spec, self._settings, _source(spec, self._settings), self.slices)
        return NodeReporter(
            spec.name,
            reader,
            self._settings,
            self.outbox,
            self._node_changed,
            bool(spec.kubelet_dir) or not self._settings.report_on_change,
            self.objects,
        )

    def _node_changed(self, status: NodeStatus) -> None:
        failing = sum(1 for reporter in self.reporters.values() if reporter.status.error)
        set_gauge(exporter_names.EXPORTER_NODES_FAILING, failing)
        if status.error:
            self._log.warning(
                exporter_names.NODE_UNREADABLE, node=status.node, problem=status.error
            )
        elif status.notices:
            for notice in status.notices:
                self._log.warning(
                    exporter_names.REPORT_INCOMPLETE, node=status.node, problem=notice
                )
        else:
            self._log.info(exporter_names.NODE_READABLE, node=status.node, failures=status.failures)

    def readiness_failed(self, problem: str) -> None:
        """Log that the pod's conditions cannot be written; an empty problem means recovery."""
        self._log.warning(
            exporter_names.READINESS_REFUSED, problem=problem or "writes succeed again"
        )

    def _slices_failed(self, problem: str) -> None:
        self._log.warning(exporter_names.SLICES_REFUSED, problem=problem or "reads succeed again")

    def _objects_failed(self, problem: str) -> None:
        self._log.warning(exporter_names.OBJECTS_REFUSED, problem=problem or "writes succeed again")

    def _polls(self, reason: str) -> None:
        interval_s = self._settings.watch_interval_s
        self._log.warning(exporter_names.WATCH_POLLS, problem=reason, interval_s=interval_s)

    def _bus_failed(self, problem: str) -> None:
        self._log.warning(names.BUS_TROUBLE, problem=problem)


async def build(service: Service, settings: ExporterSettings) -> None:
    """Create the parts of the service and name its tasks.

    Nothing is awaited: bus and kubelets may come later.
    """
    service.loop_watch_s = AT_REST_S
    set_gauge(exporter_names.NFD_BUILD_INFO, int(time.time()), version=VERSION)
    bus = JetStreamBus(settings.bus(), name=NAME, keeps_streams=False)
    service.on_close("bus", bus.close)
    kube = _kube(settings)
    exporter = Exporter(bus, settings, kube)
    service.on_close("exporter", exporter.close)
    if kube is not None:
        service.on_close("kubernetes", kube.close)
    if exporter.objects is not None:
        service.task("objects", exporter.objects.run)
    if exporter.slices is not None:
        service.task("slices", exporter.slices.run)
    if exporter.devices is not None:
        service.task("devices", exporter.devices.run)
    if kube is not None and settings.podreadiness:
        pod = Pod(settings.pod_namespace, settings.pod_name)
        readiness = PodReadiness(kube, pod, exporter.state, exporter.readiness_failed)
        service.task("pod readiness", readiness.run)
    service.health.check("kubelet", exporter.waiting_for)
    service.health.show("notices", exporter.notices)
    service.task("reports", exporter.report_all)
    service.task("outbox", exporter.outbox.run)
    service.task("watch", exporter.watch)
    service.task("bus watch", exporter.watch_bus)
    service.route("/nodes", partial(_nodes, exporter))
    if settings.metrics_mode == "disabled" and service.http is not None:
        service.http.leave_out("/metrics")


async def _nodes(exporter: Exporter, request: object) -> object:
    return json_response([reporter.status for reporter in exporter.reporters.values()])


def _kube(settings: ExporterSettings) -> Kube | None:
    """Return a client of the API server if objects, conditions or slices need one.

    Otherwise the client is not even loaded.
    """
    writes = settings.writes_objects or settings.device_objects or settings.podreadiness
    if not (writes or settings.dra_slices):
        return None
    from shared.kube.client import KubeClient

    return KubeClient(settings.kubeconfig, max_connections=2)


def _source(spec: NodeSpec, settings: ExporterSettings) -> Source:
    if spec.socket.startswith(FAKE):
        # Loaded only here, because its JSON reader costs memory.
        from services.exporter.source_recording import RecordedSource

        return RecordedSource(Path(spec.socket.removeprefix(FAKE)))
    return GrpcSource(spec.socket.removeprefix("unix://"), settings.deadline_s)


def main(argv: Sequence[str], environment: dict[str, str]) -> int:
    """Run until stopped, or once; return the exit code."""
    try:
        variables = gathered(argv, environment).environment
        settings = load(ExporterSettings, variables)
    except (RteConfigError, SettingsInvalid) as error:
        problems = error.problems if isinstance(error, SettingsInvalid) else [str(error)]
        lines = "\n".join(f"  {problem}" for problem in problems)
        count = len(problems)
        print(f"{NAME} cannot start, {count} setting(s) to correct:\n{lines}", file=sys.stderr)
        return Exit.SETTINGS
    if settings.oneshot:
        return asyncio.run(_once(settings))
    lean.leave_out_uvloop(len(settings.specs()))
    return run_service(NAME, ExporterSettings, build, variables)


async def _once(settings: ExporterSettings) -> int:
    bus, kube = JetStreamBus(settings.bus(), name=NAME, keeps_streams=False), _kube(settings)
    exporter = Exporter(bus, settings, kube)
    try:
        problems = await exporter.once()
    finally:
        await exporter.close()
        await bus.close()
        if kube is not None:
            await kube.close()
    print("\n".join(problems) or f"{len(exporter.reporters)} nodes reported", file=sys.stderr)
    return Exit.FAILED if problems else Exit.CLEAN
