"""Dirty marks and reconciliations are events, made after N failed filters in a row. Each is
appended once, however many schedulers run.
"""

from __future__ import annotations

import pytest

from shared.domain.pod import Pod
from shared.eventlog.port import Appended, Duplicate
from shared.kubelet.fingerprint import fingerprint
from tests.ledger.given import held, listed_empty, pod, zone
from tests.scheduler.default.story import Story

RESERVED = pod("a", cpus=6)


async def unproven(schedulers: int = 1, dirty_after: int = 3, placements: bool = True) -> Story:
    """Return a story in which n1, with two zones of 8 CPUs, has the unconfirmed charge of `a`, and
    refuses every other pod.
    """
    story = Story(schedulers, dirty_after)
    await story.node()
    await show(story, 1, placements, (), 8)
    await story.seen_bound(RESERVED)
    return story


async def show(
    story: Story, at: int, placements: bool, names: tuple[str, ...], free: int, free1: int = 8
) -> None:
    """Append a report of n1, with placements (the pod is listed and not admitted) or a fingerprint
    only.
    """
    zones = (zone(0, 8, free), zone(1, 8, free1))
    if placements:
        await story.report(*zones, at=at, placements=tuple(listed_empty(name) for name in names))
        return
    shown = fingerprint([("ns", name) for name in names])
    await story.report(*zones, at=at, placements=None, fingerprint=shown, fingerprint_method="all")


def refused(number: int) -> Pod:
    """Return a pod that fits nowhere, with its own pod class."""
    return pod(f"r{number}", cpus=9 + number)


async def refuse(story: Story, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        await story.arrives(refused(number))
        await story.decide()


@pytest.mark.parametrize("threshold", [1, 2, 3, 5])
async def test_a_node_is_marked_after_so_many_rejections_and_not_before(threshold: int) -> None:
    story = await unproven(dirty_after=threshold)
    await refuse(story, threshold - 1)
    await story.decide()
    assert await story.marks() == []
    await refuse(story, 1, first=threshold)
    await story.decide()
    assert [(mark.node, mark.rejections) for mark in await story.marks()] == [("n1", threshold)]


async def test_an_accepted_pod_ends_the_run_of_rejections() -> None:
    story = await unproven()
    await refuse(story, 2)
    await story.arrives(pod("fits", cpus=1))
    await story.decide()
    await refuse(story, 2, first=2)
    await story.decide()
    assert await story.marks() == []


async def test_a_node_whose_pods_are_all_proven_is_never_marked() -> None:
    story = await unproven()
    await story.report(zone(0, 8, 2), zone(1, 8), at=2, placements=(held("a", 0, 6),))
    await refuse(story, 5)
    await story.decide()
    assert await story.marks() == []


async def test_two_schedulers_append_one_mark_and_the_second_hears_so() -> None:
    story = await unproven(schedulers=2)
    for number in range(3):
        await story.arrives(refused(number))
    both = []
    for core in story.cores:
        core.decide(10)
        both.append([p for p in core.decide(0) if p.commit_id.startswith("dirty/")])
    assert [len(found) for found in both] == [1, 1]
    assert both[0][0].commit_id == both[1][0].commit_id
    first = await story.append(story.cores[0], both[0])
    second = await story.append(story.cores[1], both[1])
    assert isinstance(first[0], Appended)
    assert isinstance(second[0], Duplicate)
    assert len(await story.marks()) == 1


async def dirty(schedulers: int = 1, placements: bool = True) -> Story:
    """Return a story in which the node is marked dirty."""
    story = await unproven(schedulers, 1, placements)
    await refuse(story, 1)
    await story.decide()
    assert len(await story.marks()) == 1
    return story


async def test_a_dirty_node_is_reconciled_by_proof_when_its_report_proves_every_pod() -> None:
    story = await dirty()
    await story.report(zone(0, 8, 2), zone(1, 8), at=2, placements=(held("a", 0, 6),))
    await story.decide()
    assert [(event.node, event.method) for event in await story.reconciliations()] == [
        ("n1", "proof")
    ]
    assert story.ledger_node().dirty == ""


async def test_a_listing_before_the_admission_reconciles_nothing() -> None:
    story = await dirty()
    await show(story, 2, True, ("a",), 8)
    await story.decide()
    assert await story.reconciliations() == []
    assert story.ledger_node().dirty == "rejections"
    assert (story.ledger_node().free_min[0]["cpu"], story.ledger_node().free_min[1]["cpu"]) == (
        2000,
        2000,
    )


async def test_a_dirty_node_is_reconciled_by_fingerprint_at_the_position_that_agrees() -> None:
    story = await dirty(placements=False)
    charged_at = story.ledger_node().charges["uid-a"].charged_at
    await show(story, 2, False, ("a",), 2)
    await story.decide()
    events = await story.reconciliations()
    assert [(event.method, event.settled_to, event.report_version) for event in events] == [
        ("fingerprint", charged_at, 2)
    ]
    assert (story.ledger_node().free_min[0]["cpu"], story.ledger_node().free_min[1]["cpu"]) == (
        2000,
        8000,
    )


async def test_an_agreeing_fingerprint_with_too_little_in_use_reconciles_nothing() -> None:
    story = await dirty(placements=False)
    await show(story, 2, False, ("a",), 8)
    await story.decide()
    assert await story.reconciliations() == []


async def test_a_charge_made_after_the_matched_position_stays() -> None:
    story = await dirty(placements=False)
    await story.seen_bound(pod("b", cpus=1))
    await show(story, 2, False, ("a",), 2)
    await story.decide()
    node = story.ledger_node()
    assert len(await story.reconciliations()) == 1
    assert node.charges["uid-a"].confirmed
    assert not node.charges["uid-b"].confirmed
    assert (node.free_min[0]["cpu"], node.free_min[1]["cpu"]) == (1000, 7000)


async def test_an_emptied_dirty_node_is_reconciled() -> None:
    story = await dirty()
    await story.ends(RESERVED)
    await story.report(zone(0, 8), zone(1, 8), at=2)
    await story.decide()
    assert [event.method for event in await story.reconciliations()] == ["empty"]


async def test_two_schedulers_append_one_reconciliation() -> None:
    story = await dirty(schedulers=2, placements=False)
    await show(story, 2, False, ("a",), 2)
    both = [
        [p for p in core.decide(0) if p.commit_id.startswith("reconciled/")] for core in story.cores
    ]
    assert [len(found) for found in both] == [1, 1]
    await story.append(story.cores[0], both[0])
    outcome = (await story.append(story.cores[1], both[1]))[0]
    assert isinstance(outcome, Duplicate)
    assert len(await story.reconciliations()) == 1


async def test_a_mark_that_outlives_its_comparison_is_lifted_when_the_last_unsettled_pod_ends() -> (
    None
):
    """The same report at the same mark is compared twice: `b` came after the matched position, so
    that the mark stayed.
    """
    story = await dirty(placements=False)
    late = pod("b", cpus=1)
    await story.seen_bound(late)
    await show(story, 2, False, ("a",), 2)
    await story.decide()
    assert story.ledger_node().dirty == "rejections"
    await story.ends(late)
    await story.decide()
    assert [event.report_version for event in await story.reconciliations()] == [2, 2]
    assert story.ledger_node().dirty == ""


async def test_a_second_report_of_a_clean_node_is_no_reconciliation() -> None:
    story = await dirty()
    for version in (2, 3, 4):
        await story.report(zone(0, 8, 2), zone(1, 8), at=version, placements=(held("a", 0, 6),))
        await story.decide()
    assert len(await story.reconciliations()) == 1


class TestNobodyIsForgottenOnTheFingerprintPath:
    """Without placements only a comparison makes a newer report count, and only a dirty node is
    compared: one pod that waits must be enough to have it compared, also when the node ran empty
    (upstream's R9) and when the first comparison settled little."""

    async def wait_until_idle(self, story: Story) -> dict[str, str]:
        """Decide again and again while nothing else happens, and return the reservations."""
        reserved: dict[str, str] = {}
        for _ in range(5):
            reserved |= await story.decide()
        return reserved

    async def test_one_waiting_pod_is_bound_once_the_pods_before_it_have_ended(self) -> None:
        story = await unproven(placements=False)
        await show(story, 2, False, ("a",), 2)
        await refuse(story, 3, first=10)
        await self.wait_until_idle(story)
        assert story.ledger_node().charges["uid-a"].confirmed
        large = pod("large", cpus=8)
        await story.arrives(pod("other", cpus=8), large)
        assert await self.wait_until_idle(story) == {"uid-other": "n1"}
        await story.ends(RESERVED)
        assert await self.wait_until_idle(story) == {}
        await show(story, 3, False, ("other",), 8, 0)
        assert await self.wait_until_idle(story) == {"uid-large": "n1"}

    async def test_a_node_that_ran_empty_is_compared_for_a_single_waiting_pod(self) -> None:
        story = await dirty(placements=False)
        await show(story, 2, False, ("a",), 2)
        await story.decide()
        await story.arrives(pod("b", cpus=8), pod("c", cpus=8))
        assert await self.wait_until_idle(story) == {"uid-b": "n1"}
        await story.ends(RESERVED)
        await story.ends(pod("b"))
        await show(story, 3, False, (), 8)
        assert await self.wait_until_idle(story) == {"uid-c": "n1"}

    async def test_a_node_stays_dirty_while_a_later_charge_is_unsettled(self) -> None:
        story = await dirty(placements=False)
        await story.seen_bound(pod("b", cpus=1))
        await show(story, 2, False, ("a",), 2)
        await story.decide()
        assert story.ledger_node().dirty == "rejections"
        await show(story, 3, False, ("a", "b"), 1)
        await story.decide()
        assert [event.report_version for event in await story.reconciliations()] == [2, 3]
        assert story.ledger_node().dirty == ""
        assert (story.ledger_node().free_min[0]["cpu"], story.ledger_node().free_min[1]["cpu"]) == (
            1000,
            8000,
        )


async def test_dirty_nodes_and_comparisons_are_counted_a_report_once() -> None:
    story = await dirty(placements=False)
    marks = story.cores[0].marks
    await show(story, 2, False, ("stranger",), 8)
    await story.decide()
    await story.decide()
    assert marks.dirty == {"n1"}
    assert marks.comparisons["mismatch"] == 2, "the report that marked it, and the newer one"
    await show(story, 3, False, ("a",), 2)
    await story.decide()
    await story.decide()
    assert marks.comparisons["fingerprint"] == 1
    assert marks.dirty == set()
