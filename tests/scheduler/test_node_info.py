"""A NodeInfo that is updated from one state of the ledger to the next equals a fresh one."""

from __future__ import annotations

from hypothesis import given, settings

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.result import Placed
from shared.domain.report import Report
from shared.events import streams
from shared.events.cluster_events import NodeObserved, PodObserved
from shared.events.report_events import NodeReportChanged, NodeReported, NodeReportExpired
from shared.events.scheduling_events import NodeCharged, PodReserved
from shared.ledger.fold import evolve
from shared.ledger.state import Ledger, LedgerNode
from tests.fixtures.examples import examples
from tests.ledger.given import History, zone
from tests.ledger.test_properties import histories
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed
from tests.scheduler.cycle_worlds import zone as cycle_zone

CONFIG = CycleConfig(policy_precedence="label-first")


def as_if_new(node_info: NodeInfo, node: LedgerNode) -> None:
    node_info.update_from(node, CONFIG)
    fresh = NodeInfo("n1", 0)
    fresh.update_from(node, CONFIG)
    for name in ("profile", "rule", "pending", "unconfirmed", "machine", "grouped_zones"):
        assert getattr(node_info, name) == getattr(fresh, name), name


@given(histories())
@settings(max_examples=examples(100), deadline=None)
def test_node_info_updated_in_place_equals_a_fresh_one(history: History) -> None:
    ledger, node_info = Ledger(), NodeInfo("n1", 0)
    for envelope, event in history.told:
        evolve(ledger, envelope, event)
        if "n1" in ledger.nodes:
            as_if_new(node_info, ledger.nodes["n1"])


def test_each_thing_that_changes_the_profile_is_noticed() -> None:
    history, node_info = History(), NodeInfo("n1", 0)
    history.report(zone(0, 8), zone(1, 8))
    last_report = history.n1.report
    assert last_report is not None
    changes: list[dict[str, object]] = [
        {"policy": "restricted"},
        {"scope": "pod"},
        {"options": {"max-allowable-numa-nodes": "8"}},
        {"tracked": ("cpu",)},
        {"zones": (zone(0, 8), zone(0, 8))},
        {"zones": (zone(0, 8),)},
        {"zones": (zone(0, 8, gpus=1), zone(1, 8))},
    ]
    changed = [
        Report(**{name: getattr(last_report, name) for name in Report.__struct_fields__} | change)
        for change in changes
    ]
    profiles = set[object]()
    for report in (each for other in changed for each in (last_report, other)):
        history.tell(streams.report("n1"), NodeReported(report))
        as_if_new(node_info, history.n1)
        profiles.add(node_info.profile)
    history.tell(streams.report("n1"), NodeReported(last_report))
    for event in (
        NodeObserved("n1", "u1", labels={"node.koordinator.sh/numa-memory-policy": "none"}),
        NodeObserved("n1", "u1", labels={"node.koordinator.sh/numa-topology-policy": "BestEffort"}),
        NodeReportExpired("n1", 60),
        NodeReportChanged("n1", "boot-1", 9),
    ):
        stream = streams.node("n1") if isinstance(event, NodeObserved) else streams.report("n1")
        history.tell(stream, event)
        as_if_new(node_info, history.n1)
        profiles.add(node_info.profile)
    assert len(profiles) > len(changes)


def test_a_reservation_that_was_charged_otherwise_is_not_taken_over() -> None:
    cases: list[dict[str, tuple[int, ...]]] = [{}, {"c0": (0,)}]
    for narrowed in cases:
        world, pod = World(CONFIG), guaranteed("p", container("c0", amounts(2, 2)))
        world.node("n", *(cycle_zone(number, amounts(8, 8)) for number in range(2)))
        world.fold("pod/p", PodObserved(pod=pod))
        placed = world.cluster.place(pod)
        assert isinstance(placed, Placed)
        world.cluster.assume(placed, pod)
        world.fold("pod/p", PodReserved("p", "n", 1))
        charged = NodeCharged("n", "p", narrowed=narrowed)
        world.ledger_fold("node/n", charged)
        assert world.cluster.take_over(charged, world.ledger.nodes) is not bool(narrowed)
        node_info = world.cluster.node("n")
        assert node_info is not None
        assert node_info.is_current(world.ledger.nodes["n"]) is not bool(narrowed)
