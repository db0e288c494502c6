"""Property of the agent's core: after any requests, no CPU belongs to two pods, shared CPUs belong
to no pod, and no container is left without CPUs.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.agent import core
from services.agent.core import Container, Cpuset, Machine, Pod, State
from services.agent.wishes import NOTHING, Wish

MACHINE = Machine({0: 0b1111, 1: 0b11110000}, memory=0b11, reserved=0b1)
SMALL = Machine({0: 0b0111, 1: 0b11000}, memory=0b11, reserved=0b1)
WISHES = st.sampled_from(
    [
        NOTHING,
        *(Wish(zones=zones) for zones in (0b1, 0b10, 0b11, 0b100)),
        *(Wish(cpus=cpus) for cpus in (0b1, 0b10, 0b110, 0b1000, 0b11000, 0b100000)),
    ]
)
PODS = [Pod(f"s{number}", f"u{number // 2}", "ns", f"p{number}") for number in range(6)]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("create", "create", "exists", "stop", "end", "send", "sync")),
        st.integers(0, 5),
        st.integers(0, 1),
        WISHES,
    ),
    min_size=8,
    max_size=20,
)


def pod(number: int, wish: Wish = NOTHING) -> Pod:
    return msgspec.structs.replace(PODS[number], wish=wish)


def played(state: State, step: tuple[str, int, int, Wish]) -> State:
    action, number, index, wish = step
    wanted, container = pod(number, wish), f"c{number}-{index}"
    if action == "create":
        if core.refusal(state, wanted) is not None:
            return state
        entry = Container(container, wanted.sandbox, f"n{index}", is_created=False)
        return core.creating(state, wanted, entry)
    if action == "exists":
        return core.created(state, container, "/kubepods/x")
    if action == "stop":
        return core.stopped(state, container)
    if action == "end":
        return core.ended(state, wanted.sandbox)
    if action == "send":
        return core.sent(state, core.updates(state))
    containers = state.containers.values()
    again, refused = core.synchronized(SMALL, state.pods.values(), containers)
    assert refused == []
    assert again.containers == state.containers
    return again


def keeps_its_promises(state: State) -> None:
    """Check these rules pod by pod and CPU by CPU, as a plain reference."""
    owners: dict[int, str] = {}
    for entry in state.pods.values():
        for cpu in range(16):
            if entry.wish.cpus >> cpu & 1:
                assert owners.setdefault(cpu, entry.uid) == entry.uid
                assert SMALL.cpus >> cpu & 1
                assert not SMALL.reserved >> cpu & 1
    for container, cpuset in core.targets(state).items():
        wish = state.pods[state.containers[container].sandbox].wish
        assert cpuset.cpus
        for cpu in range(16):
            if not wish.cpus and cpuset.cpus >> cpu & 1:
                assert cpu not in owners
                assert not wish.zones or (cpu and wish.zones >> cpu // 3 & 1)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_no_order_of_requests_breaks_a_promise(steps: list[tuple[str, int, int, Wish]]) -> None:
    state = State(SMALL)
    for step in steps:
        state = played(state, step)
        keeps_its_promises(state)
    assert core.updates(core.sent(state, core.updates(state))) == {}


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (Wish(cpus=0b10), "taken"),
        (Wish(cpus=0b1), "reserved"),
        (Wish(cpus=1 << 9), "offline"),
        (Wish(zones=0b100), "zone"),
        (Wish(zones=0b10, memory=0b100), "zone"),
        (Wish(cpus=0b1000), "pool"),
        (Wish(cpus=0b10000), None),
        (Wish(zones=0b1), None),
    ],
)
def test_a_wish_that_cannot_be_kept_is_refused(wish: Wish, reason: str | None) -> None:
    state = State(MACHINE, {"s0": pod(0, Wish(cpus=0b110)), "s2": pod(2, Wish(zones=0b1))})
    problem = core.refusal(state, pod(4, wish))
    assert (problem.reason if problem else None) == reason


def test_the_last_cpu_of_pods_without_zones_is_not_given_away() -> None:
    state = State(Machine({0: 0b11}, memory=1), {"s0": pod(0, Wish(cpus=0b1))})
    problem = core.refusal(state, pod(2, Wish(cpus=0b10)))
    assert problem is not None
    assert problem.text == "no CPU would be left for pods without zones"


def running(wish: Wish, given: Cpuset | None = None, **other: Any) -> State:
    container = Container("c", "s0", "main", given=given or Cpuset(wish.cpus), **other)
    return State(MACHINE, {"s0": pod(0, wish)}, {"c": container})


def test_a_pod_that_runs_keeps_its_cpus_and_a_later_one_loses_the_dispute() -> None:
    pods = [pod(0, Wish(cpus=0b110)), pod(2, Wish(cpus=0b100))]
    containers = [Container("late", "s2", "main"), Container("early", "s0", "main")]
    state, refused = core.synchronized(MACHINE, pods, reversed(containers))
    assert [(entry.name, problem.reason) for entry, problem in refused] == [("p2", "taken")]
    assert core.updates(state) == {"late": Cpuset(0b11111001), "early": Cpuset(0b110)}


def test_a_call_that_may_have_come_last_is_repeated() -> None:
    state = running(Wish(zones=0b1))
    due = core.updates(state)
    meanwhile = core.creating(
        core.sent(state, due), pod(2, Wish(cpus=0b10)), Container("own", "s2", "main")
    )
    meanwhile = core.sent(meanwhile, core.updates(meanwhile))
    assert core.updates(meanwhile) == {}
    assert core.updates(core.overtaken(meanwhile, due)) == {"c": Cpuset(0b1100)}
    assert core.updates(core.overtaken(core.sent(state, due), due)) == {}


@pytest.mark.parametrize(
    ("wish", "actual", "drifts"),
    [
        (Wish(cpus=0b110), Cpuset(0b110, 0b11), False),
        (Wish(cpus=0b110), Cpuset(0b10, 0b11), True),
        (Wish(cpus=0b110), Cpuset(0b1110, 0b11), True),
        (Wish(cpus=0b110, memory=0b1), Cpuset(0b110, 0b11), True),
        (NOTHING, Cpuset(0b10, 0b11), False),
        (NOTHING, Cpuset(1 << 9, 0b11), True),
    ],
)
def test_other_cpus_than_were_set_are_found(wish: Wish, actual: Cpuset, drifts: bool) -> None:
    state = running(wish)
    assert core.drifted(state, {"c": actual}) == ({"c"} if drifts else set())
    assert core.drifted(state, {}) == set()


def test_a_failed_creation_leaves_no_container_behind() -> None:
    failed = core.creating(
        State(MACHINE), pod(0), Container("first", "s0", "main", is_created=False)
    )
    again = core.creating(failed, pod(0), Container("second", "s0", "main", is_created=False))
    assert list(again.containers) == ["second"]
    assert core.updates(again) == {}


def test_what_containers_have_is_stated_by_zone() -> None:
    placements = core.placements(
        running(Wish(cpus=0b110000, memory=0b10)), {"c": Cpuset(0b111000, 0b10)}
    )
    assert [(held.resource, held.zones, held.amount, held.ids) for held in placements[0].held] == [
        ("cpu", (0,), 1000, "3"),
        ("cpu", (1,), 2000, "4-5"),
        ("memory", (1,), 0, ""),
    ]
    shared = core.placements(running(Wish(zones=0b1)), {"c": Cpuset(0b1110, 0b11)})
    assert [(held.amount, held.ids) for held in shared[0].held] == [(0, "1-3")]
    assert core.placements(running(NOTHING), {"c": Cpuset(0b1110, 0b11)}) == ()


def test_a_new_sandbox_of_a_pod_gets_no_empty_pool() -> None:
    """The former sandbox of the pod may have its CPUs for a moment longer."""
    state = State(MACHINE, {"s0": pod(0, Wish(cpus=0b11110000))})
    problem = core.refusal(state, pod(1, Wish(zones=0b10)))
    assert problem is not None
    assert problem.reason == "pool"
    assert core.refusal(state, pod(1, Wish(cpus=0b11110000))) is None
    sharing = State(MACHINE, {"s0": pod(0, Wish(zones=0b10))})
    problem = core.refusal(sharing, pod(1, Wish(cpus=0b11110000)))
    assert problem is not None
    assert problem.reason == "pool"
