"""Cards that a booking keeps for its owners."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.booking import Owner, Terms, pod_for
from shared.domain.pod import Pod
from shared.domain.resources import CPU
from shared.domain.state_hash import state_hash
from shared.domain.zone_allocation import DeviceType
from shared.events import streams
from shared.events.cluster_events import PodEnded
from shared.events.scheduling_events import BookingEnded, BookingMade
from shared.owned.device_request import ALLOCATE_HINT
from tests.scheduler.owned.given import BOARD, OwnedWorld
from tests.scheduler.owned.test_devices_of_nodes import (
    GPU,
    HALF,
    RDMA,
    asking,
    held,
    world_with_devices,
)

FUNCTION = {ALLOCATE_HINT: '{"rdma":{"vfSelector":{}}}'}


def book(world: OwnedWorld, devices: dict[str, int], of: str = "web", **terms: Any) -> None:
    name = f"b-{of}"
    annotations = terms.pop("annotations", {})
    like = Pod("", "", "", "Burstable", scheduler_name="topolog", annotations=annotations)
    pod = pod_for(name, name, {CPU: 1_000, **devices}, like)
    made = Terms(**{"owners": (Owner(labels={"of": of}),), **terms})
    world.tell(streams.pod(name), BookingMade(name, pod, made))
    world.turn()


def owner(name: str, devices: dict[str, int], of: str = "web", **fields: Any) -> Pod:
    return asking(name, devices, cpu=100, labels={"of": of}, **fields)


def left(world: OwnedWorld, of: str = "web") -> dict[tuple[str, int], int]:
    """Return what a booking has left, in percent of cards."""
    allocation = world.core.ledger.pods[f"b-{of}"].allocation
    assert allocation is not None
    return {
        (card.type, card.minor): max(
            (a for n, a in card.resources.items() if n.endswith(("ratio", "rdma"))), default=0
        )
        for card in allocation.devices
    }


def test_a_booking_holds_its_cards_and_no_others() -> None:
    world = world_with_devices()
    book(world, {GPU: 2})
    assert left(world) == {("gpu", 0): 100, ("gpu", 1): 100}
    assert held(world.place(asking("x", {GPU: 2}))["x"]) == [("gpu", 2), ("gpu", 3)]
    assert world.place(asking("y", {HALF: 50})) == {}
    first = world.place(owner("a", {GPU: 1}))["a"]
    assert (first.drawn_from, held(first)) == ("b-web", [("gpu", 0)])
    assert left(world) == {("gpu", 0): 0, ("gpu", 1): 100}
    assert held(world.place(owner("c", {HALF: 50}))["c"]) == [("gpu", 1)]
    assert left(world) == {("gpu", 0): 0, ("gpu", 1): 50}
    world.tell(streams.pod("uid-a"), PodEnded("uid-a", "succeeded", "n1"))
    assert left(world) == {("gpu", 0): 100, ("gpu", 1): 50}
    assert world.turn() == [], "`y` does not get the card that came back"
    assert state_hash(world.again().ledger) == state_hash(world.core.ledger)


def test_an_owner_that_needs_more_than_is_left_takes_booked_cards_first() -> None:
    world = world_with_devices("restricted")
    world.place(asking("x", {HALF: 50}))
    book(world, {GPU: 2})
    assert left(world) == {("gpu", 2): 100, ("gpu", 3): 100}
    assert held(world.place(owner("a", {GPU: 3}))["a"]) == [("gpu", 2), ("gpu", 3), ("gpu", 1)]


def test_a_restricted_owner_takes_no_other_card() -> None:
    world = world_with_devices()
    book(world, {GPU: 1}, policy="Restricted")
    assert held(world.place(owner("a", {HALF: 40}))["a"]) == [("gpu", 0)]
    more = world.place(owner("c", {HALF: 70}))["c"]
    assert (more.drawn_from, held(more)) == ("", [("gpu", 1)])
    assert world.place(owner("d", {HALF: 60}))["d"].drawn_from == "b-web"


def test_a_booking_keeps_virtual_functions() -> None:
    world = world_with_devices()
    book(world, {RDMA: 10}, annotations=FUNCTION)
    stranger = world.place(asking("x", {RDMA: 10}, annotations=FUNCTION))["x"]
    assert held(stranger) == [("rdma", 1)], "card 0 has one function only"
    mine = world.place(owner("a", {RDMA: 10}, annotations=FUNCTION))["a"]
    assert (mine.drawn_from, held(mine)) == ("b-web", [("rdma", 0)])
    assert mine.allocation is not None
    assert mine.allocation.devices[0].functions == {"0000:00:00.1": 3}


ASKED = {GPU: 1}, {GPU: 2}, {HALF: 30}, {HALF: 100}, {RDMA: 40}, {GPU: 1, RDMA: 60}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("owner", "other", "end", "book", "unbook")),
        st.sampled_from(ASKED),
        st.integers(0, 9),
    ),
    min_size=4,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(
    steps=STEPS,
    policy=st.sampled_from(("single-numa-node", "restricted", "none")),
    terms=st.sampled_from(("Aligned", "Restricted")),
)
def test_no_card_is_held_twice_and_owners_get_what_is_left(
    steps: list[tuple[str, dict[str, int], int]], policy: Any, terms: Any
) -> None:
    world = world_with_devices(policy)
    running, bookings = list[str](), list[str]()
    for step, (what, devices, number) in enumerate(steps):
        of = bookings[number % len(bookings)] if bookings else ""
        if what == "book":
            bookings.append(f"s{step}")
            book(world, devices, f"s{step}", policy=terms)
        elif what == "unbook" and bookings:
            bookings.remove(of)
            world.tell(streams.pod(f"b-{of}"), BookingEnded(f"b-{of}"))
        elif what == "end" and running:
            uid = running.pop(number % len(running))
            world.tell(streams.pod(uid), PodEnded(uid, "succeeded", "n1"))
        elif what in ("owner", "other"):
            pod = owner(f"p{step}", devices, of if what == "owner" else "none")
            running += [f"uid-{name}" for name in world.place(pod)]
        check(world)
    while world.turn():
        check(world)
    for of in bookings:
        whole = [
            minor for (kind, minor), part in left_or_none(world, of) if (kind, part) == ("gpu", 100)
        ]
        if whole and world.core.ledger.pods[f"b-{of}"].pod.containers[0].requests.get(CPU, 0) > 100:
            made = world.place(owner(f"last-{of}", {GPU: 1}, of))[f"last-{of}"]
            assert made.drawn_from == f"b-{of}"
            assert held(made)[0][1] in whole
    check(world)
    assert state_hash(world.again().ledger) == state_hash(world.core.ledger)


def left_or_none(world: OwnedWorld, of: str) -> list[tuple[tuple[str, int], int]]:
    entry = world.core.ledger.pods[f"b-{of}"]
    return list(left(world, of).items()) if entry.allocation is not None else []


def check(world: OwnedWorld) -> None:
    """No card gives more than it has."""
    taken = Counter[tuple[DeviceType, int, str]]()
    for charge in world.core.ledger.nodes["n1"].charges.values():
        for card in charge.allocation.devices if charge.allocation is not None else ():
            for name, amount in card.resources.items():
                taken[card.type, card.minor, name] += amount
    sizes = {(card.type, card.minor): card.resources for card in BOARD}
    assert all(amount <= sizes[kind, minor][name] for (kind, minor, name), amount in taken.items())
