"""Room that is kept for pods that come later: its owners use it first, and no other pod does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.booking import Owner, Terms, pod_for
from shared.domain.pod import Pod
from shared.domain.resources import CPU, MEMORY
from shared.domain.state_hash import state_hash
from shared.events import streams
from shared.events.binding_events import PodBound
from shared.events.cluster_events import NodeEnded, NodeObserved, PodEnded
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import BookingEnded, BookingMade, PodReserved
from shared.kubelet.cpuset import each_cpu, parse_cpus
from tests.ledger.given import held, report, zone
from tests.scheduler.owned.given import GIB, OwnedWorld, exclusive, share
from tests.scheduler.owned.test_owned_zones import allocation

WEB = {"app": "web"}


class Booked(OwnedWorld):
    """A world with a booking `b` for pods labelled app=web."""

    def book(self, cpus: int = 8, memory_gib: int = 8, name: str = "b", **terms: Any) -> None:
        like = Pod("", "", "", "Guaranteed", scheduler_name="topolog")
        pod = pod_for(name, name, {CPU: cpus * 1000, MEMORY: memory_gib * GIB}, like)
        terms = {"owners": (Owner(labels=WEB),), **terms}
        self.tell(streams.pod(name), BookingMade(name, pod, Terms(**terms)))
        self.turn()

    def kubelets_node(self, *free: int, **fields: Any) -> None:
        """A node whose static CPU Manager has zones of 8 CPUs with so many free."""
        offers = {CPU: 64_000, MEMORY: 128 * GIB, "pods": 110}
        self.tell(streams.node("n1"), NodeObserved("n1", "uid-n1", allocatable=offers))
        zones = [zone(number, 8, cpus) for number, cpus in enumerate(free)]
        made = report(*zones, tracked=("cpu",), **fields)
        self.tell(streams.report("n1"), NodeReported(made))

    def left(self) -> dict[int, Any]:
        allocation = self.core.ledger.pods["b"].allocation
        assert allocation is not None
        return {zone: amounts.get(CPU, 0) // 1000 for zone, amounts in allocation.zones.items()}

    def end(self, name: str) -> None:
        self.tell(streams.pod(f"uid-{name}"), PodEnded(f"uid-{name}", "succeeded", "n1"))

    def check_amounts(self) -> None:
        """Zones have what all charges with zones take, and no CPU is held twice."""
        node = self.core.ledger.nodes["n1"]
        allocations = [c.allocation for c in node.charges.values() if c.allocation is not None]
        assert node.report is not None
        for offered in node.report.zones:
            taken = sum(each.zones.get(offered.id, {}).get(CPU, 0) for each in allocations)
            assert not allocations or taken <= offered.offered[CPU]
        cpus = [cpu for each in allocations for cpu in each_cpu(parse_cpus(each.cpus))]
        assert len(cpus) == len(set(cpus))

    def check(self) -> None:
        again = self.again()
        assert state_hash(again.ledger) == state_hash(self.core.ledger)


def web(name: str, cpus: int, **fields: Any) -> Pod:
    return exclusive(name, cpus, labels=WEB, **fields)


def test_owners_draw_from_the_booking_and_give_it_back() -> None:
    world = Booked()
    world.node()
    world.book()
    assert world.left() == {0: 8}
    first = world.place(web("a", 4))["a"]
    assert (first.drawn_from, allocation(first).cpus) == ("b", "2-5")
    assert world.left() == {0: 4}
    assert world.place(web("a2", 6))["a2"].drawn_from == "b", "Aligned takes the rest elsewhere"
    assert world.left() == {0: 0}
    world.end("a2")
    assert world.left() == {0: 4}
    world.end("a")
    assert world.left() == {0: 8}
    world.check()


def test_no_other_pod_takes_the_room() -> None:
    world = Booked()
    world.node()
    world.book()
    assert list(allocation(world.place(exclusive("x", 15))["x"]).zones) == [1]
    assert world.place(exclusive("y", 8)) == {}
    assert world.place(exclusive("z", 7))["z"].drawn_from == ""
    assert world.place(share("s", 500)) == {}
    assert world.place(web("a", 8))["a"].drawn_from == "b"
    assert world.place(share("t", 500)) == {}
    world.check()


def test_restricted_pods_fit_into_the_remaining_room_or_go_elsewhere() -> None:
    world = Booked()
    world.node()
    world.book(policy="Restricted")
    assert world.place(web("large", 9))["large"].drawn_from == ""
    assert world.place(web("a", 6))["a"].drawn_from == "b"
    assert world.place(web("c", 4))["c"].drawn_from == ""
    assert world.place(web("d", 2))["d"].drawn_from == "b"
    world.check()


def test_a_booking_for_one_pod_ends_with_it() -> None:
    world = Booked()
    world.node()
    world.book(once=True)
    assert world.place(web("a", 2))["a"].drawn_from == "b"
    assert "b" not in world.core.ledger.pods
    assert world.place(web("c", 13))["c"].drawn_from == ""
    world.check()


@pytest.mark.parametrize("is_over", [False, True])
def test_a_booking_expires_by_an_event(is_over: bool) -> None:
    world = Booked()
    world.node()
    world.book(expires_us=1_000)
    made = [draft.event for p in world.core.decide(9, now_us=999 + is_over) for draft in p.drafts]
    assert [event for event in made if isinstance(event, BookingEnded)] == (
        [BookingEnded("b", "expired")] if is_over else []
    )


def test_pods_keep_what_they_have_when_the_booking_is_deleted() -> None:
    world = Booked()
    world.node()
    world.book()
    world.place(web("a", 4))
    world.tell(streams.pod("b"), BookingEnded("b"))
    assert world.place(exclusive("x", 11))["x"].drawn_from == ""
    world.check()


def test_the_booking_is_placed_again_when_its_node_goes() -> None:
    world = Booked()
    world.node()
    world.book()
    world.place(web("a", 4))
    world.tell(streams.node("n1"), NodeEnded("n1", "uid-n1", "deleted"))
    world.turn()
    world.node("n2")
    world.turn()
    assert (world.core.ledger.pods["b"].node, world.left()) == ("n2", {0: 8})
    world.check()


def test_a_kubelets_node_keeps_room_as_for_a_pod_on_its_way() -> None:
    world = Booked()
    world.kubelets_node(8, 2)
    world.book(6, 0)
    assert world.core.ledger.pods["b"].node == "n1"
    assert world.place(exclusive("x", 4)) == {}
    assert world.place(exclusive("y", 2))["y"].drawn_from == ""
    assert world.place(web("a", 4))["a"].drawn_from == "b"
    assert world.core.ledger.pods["b"].pod.containers[0].requests == {CPU: 2_000}
    assert world.place(exclusive("z", 2)) == {}
    assert world.place(web("c", 2))["c"].drawn_from == "b"
    world.end("c")
    assert world.place(exclusive("z2", 2)) == {}
    world.check()


def test_a_pod_must_not_take_the_zone_of_a_pending_admission_on_a_kubelets_node() -> None:
    """The rest of 3 CPUs may come to zone 0 first, and `x` would find no zone."""
    world = Booked()
    world.kubelets_node(4, 8)
    world.book(8, 0)
    assert world.place(exclusive("x", 4))["x"].drawn_from == ""
    assert world.place(web("a", 5)) == {}
    world.kubelets_node(0, 8, at=2, placements=(held("x", 0, 4),))
    (made,) = [event for event in world.turn() if isinstance(event, PodReserved)]
    assert (made.uid, made.drawn_from) == ("uid-a", "b")
    world.check()


def test_owners_use_the_zone_of_the_booking_before_fuller_ones() -> None:
    world = Booked()
    world.node()
    world.book()
    assert list(allocation(world.place(exclusive("x", 10))["x"]).zones) == [1]
    assert list(allocation(world.place(web("a", 4))["a"]).zones) == [0]
    assert world.left() == {0: 4}


def test_an_owner_that_waits_is_decided_again_when_its_booking_has_room() -> None:
    world = Booked()
    world.node()
    world.book(15)
    world.place(exclusive("x", 15))
    assert world.place(web("a", 10))["a"].drawn_from == "b"
    assert world.place(web("c", 8)) == {}
    world.end("a")
    (made,) = [event for event in world.turn() if isinstance(event, PodReserved)]
    assert (made.uid, made.drawn_from) == ("uid-c", "b")
    world.check()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("owner", "other", "share", "end", "book", "unbook")), st.integers(1, 9)
    ),
    min_size=4,
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(
    steps=STEPS,
    policy=st.sampled_from(("single-numa-node", "restricted", "none")),
    is_owned=st.booleans(),
    once=st.booleans(),
)
def test_the_room_is_never_counted_twice_and_stays_for_its_owners(
    steps: list[tuple[str, int]], policy: Any, is_owned: bool, once: bool
) -> None:
    """One pod of the shape of its rest can always use a booking."""
    world = Booked(policy)
    world.node() if is_owned else world.kubelets_node(8, 8)
    open_pods, bookings = dict[str, str](), set[str]()
    for step, (what, size) in enumerate(steps):
        name = f"p{step}"
        if what == "book":
            owners = (Owner(labels={"of": name}),)
            world.book(size, 0, name, owners=owners, once=once and size % 2 == 0)
            bookings.add(name)
        elif what == "unbook" and bookings:
            gone = sorted(bookings)[size % len(bookings)]
            bookings.discard(gone)
            world.tell(streams.pod(gone), BookingEnded(gone))
        elif what == "end" and open_pods:
            gone = sorted(open_pods)[size % len(open_pods)]
            del open_pods[gone]
            world.end(gone)
            world.turn()
        elif what in ("owner", "other", "share"):
            owned_by = sorted(bookings)[size % len(bookings)] if bookings else ""
            labels = {"of": owned_by} if what == "owner" else {}
            make = share if what == "share" else exclusive
            pod = make(name, size * (1000 if what == "share" else 1), 0, labels=labels)
            for made in world.place(pod).values():
                open_pods[name] = owned_by
                assert made.drawn_from in ("", *bookings)
                assert what == "owner" or not made.drawn_from
        world.check_amounts()
        bookings &= world.core.ledger.pods.keys()
    while world.turn():  # owners that waited
        pass
    for booked in sorted(bookings):
        entry = world.core.ledger.pods.get(booked)
        remaining = entry.pod.containers[0].requests.get(CPU, 0) // 1000 if entry is not None else 0
        if entry is not None and entry.node and remaining:
            pod = exclusive(f"last-{booked}", remaining, 0, labels={"of": booked})
            assert world.place(pod)[pod.name].drawn_from == booked
        world.check_amounts()
    world.check()


def test_no_pod_is_evicted_from_a_booking() -> None:
    """Its room would be the booking's again."""
    world = Booked()
    world.node(zones=1)
    world.book(8, once=False)
    assert world.place(web("a", 8))["a"].drawn_from == "b"
    world.tell(streams.pod("uid-a"), PodBound("uid-a", "n1"))
    world.place(exclusive("high", 10, 1, priority=9))
    assert world.core.nominations.open == {}
    world.tell(streams.pod("b"), BookingEnded("b"))
    world.place(exclusive("higher", 10, 1, priority=10))
    assert world.core.nominations.open["uid-higher"].victims == ("uid-a",)


def test_a_booking_keeps_the_cpus_that_its_owners_get() -> None:
    world = Booked()
    world.node(zones=1)
    world.place(exclusive("first", 1))
    world.book(4, once=False)
    kept = world.core.ledger.pods["b"].allocation
    assert kept is not None
    booked = parse_cpus(kept.cpus)
    assert len(list(each_cpu(booked))) == 4
    single = [f"s{number}" for number in range(10)]
    for name in single:
        assert not parse_cpus(allocation(world.place(exclusive(name, 1))[name]).cpus) & booked
    two = parse_cpus(allocation(world.place(web("a", 2))["a"]).cpus)
    rest = world.core.ledger.pods["b"].allocation
    assert rest is not None
    assert (two & ~booked, parse_cpus(rest.cpus)) == (0, booked & ~two)
    assert parse_cpus(allocation(world.place(web("c", 2))["c"]).cpus) == booked & ~two
    world.end("a")
    rest = world.core.ledger.pods["b"].allocation
    assert rest is not None
    assert parse_cpus(rest.cpus) == two
    world.check_amounts()
    world.check()


@pytest.mark.parametrize("is_owned", [True, False])
@pytest.mark.parametrize("policy", ["Aligned", "Restricted"])
def test_an_owner_of_higher_priority_takes_the_place_of_another(
    policy: Any, is_owned: bool
) -> None:
    world = Booked()
    world.node(zones=1) if is_owned else world.kubelets_node(8)
    world.book(8, 0, policy=policy, once=False)
    for name in ("a", "c"):
        assert world.place(web(name, 4, memory_gib=0))[name].drawn_from == "b"
        world.tell(streams.pod(f"uid-{name}"), PodBound(f"uid-{name}", "n1"))
    if not is_owned:
        listed = tuple(held(name, 0, 4) for name in ("a", "c"))
        world.kubelets_node(0, at=2, placements=listed)
    else:
        world.place(exclusive("fill", 7, 0, priority=10))
    world.place(web("high", 4, memory_gib=0, priority=9))
    (victim,) = world.core.nominations.open["uid-high"].victims
    assert world.place(exclusive("x", 4, 0, priority=5)) == {}
    world.end(victim.removeprefix("uid-"))
    (made,) = [event for event in world.turn() if isinstance(event, PodReserved)]
    assert (made.uid, made.drawn_from) == ("uid-high", "b")
    world.check()
