"""Questions start at the nearest snapshot, and answer the same as without one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.replay import reading
from services.replay.deciding_state import followed_at
from services.replay.explain import explain
from services.replay.nearest import nearest_state
from services.replay.why_not import why_not
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.state import state
from services.scheduler.state.state import PROJECTION, snapshot_key
from shared.eventlog.port import Place
from shared.eventlog.snapshots import KEPT_SNAPSHOT_BYTES, KEPT_SNAPSHOTS, seal, superseded
from shared.events.quarantine import QuarantinedStreams
from shared.kubelet.fingerprint import container_hash, fingerprint
from tests.ledger.given import container, held, pod, zone
from tests.replay.whole_state import whole_state
from tests.scheduler.default.story import Story


async def busy(story: Story) -> int:
    """Append two nodes, a running pod and a pod that no node takes. Return the head."""
    await story.node("n1")
    await story.report(zone(0, 8), zone(1, 8), node="n1")
    await story.node("n2")
    await story.report(zone(0, 4), zone(1, 4), node="n2")
    await story.arrives(pod("small", container("c", 2)), pod("large", container("c", 12)))
    await story.decide()
    await story.report(
        zone(0, 4, free=2), zone(1, 4), node="n2", placements=(held("small", 0, 2),), at=2
    )
    await story.decide()
    return await story.log.head()


async def save(story: Story, position: int) -> None:
    folded, _ = await followed_at(story.log, position)
    page = await story.log.read(position - 1, 1)
    sealed = seal(state.dump(folded))
    place = Place(position, page[0].chain)
    await story.log.save_snapshot(PROJECTION, snapshot_key(), place, sealed)


async def test_answers_do_not_depend_on_snapshots() -> None:
    story = Story()
    head = await busy(story)
    positions = range(1, head + 1)
    plain = [await whole_state(story.log, str(position), "") for position in positions]
    refused = await why_not(story.log, "large", "n1", "", CycleConfig())
    answers = [await explain(story.log, name) for name in ("small", "large")]
    for position in positions:
        await save(story, position)
    for position in positions:
        skips = QuarantinedStreams()
        assert (await nearest_state(story.log, position, skips)).ledger.position == position
    assert [await whole_state(story.log, str(position), "") for position in positions] == plain
    assert await why_not(story.log, "large", "n1", "", CycleConfig()) == refused
    assert [await explain(story.log, name) for name in ("small", "large")] == answers


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_match_of_all_pods_of_a_node_confirms_each_in_its_story(snapshot: bool) -> None:
    """As RTE 0.25 reports: zones by container hash, and a fingerprint of the names."""
    story = Story()
    await story.node("n1")
    await story.report(zone(0, 8), zone(1, 8), **rte({}))
    if snapshot:
        await save(story, await story.log.head())
    await story.arrives(pod("a", container("c", 6)), pod("b", container("c", 4)))
    await story.decide()
    zones = {"a": 0, "b": 1}
    await story.report(zone(0, 8, free=2), zone(1, 8, free=4), at=2, **rte(zones))
    for name, number in zones.items():
        (story_lines,) = await explain(story.log, name)
        assert story_lines.zones["confirmed"] == {"c": (number,)}


def rte(zones: dict[str, int]) -> dict[str, Any]:
    by_hash = {container_hash("ns", name, "c"): number for name, number in zones.items()}
    return {
        "placements": None,
        "fingerprint": fingerprint([("ns", name) for name in zones]),
        "fingerprint_method": "with-exclusive-resources",
        "container_zones": tuple(by_hash[key] for key in sorted(by_hash)),
    }


@pytest.mark.parametrize("damaged", [b"", b"TPLS1 nonsense", seal(b"{}x")])
async def test_a_damaged_snapshot_is_not_used(damaged: bytes) -> None:
    story = Story()
    head = await busy(story)
    plain = await whole_state(story.log, "head", "")
    page = await story.log.read(head - 1, 1)
    place = Place(head, page[0].chain)
    await story.log.save_snapshot(PROJECTION, snapshot_key(), place, damaged)
    assert await whole_state(story.log, "head", "") == plain


async def test_a_snapshot_from_before_a_skip_is_not_used() -> None:
    story = Story()
    head = await busy(story)
    await save(story, head)
    skips = QuarantinedStreams({head: head + 1})
    assert (await nearest_state(story.log, head, skips)).ledger.position == 0


async def test_a_fold_from_a_snapshot_reads_only_what_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story()
    head = await busy(story)
    await save(story, head - 1)
    starts: list[int] = []
    envelopes = reading.envelopes

    def noted(log: object, after: int = 0, until: int | None = None) -> object:
        starts.append(after)
        return envelopes(log, after, until)  # type: ignore[arg-type]

    monkeypatch.setattr(reading, "envelopes", noted)
    assert (await reading.ledger_at(story.log)).position == head
    assert starts == [head - 1]


def test_snapshots_of_a_long_log_cover_its_past() -> None:
    kept: list[tuple[int, int]] = []
    for position in range(50_000, 50_000_000, 50_000):
        kept = [(position, 1 << 20), *kept]
        deleted = superseded(kept)
        kept = [snapshot for snapshot in kept if snapshot[0] not in deleted]
        assert kept[0][0] == position
        assert len(kept) <= KEPT_SNAPSHOTS
    assert kept[1][0] == position - 50_000
    assert kept[-1][0] < position * 2 // 3


def test_checkpoints_of_events_in_rows_lie_close_and_older_ones_apart() -> None:
    kept: list[tuple[int, int]] = []
    in_rows, newest = 20_000_000, 40_000_000
    for position in range(50_000, newest + 1, 50_000):
        kept = [(position, 1 << 20), *kept]
        deleted = superseded(kept, max(0, position - in_rows))
        kept = [snapshot for snapshot in kept if snapshot[0] not in deleted]
    dense = [position for position, _ in kept if position > newest - in_rows]
    assert dense == list(range(newest, newest - in_rows, -50_000))
    assert 32 < len(kept) - len(dense) <= KEPT_SNAPSHOTS


@given(st.lists(st.integers(1, 8), min_size=1, max_size=30), st.integers(0, 30))
def test_dense_checkpoints_keep_to_their_bytes(sizes: list[int], edge: int) -> None:
    unit = KEPT_SNAPSHOT_BYTES // 16
    kept = [(position, size * unit) for position, size in enumerate(sizes, 1)][::-1]
    deleted = set(superseded(kept, edge))
    staying = [snapshot for snapshot in kept if snapshot[0] not in deleted]
    assert staying[0] == kept[0]
    for is_dense in (True, False):
        part = [size for position, size in staying[1:] if (position > edge) == is_dense]
        assert sum(part) <= KEPT_SNAPSHOT_BYTES
    if sum(size for _, size in kept[1:]) <= KEPT_SNAPSHOT_BYTES:
        assert not deleted


def test_large_snapshots_give_way_and_the_newest_stays() -> None:
    size = KEPT_SNAPSHOT_BYTES // 2 + 1
    assert superseded([(4, size), (3, size), (2, size)]) in ([3], [2])
    assert superseded([(4, 3 * size)]) == []
