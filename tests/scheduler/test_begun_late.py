"""A core that only folds the ledger until its first decision decides from then on as a core that
followed every event.
"""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import msgspec
from hypothesis import given, settings

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.reserve.proposals import Proposal
from services.scheduler.state import state as scheduler_state
from shared.eventlog.port import Draft
from shared.events import streams
from shared.events.binding_events import BindRefused
from shared.events.catalog import Event
from shared.events.cluster_events import NodeEnded, NodeObserved, PodEnded, PodObserved, PodRunning
from shared.events.codec import encode, type_of
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import NodeCharged, NodeMarkedDirty, PodNominated, PodReserved
from tests.fixtures.examples import examples
from tests.ledger.given import pod, report, zone

NODES, PODS = ("n1", "n2", "n3"), tuple(f"uid-{name}" for name in "abcdef")
Told = tuple[str, Event]


def told(core: SchedulerCore, events: Sequence[Told]) -> None:
    for stream, event in events:
        position, version = core.ledger.position + 1, core.versions.get(stream, 0) + 1
        envelope = Envelope(
            position, stream, version, type_of(event), 1, encode(event), 0, "test", 0, str(position)
        )
        core.evolve(envelope, event)


@st.composite
def stories(draw: st.DrawFn) -> list[Told]:
    """Nodes with reports, pods at every stage of their life; the events of a pod may come in any
    order.
    """
    events: list[Told] = []
    for _ in range(draw(st.integers(3, 25))):
        node, uid = draw(st.sampled_from(NODES)), draw(st.sampled_from(PODS))
        events += draw(
            st.sampled_from(
                [_node, _node, _report, _arrives, _arrives, _reserved, _reserved, _later]
            )
        )(draw, node, uid)
    return events


def _node(draw: st.DrawFn, node: str, uid: str) -> list[Told]:
    if draw(st.integers(0, 4)) == 0:
        return [(streams.node(node), NodeEnded(node, f"uid-{node}", "deleted"))]
    ready = draw(st.integers(0, 4)) > 0
    return [
        (
            streams.node(node),
            NodeObserved(node, f"uid-{node}", allocatable={"cpu": 32_000, "pods": 9}, ready=ready),
        )
    ]


def _report(draw: st.DrawFn, node: str, uid: str) -> list[Told]:
    zones = [zone(each, 8, draw(st.integers(0, 8))) for each in range(2)]
    placements = () if draw(st.booleans()) else None
    made = report(
        *zones,
        placements=placements,
        fingerprint="" if placements == () else "pfp0v001fe53c4dbd2c5f4a0",
    )
    return [(streams.report(node), NodeReported(msgspec.structs.replace(made, node=node)))]


def _arrives(draw: st.DrawFn, node: str, uid: str) -> list[Told]:
    made = pod(uid[4:], cpus=draw(st.integers(1, 9)), priority=draw(st.integers(0, 2)))
    seen: Told = streams.pod(uid), PodObserved(made, terminating=draw(st.integers(0, 5)) == 0)
    nominated: Told = streams.pod(uid), PodNominated(uid, node, zones={0: {"cpu": 1000}})
    return [seen, nominated] if draw(st.integers(0, 5)) == 0 else [seen]


def _reserved(draw: st.DrawFn, node: str, uid: str) -> list[Told]:
    return [
        (streams.pod(uid), PodReserved(uid, node)),
        (streams.node(node), NodeCharged(node, uid)),
    ]


def _later(draw: st.DrawFn, node: str, uid: str) -> list[Told]:
    end = PodEnded(uid, "rejected", node, reason="TopologyAffinityError")
    events: list[Told] = [
        (streams.pod(uid), PodRunning(uid, node)),
        (streams.pod(uid), end),
        (streams.pod(uid), PodEnded(uid, "succeeded", node)),
        (
            streams.pod(uid),
            BindRefused(uid, node, draw(st.sampled_from(["gone", "forbidden", "denied"])), "said"),
        ),
        (streams.node(node), NodeMarkedDirty(node, "rejections", 3)),
    ]
    return [draw(st.sampled_from(events))]


def decided(core: SchedulerCore) -> list[Proposal]:
    """Return the state without the demand weights, because their changes are counted from the first
    look on.
    """
    return [each for each in core.decide(4) if each.correlation != streams.DEMAND]


def drafted(proposals: Sequence[Proposal]) -> list[Told]:
    drafts: list[Draft] = [draft for proposal in proposals for draft in proposal.drafts]
    return [(draft.stream, draft.event) for draft in drafts]


@given(
    stories(),
    stories(),
    st.sets(st.sampled_from([streams.node("n1"), streams.report("n2"), streams.pod("uid-a")])),
)
@settings(max_examples=examples(150), deadline=None)
def test_a_core_that_begins_late_decides_as_one_that_followed_every_event(
    before: list[Told], after: list[Told], aside: set[str]
) -> None:
    early, late = SchedulerCore(CoreConfig()), SchedulerCore(CoreConfig(), begun=False)
    for core in (early, late):
        told(core, before)
        for stream in sorted(aside):
            core.set_aside(stream)
    for more in ([], after, [], []):
        told(early, more)
        told(late, more)
        proposals = decided(early)
        assert decided(late) == proposals
        assert scheduler_state.dump(early.folded) == scheduler_state.dump(late.folded)
        told(early, drafted(proposals))
        told(late, drafted(proposals))
