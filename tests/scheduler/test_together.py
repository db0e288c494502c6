"""The decisions of one batch are appended in as few calls as possible, and none without those it
depends on.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from services.scheduler.reserve.proposals import Proposal, in_order, together
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Appended, Commit, Draft
from shared.events import streams
from shared.events.cluster_events import PodRunning
from tests.fixtures.examples import examples

# A pod, and its node or "".
Decided = tuple[str, str]

decided = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "n1", "n2"])), max_size=8
)
others = st.lists(
    st.sampled_from([streams.pod("a"), streams.pod("b"), streams.node("n1"), streams.node("n2")]),
    max_size=5,
)


def proposals_of(made: list[Decided]) -> list[Proposal]:
    """Return proposals as they are decided on an empty log."""
    proposals = []
    for number, (uid, node) in enumerate(made):
        on = [streams.pod(uid), *([streams.node(node)] if node else [])]
        drafts = tuple(Draft(stream, PodRunning(uid, node), 0) for stream in on)
        proposals.append(Proposal(f"p{number}", drafts, uid, 0, uid, node))
    return in_order(proposals)


async def appended(log: MemoryEventLog, proposals: list[Proposal]) -> tuple[set[str], int]:
    """Append the proposals as the deciding loop does. Return the ids of appended commits, and the
    number of calls."""
    done, lost, calls = set[str](), set[str](), 0
    while proposals:
        sent, later = together(proposals)
        outcomes = await log.append(
            [Commit(each.commit_id, "r", 0, 1, each.drafts, follows=after) for each, after in sent]
        )
        calls += 1
        for (proposal, _), outcome in zip(sent, outcomes, strict=True):
            if isinstance(outcome, Appended):
                done.add(proposal.commit_id)
            else:
                lost |= proposal.chained
        proposals = [each for each in later if not each.chained & lost]
    return done, calls


@given(decided, others)
@settings(max_examples=examples(200), deadline=None)
async def test_nothing_is_appended_without_what_it_was_decided_on(
    made: list[Decided], moved: list[str]
) -> None:
    log, proposals = MemoryEventLog(), proposals_of(made)
    await log.append(
        [
            Commit(f"other {n}", "o", 0, 1, (Draft(stream, PodRunning("o", "")),))
            for n, stream in enumerate(moved)
        ]
    )
    done, _ = await appended(log, proposals)
    for index, proposal in enumerate(proposals):
        if proposal.commit_id in done:
            assert all(
                each.commit_id in done
                for each in proposals[:index]
                if each.chained & proposal.chained
            )
    if not moved:
        assert len(done) == len(proposals)


async def test_reservations_of_one_node_take_one_call() -> None:
    done, calls = await appended(MemoryEventLog(), proposals_of([(uid, "n1") for uid in "abcd"]))
    assert (len(done), calls) == (4, 1)
