"""What a node's facts keep from one state of the ledger to the next is what they would be if made
anew.
"""

from __future__ import annotations

from hypothesis import given, settings

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeFacts
from shared.domain.report import Report
from shared.events import streams
from shared.events.cluster_events import NodeObserved
from shared.events.report_events import NodeReportChanged, NodeReported, NodeReportExpired
from shared.ledger.fold import evolve
from shared.ledger.state import Ledger, LedgerNode
from tests.fixtures.examples import examples
from tests.ledger.given import History, zone
from tests.ledger.test_properties import histories

CONFIG = CycleConfig(policy_precedence="label-first")


def as_if_new(facts: NodeFacts, node: LedgerNode) -> None:
    facts.take_in(node, CONFIG)
    fresh = NodeFacts("n1", 0)
    fresh.take_in(node, CONFIG)
    for name in ("profile", "rule", "arriving", "unsettled", "make", "tied"):
        assert getattr(facts, name) == getattr(fresh, name), name


@given(histories())
@settings(max_examples=examples(100), deadline=None)
def test_facts_that_take_in_each_state_are_those_made_anew(history: History) -> None:
    ledger, facts = Ledger(), NodeFacts("n1", 0)
    for envelope, fact in history.told:
        evolve(ledger, envelope, fact)
        if "n1" in ledger.nodes:
            as_if_new(facts, ledger.nodes["n1"])


def test_each_thing_that_changes_the_profile_is_noticed() -> None:
    history, facts = History(), NodeFacts("n1", 0)
    history.report(zone(0, 8), zone(1, 8))
    told = history.n1.report
    assert told is not None
    changes: list[dict[str, object]] = [
        {"policy": "restricted"}, {"scope": "pod"}, {"options": {"max-allowable-numa-nodes": "8"}}, {"tracked": ("cpu",)},
        {"zones": (zone(0, 8), zone(0, 8))}, {"zones": (zone(0, 8),)}, {"zones": (zone(0, 8, gpus=1), zone(1, 8))},
    ]  # fmt: skip
    changed = [
        Report(**{name: getattr(told, name) for name in Report.__struct_fields__} | change)
        for change in changes
    ]
    profiles = set[object]()
    for report in (each for other in changed for each in (told, other)):
        history.tell(streams.report("n1"), NodeReported(report))
        as_if_new(facts, history.n1)
        profiles.add(facts.profile)
    history.tell(streams.report("n1"), NodeReported(told))
    for fact in (
        NodeObserved("n1", "u1", labels={"node.koordinator.sh/numa-memory-policy": "none"}),
        NodeObserved("n1", "u1", labels={"node.koordinator.sh/numa-topology-policy": "BestEffort"}),
        NodeReportExpired("n1", 60),
        NodeReportChanged("n1", "boot-1", 9),
    ):
        stream = streams.node("n1") if isinstance(fact, NodeObserved) else streams.report("n1")
        history.tell(stream, fact)
        as_if_new(facts, history.n1)
        profiles.add(facts.profile)
    assert len(profiles) > len(changes)
