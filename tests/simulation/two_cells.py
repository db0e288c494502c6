"""Two cells over one simulated cluster: nodes move between them under load and faults, and pods
that a cell cannot place go on to the next one.

Each cell has a log, schedulers, binders and stores; API, nodes and clock are shared. What must hold
after each step: a node takes pods by one log at most, a pod without a node is in one log at most,
bindings go to nodes of the cell, no pod is bound twice. After quiet: nodes and pods are in the log
of the cell that wants or has them, alone.
"""

from __future__ import annotations

import random
from functools import partial
from typing import NamedTuple

import msgspec

from services.scheduler.reserve.proposals import usable
from services.scheduler.state import state as scheduler_state
from services.scheduler.state.state import SchedulerState
from services.simulator.cluster import NodeShape, Policies, lay_out
from shared.domain.cells import OWNER, WANTED, Cell, Cells
from shared.events.cluster_events import PodEnded
from shared.events.codec import decode
from shared.events.scheduling_events import ReservationWithdrawn
from tests.simulation.answering import Outside
from tests.simulation.binders import BinderProcess
from tests.simulation.cluster import Api
from tests.simulation.log import SimClock, SimLog
from tests.simulation.manifests import OURS
from tests.simulation.node import SimNode
from tests.simulation.process import Process
from tests.simulation.profile import DRAWN, EXCUSES, GIB, NOMINATING, draw
from tests.simulation.schedulers import SchedulerProcess
from tests.simulation.stores import Network, StoreProcess
from tests.simulation.world import Act, Broken, World

CELLS = (Cell("a"), Cell("b"))
NODES, WAIT_S = 4, 2.0
# Foreign bindings and lost machines excuse what must not happen here.
WITHOUT = {*EXCUSES, "reboot", "restart", "book", "unbook", "nominate", "go unseen"} - {
    "finish",
    "delete",
}
FAULTS_OF_CALM = {
    "create", "delete", "move", "crash", "takeover", "cut", "drop", "duplicate", "append lost",
    "append down", "answer lost", "execute late", "busy", "read lost", "reach late", "expire",
    "list cut", "list empty", "list short", "clock jump", "log clock jump", "check",
}  # fmt: skip
ALWAYS = {
    **{
        "keep": 4.0,
        "let go": 4.0,
        "move": 0.6,
        "crash": 0.5,
        "append lost": 1.0,
        "answer lost": 1.0,
    },
    **{"create": 4.0, "scan": 4.0, "deliver": 8.0, "lead": 8.0, "start": 6.0, "execute late": 1.0},
}
QUIET_STEPS, LOOK_EVERY = 12_000, 50


class OneCell(NamedTuple):
    """The processes of a cell, and the state of its log."""

    name: str
    log: SimLog
    network: Network
    outside: Outside
    schedulers: list[SchedulerProcess]
    binders: list[BinderProcess]
    stores: list[StoreProcess]
    audit: SchedulerState

    @property
    def processes(self) -> list[Process]:
        return [*self.schedulers, *self.binders, *self.stores]


class TwoCells(World):
    """The world of `World` with two cells in place of one log."""

    def __init__(self, seed: int) -> None:
        self.seed, self.steps = seed, 0
        self.rng = random.Random(seed)
        # Seeds of this kind have lists as calls, which may lie.
        drawn = draw(self.rng, NOMINATING, DRAWN)
        weights = drawn.weights | ALWAYS | dict.fromkeys(WITHOUT, 0.0)
        if seed % 3 == 0:
            weights |= {"finish": 0.0, "delete": 0.0}
        self.profile = msgspec.structs.replace(
            drawn, weights=weights, live_pods=14, small="", gangs=seed % 2 == 1
        )
        self.weights = weights
        self.marks: set[str] = set()
        self.trace: list[str] = []
        self.refusals: list[str] = []
        self.clock = SimClock()
        self.api = Api(seed, self.clock)
        shape = NodeShape(2, 8, 16 * GIB)
        self.nodes = [
            SimNode(
                lay_out(f"n{at}", shape, Policies("single-numa-node", "container")),
                "uid", self.api, self.clock, self.rng,
            )
            for at in range(NODES)
        ]  # fmt: skip
        for node in self.nodes:
            node.refused = lambda node, pod, *_: self.refusals.append(f"{pod.name} on {node.name}")
        self.cells = [self._cell(cell.name) for cell in CELLS]
        self.bound: list[str] = []

    def _cell(self, name: str) -> OneCell:
        log, network, mark = SimLog(self.clock), Network(self.clock), self.marks.add
        cells = Cells(name, CELLS, WAIT_S)
        schedulers = [
            SchedulerProcess(
                f"scheduler-{name}{at}", log, self.clock, self.api, 2, mark, True, cells=cells
            )
            for at in range(1 + self.rng.choice((0, 1)))
        ]
        binders = [BinderProcess(f"binder-{name}{at}", log, self.clock, mark) for at in range(2)]
        store = StoreProcess(f"store-{name}", log, self.clock, network, mark, True, name)
        outside = Outside(log, self.api, self.rng, mark)
        outside.binding = partial(self._binding, name)
        made = OneCell(name, log, network, outside, schedulers, binders, [store], SchedulerState())
        for process in made.processes:
            process.abandoned = outside.abandoned
        return made

    def close(self) -> None:
        for cell in self.cells:
            for process in cell.processes:
                process.crash()

    # -- what may happen

    def offered(self) -> dict[str, list[tuple[str, Act]]]:
        acts: dict[str, list[tuple[str, Act]]] = {}

        def add(kind: str, about: str, act: Act) -> None:
            acts.setdefault(kind, []).append((about, act))

        self.schedulers = [each for cell in self.cells for each in cell.schedulers]
        self._offer_clients(add)
        for node in self.nodes:
            node.offer(add)
            add("scan", node.name, partial(self._scanned, node))
            add("move", node.name, partial(self._move, node.name))
        for cell in self.cells:
            self.log, self.schedulers, self.binders = cell.log, cell.schedulers, cell.binders
            self.processes = cell.processes
            self._offer_processes(add)
            cell.outside.offer(add, [process for process in cell.processes if process.alive])
            if cell.network.messages:
                add("drop", cell.name, lambda cell=cell: str(cell.network.messages.pop(0).subject))  # type: ignore[misc]
        add("tick", "", self._tick)
        return acts

    def _scanned(self, node: SimNode) -> str:
        report = node.report()
        for cell in self.cells:
            cell.network.publish(report)
        return f"{len(node.kubelet.pods)} pods"

    def _move(self, name: str) -> str:
        to = self.rng.choice(CELLS).name
        self.api.label_node(name, {WANTED: to})
        return to

    def _take_over(self, rival: SchedulerProcess | BinderProcess) -> str:
        self.log = rival.log
        return super()._take_over(rival)

    # -- what must hold

    def check(self) -> None:
        for cell in self.cells:
            for process in cell.processes:
                if process.errors:
                    raise Broken(f"{process.name}: {process.errors[0]!r}") from process.errors[0]
            self._audit(cell)
        for node in self.nodes:
            users = [
                cell.name
                for cell in self.cells
                if usable(cell.audit.ledger.nodes.get(node.name), Cells(cell.name, CELLS))
            ]
            if len(users) > 1:
                raise Broken(f"{node.name} takes pods by the logs of {users}")
        for pod in self.api.live():
            if not pod["spec"].get("nodeName"):
                self._check_waiting(pod["metadata"]["uid"])
        if self.bound:
            raise Broken("; ".join(self.bound))
        if twice := {uid: nodes for uid, nodes in self.api.bound.items() if len(nodes) > 1}:
            raise Broken(f"S5: bound twice: {twice}")
        if self.refusals and not self.weights["finish"]:
            raise Broken(f"S4: kubelets refused {self.refusals}")

    def _audit(self, cell: OneCell) -> None:
        while page := cell.log.read_now(cell.audit.ledger.position):
            for envelope in page:
                event = decode(envelope)
                gang = cell.audit.gangs.of_pod(event.about.pod)
                scheduler_state.evolve(cell.audit, envelope, event)
                if isinstance(event, PodEnded) and event.hops:
                    self.marks.add("a gang goes" if gang is not None else f"hop {event.hops}")
                elif isinstance(event, PodEnded) and event.cause == "moved" and event.node:
                    self.marks.add("pods moved")
                if isinstance(event, ReservationWithdrawn) and event.cause == "node_leaves":
                    self.marks.add("reservation withdrawn")

    def _check_waiting(self, uid: str) -> None:
        has = [cell.name for cell in self.cells if uid in cell.audit.ledger.pods]
        if len(has) > 1:
            raise Broken(f"pod {uid[:6]} has no node, and is in the logs of {has}")

    def _binding(self, cell: str, uid: str, node: str) -> None:
        pod = self.api.by_uid(uid)
        if pod is not None and not pod["spec"].get("nodeName") and self._owner(node) != cell:
            self.bound.append(f"{cell} binds {uid[:6]} to {node} of {self._owner(node)!r}")

    def _owner(self, node: str) -> str:
        return str(self._labels(node).get(OWNER, ""))

    def _labels(self, node: str) -> dict[str, str]:
        return dict(self.api.get_node(node).body["metadata"].get("labels", {}))

    # -- afterwards

    def rest(self) -> None:
        """Go on without faults until every node and pod is where it belongs."""
        for cell in self.cells:
            for process in cell.processes:
                if not process.alive:
                    self.do("start", process.name, process.start)
        problem = "no step"
        for step in range(QUIET_STEPS):
            offered = {k: v for k, v in self.offered().items() if k not in FAULTS_OF_CALM}
            kinds = [kind for kind in offered if self.weights.get(kind, 1.0) > 0]
            weights = [self.weights.get(kind, 1.0) or 1.0 for kind in kinds]
            kind = self.rng.choices(kinds, weights)[0]
            about, act = self.rng.choice(offered[kind])
            self.do(kind, about, act)
            if step % LOOK_EVERY == 0 and not (problem := self.misplaced()):
                return
        raise Broken(f"after {QUIET_STEPS} quiet steps: {problem}")

    def misplaced(self) -> str:
        """Return a node or pod that is not in the log of its cell alone, "" for none."""
        for node in self.nodes:
            wanted = Cells("a", CELLS).of_node(node.name, self._labels(node.name))
            in_logs = [
                cell.name
                for cell in self.cells
                if (entry := cell.audit.ledger.nodes.get(node.name)) and entry.observed
            ]
            if in_logs != [wanted] or self._owner(node.name) != wanted:
                return f"{node.name} is in {in_logs}, wanted by {wanted}"
        for pod in self.api.live():
            uid, node_name = pod["metadata"]["uid"], pod["spec"].get("nodeName")
            if not node_name and pod["spec"]["schedulerName"] != OURS:
                continue
            cell_name = self._owner(node_name) if node_name else Cells("a", CELLS).route(pod).cell
            logs = {cell.name: cell.audit.ledger.pods.get(uid) for cell in self.cells}
            has = [name for name, entry in logs.items() if entry is not None]
            entry_there = logs[cell_name]
            if (
                has != [cell_name]
                or entry_there is None
                or (node_name and entry_there.node != node_name)
            ):
                return f"pod {uid[:6]} on {node_name} is in {has}, and belongs to {cell_name}"
        return ""
