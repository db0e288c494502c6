"""The whole simulated world, and one step of it: choose an enabled action by the seed, carry it
out, check what must hold.

A step that breaks an invariant raises `Broken` with seed, step and trace. Must not know what a
service decides.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import get_args

from services.simulator.cluster import GPU
from shared.domain.booking import AllocatePolicy, Owner, Terms, pod_for
from shared.domain.pod import Pod
from shared.domain.resources import CPU, MEMORY
from shared.eventlog.port import Commit, Draft
from shared.events import streams
from shared.events.catalog import Event
from shared.events.scheduling_events import BookingEnded, BookingMade
from tests.simulation.answering import Outside
from tests.simulation.binders import BinderProcess
from tests.simulation.checks import Checks
from tests.simulation.cluster import Api
from tests.simulation.history import History
from tests.simulation.log import SimClock, SimLog
from tests.simulation.manifests import FOREIGN, NAMES, OURS, join_gang, manifest
from tests.simulation.node import SimNode
from tests.simulation.process import Process
from tests.simulation.profile import DRAWN, GIB, Fixed, draw
from tests.simulation.schedulers import TTL_S, SchedulerProcess
from tests.simulation.stores import Network, StoreProcess

STEP_MS = 20
POLICIES: tuple[AllocatePolicy, ...] = get_args(AllocatePolicy)
# Errors of the services' calendar, which jumps between them. Boots are ordered only by the
# calendar, which may err by a minute (`services.topology_store.moments`).
WRONG_MS = (0, 0, 4_000, 30_000)
# Errors of the log's clock.
LOG_WRONG_MS = (0, 0, 4_000, 3_600_000)
Act = Callable[[], str | None]


class Broken(AssertionError):
    """An invariant is violated."""


class World:
    """`trace` has one line a step: step, virtual ms, head of the log, action, about what, what came
    of it.
    """

    def __init__(self, seed: int, fixed: Fixed = DRAWN) -> None:
        self.seed, self.steps = seed, 0
        self.rng = random.Random(seed)
        self.profile = draw(self.rng, seed, fixed)
        self.weights = self.profile.weights
        self.marks: set[str] = set()
        self.trace: list[str] = []
        self.clock = SimClock()
        self.log = SimLog(self.clock)
        self.api, self.has_cards = Api(seed, self.clock, fixed.cards), fixed.cards
        self.network = Network(self.clock if self.profile.rich else None)
        mark = self.marks.add
        self.outside = Outside(self.log, self.api, self.rng, mark)
        self.nodes = [
            SimNode(shape, self.profile.listing[shape.name], self.api, self.clock, self.rng)
            for shape in self.profile.nodes
        ]
        rich = self.profile.rich
        self.schedulers = [
            SchedulerProcess(
                f"scheduler-{at}",
                self.log,
                self.clock,
                self.api,
                self.profile.batch,
                mark,
                rich,
                self.profile.hold_after_s,
            )
            for at in range(self.profile.schedulers)
        ]
        self.binders = [
            BinderProcess(f"binder-{at}", self.log, self.clock, mark)
            for at in range(self.profile.binders)
        ]
        self.stores = [
            StoreProcess(f"store-{at}", self.log, self.clock, self.network, mark, rich)
            for at in range(self.profile.stores)
        ]
        self.processes: list[Process] = [*self.schedulers, *self.binders, *self.stores]
        self.checks = Checks(
            self.log, self.api, self.nodes, self.schedulers, self.marks, self.clock
        )
        self.outside.binding, self.outside.evicting = self.checks.binding, self.checks.evicting
        self.outside.appended = self.checks.appended
        self.history = History(self.log, self.clock, mark)
        self.history.heard = self.checks.set_back
        for process in self.processes:
            process.abandoned = self.outside.abandoned
        self._mark_the_makings()

    def _mark_the_makings(self) -> None:
        machines = [node.shape.machine for node in self.nodes]
        makings = {
            "several schedulers": len(self.schedulers) > 1,
            "more than three zones": any(len(machine.zones) > 3 for machine in machines),
            "hugepages": any(zone.hugepages for machine in machines for zone in machine.zones),
        }
        self.marks.update(name for name, made in makings.items() if made)

    def close(self) -> None:
        """End the loops that are under way."""
        for process in self.processes:
            process.crash()

    # -- one step
    # ----------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Run this many steps."""
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        """Do one action, chosen by the seed."""
        offered = self.offered()
        kinds = [kind for kind in offered if self.weights.get(kind, 0) > 0]
        kind = self.rng.choices(kinds, [self.weights[each] for each in kinds])[0]
        about, act = self.rng.choice(offered[kind])
        self.do(kind, about, act)

    def do(self, kind: str, about: str, act: Act) -> None:
        """Carry an action out and check."""
        self.steps += 1
        self.clock.now_ms += STEP_MS
        said = act()
        self.marks.add(f"did {kind}")
        self.trace.append(
            f"{self.steps:5d} {self.clock.now_ms:8d} {self.log.end:5d} {kind:12s} {about} -> "
            f"{said or ''}"
        )
        self.check()

    def check(self) -> None:
        """Check the invariants that must hold after every step."""
        for process in self.processes:
            if process.errors:
                raise Broken(f"{process.name}: {process.errors[0]!r}") from process.errors[0]
        self.checks.after_step()
        if self.checks.broken:
            raise Broken("; ".join(self.checks.broken))

    def offered(self) -> dict[str, list[tuple[str, Act]]]:
        """Return every enabled action by kind."""
        acts: dict[str, list[tuple[str, Act]]] = {}

        def add(kind: str, about: str, act: Act) -> None:
            acts.setdefault(kind, []).append((about, act))

        self._offer_clients(add)
        for node in self.nodes:
            node.offer(add)
            if not node.down:
                add("scan", node.name, lambda node=node: self._scan(node))  # type: ignore[misc]
                add("read", node.name, node.read)
        self.history.offer(add)
        self._offer_processes(add)
        self.outside.offer(add, [process for process in self.processes if process.alive])
        if self.network.messages:
            add("drop", "the oldest report", lambda: str(self.network.messages.pop(0).subject))
        add("tick", "", self._tick)
        add("clock jump", "", self._jump)
        add("log clock jump", "", self._jump_of_the_log)
        return acts

    def _scan(self, node: SimNode) -> str:
        if node.begun:
            self.marks.add("a scan in parts")
        self.network.publish(node.report())
        return f"{len(node.kubelet.pods)} pods"

    def _tick(self) -> str:
        self.clock.now_ms += 500
        return ""

    def _jump(self) -> str:
        """Set the calendar of the services."""
        self.clock.wall_ms = self.rng.choice(WRONG_MS)
        return f"{self.clock.wall_ms} ms wrong"

    def _jump_of_the_log(self) -> str:
        """Set the clock of the database's machine, so that leases seem older or younger."""
        self.clock.log_ms = self.rng.choice(LOG_WRONG_MS)
        return f"{self.clock.log_ms} ms wrong"

    # -- clients
    # ----------------------------------------------------------------------------------------------

    def _offer_clients(self, add: Callable[[str, str, Act], None]) -> None:
        pods = self.api.pods()
        taken = {pod["metadata"]["name"] for pod in pods}
        free = [name for name in NAMES[: self.profile.names] if name not in taken]
        if free and len(self.api.live()) < self.profile.live_pods:
            fresh = self.rng.choice(free)
            add("create", fresh, lambda: self._create(fresh))
        for pod in pods:
            self._offer_pod(add, pod, pod["metadata"]["name"], pod["metadata"]["uid"])
        if self.weights.get("book"):
            self._offer_bookings(add)
        for scheduler in self.schedulers if self.weights.get("go unseen") else ():
            self._offer_unseen(add, scheduler.between_lists())

    def _offer_bookings(self, add: Callable[[str, str, Act], None]) -> None:
        """An operator keeps room for some pods, by name, or gives it back."""
        pods = self.checks.audit.ledger.pods
        for uid in ("booking-0", "booking-1"):
            if uid in pods:
                add("unbook", uid, partial(self.unbook, uid))
            else:
                add("book", uid, partial(self._book, uid))

    def _book(self, uid: str) -> str:
        amounts = {CPU: self.rng.choice((1000, 2000, 3000)), MEMORY: self.rng.choice((1, 2)) * GIB}
        if self.has_cards and self.rng.random() < 0.5:
            amounts[GPU] = self.rng.choice((1, 2))
        names = self.rng.sample(NAMES, 7)
        policy, once = self.rng.choice(POLICIES), self.rng.random() < 0.3
        terms = Terms(tuple(Owner(name=name) for name in names), policy, once)
        like = Pod("", "", "", "Guaranteed", scheduler_name=OURS)
        self._tell(streams.pod(uid), BookingMade(uid, pod_for(uid, uid, amounts, like), terms))
        return f"{amounts} {policy} {'once ' if once else ''}for {names}"

    def unbook(self, uid: str) -> str:
        self._tell(streams.pod(uid), BookingEnded(uid))
        return "given back"

    def _tell(self, stream: str, event: Event) -> None:
        commit = Commit(f"operator/{self.steps}", "operator", 0, 0, (Draft(stream, event),))
        self.log.append_now([commit])

    def _offer_pod(
        self, add: Callable[[str, str, Act], None], pod: dict[str, object], name: str, uid: str
    ) -> None:
        spec, status = pod["spec"], pod["status"]
        assert isinstance(spec, dict)
        assert isinstance(status, dict)
        if status.get("phase") in ("Succeeded", "Failed"):
            add("clean", name, lambda: self.api.delete(name, uid))
            return
        add("delete", name, lambda: self.api.delete(name, uid))
        add("force", name, lambda: self.api.delete(name, uid, grace_s=0))
        node = spec.get("nodeName")
        if node is None and not pod["metadata"].get("deletionTimestamp"):  # type: ignore[attr-defined]
            kind = "foreign" if spec["schedulerName"] == FOREIGN else "steal"
            add(kind, name, lambda: self._bind_elsewhere(name, uid))
            if spec["schedulerName"] == FOREIGN:
                add("nominate", name, lambda: self._nominate(uid))
        elif node is not None and not self.api.has_node(str(node)):
            add("gc", name, lambda: self.api.delete(name, uid, grace_s=0))

    def _offer_unseen(self, add: Callable[[str, str, Act], None], listed: set[str]) -> None:
        """Offer that a pod ends between two lists, without a watch event. That is rare by itself,
        above all of a single pod, with which the second list is believed. It is no fault: many such
        lists are read after faults have stopped.
        """
        for meta in [
            pod["metadata"] for pod in self.api.pods() if pod["metadata"]["uid"] in listed
        ]:
            name, uid = meta["name"], meta["uid"]
            add("go unseen", name, lambda name=name, uid=uid: self.api.delete(name, uid, grace_s=0))  # type: ignore[misc]

    def _create(self, name: str) -> str:
        made = manifest(self.rng, name, self.profile.rich, self.profile.small)
        if self.profile.gangs:
            join_gang(made)
        uid = self.api.create(made)
        asked = [container["resources"]["requests"] for container in made["spec"]["containers"]]
        first = "+init" if "initContainers" in made["spec"] else ""
        return f"{uid[:6]} {made['spec']['schedulerName']} {asked}{first}"

    def _bind_elsewhere(self, name: str, uid: str) -> str:
        """Another client binds a pod."""
        node = self.rng.choice(self.nodes)
        if node.down:
            return "nowhere"
        return f"{node.name}: {self.api.bind('default', name, uid, node.name, {}).status}"

    def _nominate(self, uid: str) -> str:
        """Let another scheduler nominate a node for a pod, or withdraw the nomination."""
        node = self.rng.choice(["", *(node.name for node in self.nodes)])
        self.api.nominate(uid, node)
        return node or "nowhere"

    # -- processes
    # ----------------------------------------------------------------------------------------------

    def _offer_processes(self, add: Callable[[str, str, Act], None]) -> None:
        for process in self.processes:
            if not process.alive:
                add("start", process.name, process.start)
                continue
            if (not isinstance(process, StoreProcess) or process.follows) and not (
                process.live and not process.astray
            ):
                add("fold", process.name, lambda process=process: self._fold(process))  # type: ignore[misc]
            add("crash", process.name, process.crash)
            process.offer(add)  # type: ignore[attr-defined]
        for rivals in (self.schedulers, self.binders):
            self._offer_takeover(add, rivals)

    def _offer_takeover(
        self,
        add: Callable[[str, str, Act], None],
        rivals: list[SchedulerProcess] | list[BinderProcess],
    ) -> None:
        for rival in rivals:
            if rival.alive and rival.lease is None and rival.live:
                add("takeover", rival.name, lambda rival=rival: self._take_over(rival))  # type: ignore[misc]

    def _take_over(self, rival: SchedulerProcess | BinderProcess) -> str:
        """Pause the leader for longer than its lease, without its knowledge."""
        self.clock.now_ms += int(TTL_S * 1000) + 1
        for role in ("scheduler/topolog", "topology-store"):
            self.log.members_now(role)
        return rival.lead()

    def _fold(self, process: Process) -> str:
        process.fold(self.rng.choice((1, 2, 5, 100)))
        return f"to {process.position}"


__all__ = ["OURS", "Broken", "World"]
