"""Pods that a cell lets go: only pods by hash that waited for long enough, and gangs as a whole."""

from __future__ import annotations

from typing import Any

from services.scheduler.filter.pod_manifest import read_pod
from services.scheduler.state import state as scheduler_state
from services.scheduler.state.state import SchedulerState
from services.scheduler.watch.cell_pods import MOST_AT_ONCE, CellPods
from shared.domain.cells import HOPS, WANTED, Cell, Cells
from shared.domain.gang import KOORDINATOR_MIN, KOORDINATOR_NAME
from shared.events import streams
from shared.events.binding_events import PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.envelope import Envelope
from shared.events.scheduling_events import PodNominated, PodVerdictChanged

WAIT_S = 100.0


class Waiting:
    """A log's state, and the pods that its observer sees."""

    def __init__(self) -> None:
        self.state = SchedulerState()
        self.cells = Cells("a", (Cell("a"), Cell("b")), WAIT_S)
        self.pods = CellPods(self.cells, ("topolog",))

    def fold(self, event: Event) -> None:
        stream, position = streams.pod(event.about.pod), self.state.ledger.position + 1
        version = self.state.versions.get(stream, 0) + 1
        name = type(event).__name__
        envelope = Envelope(position, stream, version, name, 1, b"", 0, "test", 0, str(position))
        scheduler_state.evolve(self.state, envelope, event)

    def pod(
        self, uid: str, hops: int = 0, gang: str = "", refused: bool = True, cell: str = ""
    ) -> None:
        """Show a pod of this cell to observer and log."""
        annotations: dict[str, Any] = {HOPS: str(hops)}
        if gang:
            annotations |= {KOORDINATOR_NAME: gang, KOORDINATOR_MIN: "2"}
        obj = {
            "metadata": {
                "name": uid, "namespace": "d", "uid": uid, "resourceVersion": "1",
                "labels": {WANTED: cell} if cell else {}, "annotations": annotations,
            },
            "spec": {"schedulerName": "topolog", "containers": [{"name": "c", "image": "i"}]},
        }  # fmt: skip
        self.pods.note(obj)
        self.fold(PodObserved(read_pod(obj)[0]))
        if refused:
            self.fold(PodVerdictChanged(uid, "no room"))

    def let_go(self, now_s: float) -> list[list[tuple[str, int]]]:
        """Return uid and hops of what is let go together."""
        ends = self.pods.to_let_go(self.state, now_s)
        return [[(d.event.uid, d.event.hops) for d in drafts] for drafts in ends]  # type: ignore[union-attr]


def own_uids(count: int, hops: int = 0) -> list[str]:
    """Return uids of pods that the hash gives to cell a after so many hops."""
    cells, uids = Cells("a", (Cell("a"), Cell("b"))), list[str]()
    for number in range(1000):
        metadata = {"uid": f"u{number}", "annotations": {HOPS: str(hops)}}
        if cells.route({"metadata": metadata}).cell == "a" and len(uids) < count:
            uids.append(f"u{number}")
    return uids


def test_a_pod_waits_for_its_time_which_doubles_with_each_round() -> None:
    waiting, (uid,), (later,) = Waiting(), own_uids(1), own_uids(2, 2)[1:]
    waiting.pod(uid)
    waiting.pod(later, hops=2)
    assert waiting.let_go(0.0) == []
    assert waiting.let_go(99.0) == []
    assert waiting.let_go(105.0) == [[(uid, 1)]]
    waiting.fold(PodEnded(uid, "moved", hops=1))
    waiting.pods.seen.pop(uid)  # as the watch shows
    assert waiting.let_go(195.0) == []
    assert waiting.let_go(200.0) == [[(later, 3)]]


def test_pods_stay_that_name_a_cell_or_may_get_a_node() -> None:
    waiting, uids = Waiting(), own_uids(4)
    waiting.pod(uids[0], cell="a")
    waiting.pod(uids[1], refused=False)
    waiting.pod(uids[2])
    waiting.fold(PodNominated(uids[2], "n1"))
    waiting.pod(uids[3])
    waiting.let_go(0.0)
    assert waiting.let_go(1000.0) == [[(uids[3], 1)]]


def test_a_pod_that_gets_a_node_for_a_while_waits_again() -> None:
    waiting, (uid,) = Waiting(), own_uids(1)
    waiting.pod(uid)
    waiting.let_go(0.0)
    waiting.state.ledger.pods[uid].verdict = ""
    waiting.let_go(50.0)
    waiting.state.ledger.pods[uid].verdict = "no room"
    assert waiting.let_go(100.0) == waiting.let_go(199.0) == []
    assert waiting.let_go(205.0) == [[(uid, 1)]]


def gang_of_a(waiting: Waiting) -> str:
    """Return a gang that the hash gives to cell a."""
    for number in range(1000):
        keys = {KOORDINATOR_NAME: f"g{number}", KOORDINATOR_MIN: "2"}
        manifest = {"metadata": {"uid": "u", "namespace": "d", "annotations": keys}}
        if waiting.cells.route(manifest).cell == "a":
            return f"g{number}"
    raise AssertionError


def test_a_gang_goes_as_a_whole() -> None:
    waiting = Waiting()
    gang = gang_of_a(waiting)
    waiting.pod("p", hops=0, gang=gang)
    waiting.pod("q", hops=2, gang=gang)
    waiting.let_go(0.0)
    assert waiting.let_go(105.0) == [[("p", 3), ("q", 3)]]


def test_a_gang_stays_if_one_of_its_pods_must() -> None:
    for event in (PodBound("q", "n1"), PodNominated("q", "n1"), None):
        waiting = Waiting()
        gang = gang_of_a(waiting)
        waiting.pod("p", gang=gang)
        waiting.pod("q", gang=gang)
        waiting.let_go(0.0)
        if event is not None:
            waiting.fold(event)
        else:
            waiting.pods.seen.pop("q")
        assert waiting.let_go(1000.0) == []


def test_only_some_go_at_once_and_the_next_once_these_have_gone() -> None:
    waiting, uids = Waiting(), own_uids(MOST_AT_ONCE + 10)
    for uid in uids:
        waiting.pod(uid)
    waiting.let_go(0.0)
    gone = [uid for ((uid, _hops),) in waiting.let_go(105.0)]
    assert len(gone) == MOST_AT_ONCE
    for uid in gone:
        waiting.fold(PodEnded(uid, "moved", hops=1))
    assert waiting.let_go(110.0) == []
    patches = waiting.pods.to_pass_on(waiting.state)
    assert sorted(patches) == sorted(gone)
    assert patches[gone[0]]["metadata"]["annotations"] == {HOPS: "1"}
    for uid in gone:
        waiting.pods.seen.pop(uid)
    assert len(waiting.let_go(110.0)) == 10


def test_zero_seconds_let_no_pod_go() -> None:
    waiting, (uid,) = Waiting(), own_uids(1)
    waiting.pods = CellPods(Cells("a", waiting.cells.all, 0.0), ("topolog",))
    waiting.pod(uid)
    waiting.let_go(0.0)
    assert waiting.let_go(1e9) == []
