"""`topolog replay fragmentation`: how many more pods of each frequent pod class fit, by node and
zone, and how many the free amounts would hold at best.

1. The scheduler's own filter answers for one node at a time: it places pods of the class there
   until it refuses one. Each pod counts in its predicted zones, as if a report had confirmed it.
2. At best, a node holds as many pods as its guaranteed free amounts divided by the request, as if
   all its zones were one. A node that would refuse the pod without its other pods holds none.
3. What pods require of other pods or volumes (affinity, spread, claims) is left out.

Pure but for `fragmentation`, which reads the log.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from services.replay.deciding_state import followed_at, usable
from services.replay.filters import FilterError, clock
from services.replay.positions import position_of
from services.replay.suggestions import did_you_mean
from services.scheduler.explain.empty_nodes import any_of_its_class
from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import PodClass, key_of
from services.scheduler.snapshot.result import Placed
from services.scheduler.state.state import SchedulerState
from services.scheduler.state.totals import request_text
from shared.domain.demand import peak, zonal_demand
from shared.domain.effective import effective_request
from shared.domain.pod import Pod
from shared.eventlog.port import EventLog
from shared.events.quarantine import QuarantinedStreams
from shared.ledger.next_report import emptied
from shared.ledger.state import Ledger, LedgerNode

UNKNOWN_ZONES = "?"


class NodeRoom(msgspec.Struct, frozen=True):
    """One node. `zones` counts the pods that fit by the zones that each would get, such as `0` or
    `0,1`, and `?` if they are not predicted."""

    node: str
    fits: int
    at_best: int
    zones: dict[str, int] = {}


class ClassRoom(msgspec.Struct, frozen=True):
    """One pod class: its request, its live pods, and the room for more. Each of `nodes` has room
    for one, or would have if zones did not matter.
    """

    request: str
    pods: int
    waiting: int
    fits: int
    at_best: int
    nodes: tuple[NodeRoom, ...]

    @property
    def lost_percent(self) -> int:
        """How many percent of the places at best do not exist, rounded down."""
        return 100 * max(0, self.at_best - self.fits) // self.at_best if self.at_best else 0


class Fragmentation(msgspec.Struct, frozen=True):
    position: int
    time: str
    classes: tuple[ClassRoom, ...]


class Frequent(msgspec.Struct, frozen=True):
    """A pod of a frequent class, and the live pods of that class."""

    pod: Pod
    pods: int
    waiting: int


def frequent_classes(ledger: Ledger, most: int) -> list[Frequent]:
    """Return the classes with the most live pods that need zones on some node."""
    samples: dict[str, Pod] = {}
    pods, waiting = Counter[str](), Counter[str]()
    for entry in ledger.pods.values():
        if entry.static or not _is_zonal(entry.pod):
            continue
        sample = any_of_its_class(entry.pod)
        key = key_of(sample)
        samples.setdefault(key, sample)
        pods[key] += 1
        waiting[key] += entry.stage == "pending"
    chosen = sorted(samples, key=lambda key: (-pods[key], key))[:most]
    return [Frequent(samples[key], pods[key], waiting[key]) for key in chosen]


def _is_zonal(pod: Pod) -> bool:
    names = {name for each in pod.containers for name in (*each.requests, *each.limits)}
    return bool(zonal_demand(pod, tuple(sorted(names))))


class RoomOfNodes:
    """Counts pods on one node at a time, by the scheduler's settings."""

    def __init__(self, state: SchedulerState, cycle: CycleConfig) -> None:
        self._placing = ColumnarPlacing(msgspec.structs.replace(cycle, prediction="trust"))
        self._placing.learn(state.exclusions, state.cluster_objects, state.holds)

    def of(self, node: LedgerNode, pod: Pod) -> NodeRoom:
        """Return the room on the node for pods like this one."""
        placing, zones = self._placing, Counter[str]()
        placing.put_node(node)
        node_info = placing.node(node.name)
        assert node_info is not None
        at_best = most_at_best(node_info, placing.evaluator.pod_class(pod), placing.config)
        while isinstance(placed := self._select(pod, zones.total()), Placed):
            taken = {zone for each in placed.predicted.values() for zone in each}
            zones[",".join(map(str, sorted(taken))) or UNKNOWN_ZONES] += 1
            placing.assume(placed, numbered(pod, zones.total()))
        if at_best and not zones:
            placing.put_node(emptied(node))
            at_best *= isinstance(placing.select(pod), Placed)
        placing.drop_node(node.name)
        for number in range(zones.total()):
            placing.follow(numbered(pod, number + 1).uid, None)
        return NodeRoom(node.name, zones.total(), at_best, dict(sorted(zones.items())))

    def _select(self, pod: Pod, number: int) -> object:
        return self._placing.select(numbered(pod, number + 1))


def numbered(pod: Pod, number: int) -> Pod:
    """Return a pod like this one, with this number."""
    return msgspec.structs.replace(pod, uid=f"shape-{number}", name=f"shape-{number}")


def most_at_best(node_info: NodeInfo, pod_class: PodClass, config: CycleConfig) -> int:
    """Return how many pods of the class the guaranteed free amounts hold if zones do not matter."""
    plan = pod_class.plan(node_info.profile)
    zonal = plan.owned_request.amounts or peak(plan.demand)
    in_zones, wanted = node_info.guaranteed_totals(), pod_class.request
    counts = [node_info.free(name) // amount for name, amount in wanted.items()]
    counts += [in_zones.get(name, 0) // amount for name, amount in zonal.items() if amount]
    return max(0, min(counts))


def room(
    state: SchedulerState,
    cycle: CycleConfig,
    most_classes: int,
    quarantined: QuarantinedStreams | None = None,
    only: str = "",
) -> tuple[ClassRoom, ...]:
    """Return the room for each frequent class on every node, or on one."""
    quarantined = QuarantinedStreams() if quarantined is None else quarantined
    nodes = [
        state.ledger.nodes[name]
        for name in sorted(state.ledger.nodes)
        if usable(state, name, quarantined) and only in ("", name)
    ]
    counter, rooms = RoomOfNodes(state, cycle), list[ClassRoom]()
    for frequent in frequent_classes(state.ledger, most_classes):
        counted = [counter.of(node, frequent.pod) for node in nodes]
        rooms.append(class_room(frequent, counted))
    return tuple(rooms)


def class_room(frequent: Frequent, counted: list[NodeRoom]) -> ClassRoom:
    """Return the sum over nodes."""
    return ClassRoom(
        request_text(effective_request(frequent.pod)),
        frequent.pods,
        frequent.waiting,
        sum(node.fits for node in counted),
        sum(node.at_best for node in counted),
        tuple(node for node in counted if node.fits or node.at_best),
    )


async def fragmentation(
    log: EventLog, moment: str, cycle: CycleConfig, most_classes: int, node: str = ""
) -> Fragmentation:
    """Return the answer for a moment. Raises FilterError for a moment or node that the log does not
    have.
    """
    position = await position_of(log, moment, "--at", "--at head")
    state, quarantined = await followed_at(log, position)
    if node and node not in state.ledger.nodes:
        hint = did_you_mean(node, state.ledger.nodes)
        raise FilterError(f"no node {node!r} at position {position}{hint}", "--at head")
    time_us = (await log.read(position - 1, 1))[0].time_us
    classes = room(state, cycle, most_classes, quarantined, node)
    return Fragmentation(position, clock(time_us), classes)
