"""The order of decisions, and woken pods: priority, then arrival; one pod of a class at a time."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.queue.queue import AT_MOST, EVERY_S, FAIR_FROM, Queue, UnschedulableFlush
from shared.domain.pod import Pod
from tests.ledger.given import pod


def made(name: str, priority: int = 0, cpus: int = 1) -> Pod:
    return msgspec.structs.replace(pod(name, cpus=cpus), priority=priority)


def queue() -> Queue:
    return Queue(lambda waiting: str(waiting.containers[0].requests["cpu"]))


def names(waiting: Queue) -> list[str]:
    order = []
    while popped := waiting.pop():
        order.append(popped[0].name)
    return order


def test_higher_priority_goes_first_then_the_older_pod() -> None:
    waiting = queue()
    for arrival, (name, priority) in enumerate(
        (("low", 0), ("high", 9), ("later", 0), ("high-later", 9))
    ):
        waiting.add(made(name, priority), arrival)
    assert names(waiting) == ["high", "high-later", "low", "later"]


def test_a_pod_that_was_removed_or_replaced_does_not_come_up_again() -> None:
    waiting = queue()
    waiting.add(made("gone"), 1)
    waiting.add(made("changed"), 2)
    waiting.add(made("changed", priority=5), 3)
    waiting.remove("uid-gone")
    assert names(waiting) == ["changed"]
    assert len(waiting) == 0


def test_of_each_waiting_shape_one_pod_is_woken_the_highest_then_the_first() -> None:
    waiting = queue()
    for arrival, (name, priority, cpus) in enumerate(
        (("a", 0, 1), ("b", 7, 1), ("c", 7, 1), ("d", 0, 2))
    ):
        waiting.park(made(name, priority, cpus), arrival)
    assert sorted(waiting.waiting_classes()) == ["1000", "2000"]
    assert waiting.wake_one("1000")
    assert names(waiting) == ["b"]
    assert waiting.waiting_count() == 3
    assert not waiting.wake_one("9000")


def test_a_pod_keeps_its_arrival_over_parking_and_waking() -> None:
    waiting = queue()
    waiting.park(made("early"), 1)
    waiting.add(made("late"), 2)
    waiting.wake_all()
    assert names(waiting) == ["early", "late"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "remove", "park", "pop", "wake"]),
            st.integers(0, 4),
            st.integers(0, 2),
        ),
        max_size=40,
    )
)
def test_the_queue_equals_a_plain_list(steps: list[tuple[str, int, int]]) -> None:
    """The plain list is two dictionaries and a sort."""
    waiting, ready, parked = queue(), dict[str, tuple[int, int]](), dict[str, tuple[int, int]]()
    for arrival, (step, number, priority) in enumerate(steps):
        queued = made(f"p{number}", priority)
        if step == "add":
            parked.pop(queued.uid, None)
            ready[queued.uid] = (-priority, arrival)
            waiting.add(queued, arrival)
        elif step == "remove":
            ready.pop(queued.uid, None)
            parked.pop(queued.uid, None)
            waiting.remove(queued.uid)
        elif step == "park" and queued.uid not in ready and queued.uid not in parked:
            parked[queued.uid] = (-priority, arrival)
            waiting.park(queued, arrival)
        elif step == "pop":
            first = min(ready, key=lambda uid: ready[uid], default=None)
            popped = waiting.pop()
            assert (popped[0].uid if popped else None) == first
            if first:
                del ready[first]
        elif step == "wake" and waiting.wake_one("1000"):
            uid = min(parked, key=lambda uid: parked[uid])
            ready[uid] = parked.pop(uid)
        assert (waiting.ready_count(), waiting.waiting_count(), len(waiting)) == (
            len(ready),
            len(parked),
            len(ready) + len(parked),
        )


def test_waiting_pods_are_flushed_after_a_while_a_few_at_a_time_once_a_round() -> None:
    waiting, again, seen = queue(), UnschedulableFlush(), []
    for arrival in range(AT_MOST + 2):
        waiting.park(made(f"p{arrival}", cpus=1 + arrival % 2), arrival)
    for now_s in (
        0.0,
        EVERY_S / 2,
        EVERY_S,
        EVERY_S + 0.5,
        EVERY_S + 1,
        EVERY_S + 2,
        2 * EVERY_S - 1,
    ):
        again.turn(waiting, now_s)
        seen.append(waiting.ready_count())
        while popped := waiting.pop():
            waiting.park(*popped)
    assert seen == [0, 0, AT_MOST, 0, 2, 0, 0]
    again.turn(waiting, 2 * EVERY_S)
    assert waiting.ready_count() == AT_MOST


def test_ready_pods_come_before_flushed_pods() -> None:
    waiting, again = queue(), UnschedulableFlush()
    waiting.park(made("waits"), 1)
    again.turn(waiting, 0.0)
    waiting.add(made("new"), 2)
    again.turn(waiting, EVERY_S)
    assert names(waiting) == ["new"]
    again.turn(waiting, EVERY_S)
    assert names(waiting) == ["waits"]


def test_a_pod_that_was_placed_since_the_round_began_is_passed_over() -> None:
    waiting, again = queue(), UnschedulableFlush()
    again.turn(waiting, 0.0)
    for arrival in range(2 * AT_MOST):
        waiting.park(made(f"p{arrival}"), arrival)
    again.turn(waiting, EVERY_S)
    for arrival in range(2 * AT_MOST):
        waiting.remove(f"uid-p{arrival}")
    again.turn(waiting, EVERY_S + 1)
    assert names(waiting) == []


def flood(waiting: Queue, count: int, namespace: str = "flood", cpus: int = 0) -> None:
    """Return this many pods, all of one pod class if `cpus` is given."""
    for number in range(count):
        queued = made(f"{namespace}{number}", cpus=cpus or number + 100)
        waiting.add(msgspec.structs.replace(queued, namespace=namespace), number)


def test_up_to_a_few_ready_pods_go_by_arrival() -> None:
    waiting = queue()
    flood(waiting, FAIR_FROM - 1)
    waiting.add(made("small"), FAIR_FROM)
    assert names(waiting)[-1] == "small"


@given(st.sampled_from(["flood", "another"]), st.booleans())
def test_a_pod_behind_a_flood_comes_up_after_a_few(namespace: str, one_class: bool) -> None:
    waiting = queue()
    flood(waiting, 1000, cpus=5 if one_class else 0)
    small = msgspec.structs.replace(made("small", cpus=1), namespace=namespace)
    waiting.add(small, 1000)
    assert "small" in [popped[0].name for _ in range(4) if (popped := waiting.pop()) is not None]


def test_a_flood_of_one_class_is_decided_by_arrival_and_completely() -> None:
    waiting = queue()
    flood(waiting, 100, cpus=5)
    assert names(waiting) == [f"flood{number}" for number in range(100)]
    flood(waiting, 100)
    assert sorted(names(waiting)) == sorted(f"flood{number}" for number in range(100))


def test_a_higher_priority_still_goes_first() -> None:
    waiting = queue()
    flood(waiting, 100)
    waiting.add(made("high", priority=1), 1000)
    popped = waiting.pop()
    assert popped is not None
    assert popped[0].name == "high"


def test_a_queue_that_never_pops_stays_small() -> None:
    """A standby follows the log and decides nothing."""
    waiting = queue()
    for arrival in range(20_000):
        waiting.add(made(f"p{arrival}"), arrival)
        if arrival > 10:
            waiting.remove(f"uid-p{arrival - 10}")
    order = waiting._by_priority[0]
    assert len(waiting._heap) < 2000
    assert sum(map(len, order._pods.values())) < 2000
