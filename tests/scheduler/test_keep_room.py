"""KeepRoom in the cycle: the demand of pods becomes an event, nodes are ranked by it, and a replay
ranks them alike.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.replay.deciding_state import placing_at
from services.scheduler import handlers
from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.reserve.proposals import Proposal
from services.scheduler.score.demand import (
    CANDIDATES,
    FEWEST_CHANGES,
    HEAVIEST,
    LISTED,
    NOWHERE,
    WAITING_FACTOR,
    weighed,
)
from services.scheduler.score.ranks import RULED_OUT
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from services.scheduler.state import state as scheduler_state
from shared.domain.resources import CPU, Amounts
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved, PodEnded, PodObserved
from shared.events.codec import encode, type_of
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import DemandWeighed, Wanted
from tests.fixtures.examples import examples
from tests.ledger.given import pod, report, zone
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed
from tests.scheduler.cycle_worlds import zone as sized

KEEP_ROOM = CycleConfig(strategy="KeepRoom")
WHOLE = amounts(16, 64, 4)
ONE = {CPU: 8000}


class Told:
    """A scheduler core on a minimal log."""

    def __init__(self, strategy: str = "KeepRoom", policy: str = "single-numa-node") -> None:
        self.config = CoreConfig(cycle=CycleConfig(strategy=strategy))
        self.core = SchedulerCore(self.config)
        self.weighed: list[tuple[Wanted, ...]] = []
        self.tell(
            streams.node("n1"), NodeObserved("n1", "u", allocatable={CPU: 64_000, "pods": 110})
        )
        self.tell(
            streams.report("n1"), NodeReported(report(zone(0, 32), zone(1, 32), policy=policy))
        )

    def tell(self, stream: str, event: Event) -> None:
        position, version = self.core.ledger.position + 1, self.core.versions.get(stream, 0) + 1
        self.core.evolve(
            Envelope(
                position,
                stream,
                version,
                type_of(event),
                1,
                encode(event),
                0,
                "t",
                0,
                str(position),
            ),
            event,
        )

    def sees(self, number_of_pods: int, cpus: int, first: int = 0) -> None:
        for number in range(first, first + number_of_pods):
            self.tell(streams.pod(f"uid-{number}"), PodObserved(pod(f"{number}", cpus=cpus)))

    def decides(self) -> list[Proposal]:
        proposals = self.core.decide(100)
        events = [
            (draft.stream, draft.event) for proposal in proposals for draft in proposal.drafts
        ]
        for stream, event in events:
            self.tell(stream, event)
        self.weighed += [event.wanted for _, event in events if isinstance(event, DemandWeighed)]
        return proposals


def test_demand_becomes_an_event_once_enough_has_changed() -> None:
    stream = Told()
    stream.sees(FEWEST_CHANGES - 1, cpus=1)
    stream.decides()
    stream.decides()
    assert stream.weighed == []
    stream.sees(1, cpus=1, first=50)
    stream.decides()
    stream.decides()
    unproven_in_both_zones = 2 * FEWEST_CHANGES
    assert stream.weighed == [
        (Wanted({CPU: 1000}, HEAVIEST, running=FEWEST_CHANGES, room=64 - unproven_in_both_zones),)
    ]


def test_pods_that_wait_are_weighed_early_and_heaviest() -> None:
    stream = Told()
    stream.sees(8, cpus=8)
    stream.sees(2, cpus=30, first=20)
    stream.decides()
    stream.decides()
    (wanted,) = stream.weighed
    assert [(each.amounts, each.running, each.waiting, each.room) for each in wanted] == [
        ({CPU: 30_000}, 0, 2, 0),
        ({CPU: 8000}, 8, 0, 0),
    ]
    assert wanted[0].weight == HEAVIEST > wanted[1].weight


def test_equal_demand_weights_are_no_event() -> None:
    stream = Told()
    stream.sees(FEWEST_CHANGES, cpus=1)
    stream.decides()
    stream.decides()
    for number in range(FEWEST_CHANGES):
        stream.tell(streams.pod(f"uid-{number}"), PodEnded(f"uid-{number}", "deleted"))
        stream.sees(1, cpus=1, first=100 + number)
        stream.decides()
    assert len(stream.weighed) == 1


def test_a_strategy_without_demand_weights_writes_no_event() -> None:
    stream = Told("MostAllocated")
    stream.sees(3 * FEWEST_CHANGES, cpus=1)
    stream.decides()
    stream.decides()
    assert stream.weighed == []


def test_a_running_and_a_restored_scheduler_compute_the_same_demand() -> None:
    stream = Told()
    stream.sees(FEWEST_CHANGES, cpus=1)
    stream.decides()
    again = handlers.load(stream.config, handlers.dump(stream.core))
    made = [
        [d.event for p in core.decide(10) for d in p.drafts if isinstance(d.event, DemandWeighed)]
        for core in (stream.core, again)
    ]
    assert made[0] == made[1] != []


def test_a_replay_and_a_restored_core_rank_by_what_was_weighed() -> None:
    stream = Told()
    stream.tell(streams.DEMAND, DemandWeighed((Wanted({CPU: 32_000}, HEAVIEST),)))
    asked = pod("asked", cpus=4)
    stream.core.look()
    followed = scheduler_state.load(scheduler_state.dump(stream.core.folded))
    restored = handlers.load(stream.config, handlers.dump(stream.core))
    restored.look()
    placings = (stream.core.columns, placing_at(followed, KEEP_ROOM), restored.columns)
    decisions = [placing.place(asked) for placing in placings if placing is not None]
    assert len(decisions) == 3
    followed.wanted = ()
    without = placing_at(followed, KEEP_ROOM).place(asked)
    assert all(isinstance(each, Placed) for each in (*decisions, without))
    assert len({each.score for each in decisions if isinstance(each, Placed)}) == 1
    assert isinstance(without, Placed)
    assert isinstance(decisions[0], Placed)
    assert decisions[0].score != without.score


def test_a_new_event_ranks_the_nodes_again() -> None:
    made = World(KEEP_ROOM)
    made.node("with-gpus", sized(0, amounts(8, 32, 4), WHOLE))
    made.node("without", sized(0, amounts(16, 64), amounts(16, 64)))
    asked = guaranteed("p", container("c", amounts(4, 16)))
    node_before = made.cluster.place(asked)
    made.cluster.rank_by((Wanted(amounts(8, 32, 4), HEAVIEST),))
    node_after = made.cluster.place(asked)
    assert isinstance(node_before, Placed)
    assert isinstance(node_after, Placed)
    assert (node_before.node, node_after.node) == ("with-gpus", "without")


FREE = st.tuples(st.integers(0, 16), st.integers(0, 64), st.integers(0, 4))
NODES = st.lists(st.lists(FREE, min_size=1, max_size=4), min_size=1, max_size=4)
PART = st.tuples(st.integers(1, 8), st.integers(1, 16), st.integers(0, 1))
ASKED = st.lists(PART, min_size=1, max_size=3)
WANTED = st.lists(
    st.builds(lambda part, power: Wanted(amounts(*part), 2**power), PART, st.integers(0, 12)),
    max_size=4,
)


@settings(max_examples=examples(60), deadline=None)
@given(
    NODES,
    st.lists(ASKED, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), WANTED), min_size=1, max_size=8),
)
def test_every_pod_takes_the_best_node_under_the_current_demand(
    nodes: list[list[tuple[int, int, int]]],
    asked: list[list[tuple[int, int, int]]],
    turns: list[tuple[int, list[Wanted]]],
) -> None:
    made = World(CycleConfig(strategy="KeepRoom", steps_node=1024, steps_last_resort=1024))
    for number, zones in enumerate(nodes):
        made.node(
            f"n{number}", *(sized(at, amounts(*free), WHOLE) for at, free in enumerate(zones))
        )
    for number, (turn, wanted) in enumerate(turns):
        if wanted:
            made.cluster.rank_by(tuple(wanted))
        parts = asked[turn % len(asked)]
        wanted_pod = guaranteed(
            f"p{number}", *(container(f"c{at}", amounts(*each)) for at, each in enumerate(parts))
        )
        pod_class = made.cluster.evaluator.pod_class(wanted_pod)
        best = max(
            made.cluster.evaluator.evaluate(pod_class, node_info)
            for node_info in made.cluster.nodes()
        )
        placed = made.cluster.place(wanted_pod)
        assert (placed.score if isinstance(placed, Placed) else RULED_OUT) == best
        if isinstance(placed, Placed):
            made.cluster.assume(placed, wanted_pod)


@settings(max_examples=examples(60), deadline=None)
@given(NODES, ASKED, WANTED)
def test_all_nodes_at_once_score_as_one_by_one_under_any_demand(
    nodes: list[list[tuple[int, int, int]]], asked: list[tuple[int, int, int]], wanted: list[Wanted]
) -> None:
    made = World(KEEP_ROOM)
    for number, zones in enumerate(nodes):
        made.node(
            f"n{number}", *(sized(at, amounts(*free), WHOLE) for at, free in enumerate(zones))
        )
    made.cluster.rank_by(tuple(wanted))
    wanted_pod = guaranteed(
        "p", *(container(f"c{at}", amounts(*each)) for at, each in enumerate(asked))
    )
    pod_class = made.cluster.evaluator.pod_class(wanted_pod)
    made.cluster.evaluator.evaluate_all_if_new(pod_class)
    scores, sure = (each.copy() for each in made.cluster.evaluator.cache.row(pod_class.row))
    for node_info in made.cluster.nodes():
        judged = made.cluster.evaluator.evaluate(pod_class, node_info)
        assert (
            scores[node_info.slot] == judged
            if sure[node_info.slot]
            else scores[node_info.slot] >= judged
        )


AMOUNTS = st.dictionaries(
    st.sampled_from((CPU, "memory", "example.com/gpu")), st.integers(1, 20_000), min_size=1
)
COUNTS = st.dictionaries(
    AMOUNTS.map(lambda held: tuple(sorted(held.items()))), st.integers(1, 500), max_size=60
)


@settings(max_examples=examples(100), deadline=None)
@given(COUNTS, COUNTS, st.integers(0, 5000))
def test_weights_are_few_exact_and_grow_with_demand_and_scarcity(
    running: dict[tuple[tuple[str, int], ...], int],
    waiting: dict[tuple[tuple[str, int], ...], int],
    spare: int,
) -> None:
    def room(wants: object) -> list[int]:
        return [spare * (at % 3) for at, _ in enumerate(wants)]  # type: ignore[arg-type]

    weights = weighed(running, waiting, room)
    assert len(weights) <= LISTED
    assert len({tuple(sorted(each.amounts.items())) for each in weights}) == len(weights)
    assert not weights or weights[0].weight == HEAVIEST
    assert all(each.weight & (each.weight - 1) == 0 for each in weights)
    value = [(each.running + WAITING_FACTOR * each.waiting) / (1 + each.room) for each in weights]
    assert all(one * 2.001 >= other for at, one in enumerate(value) for other in value[at:])


def places(made: World, *classes: Amounts) -> list[int]:
    return made.cluster.places([tuple(sorted(each.items())) for each in classes])


def test_room_is_counted_zone_by_zone_where_kubelets_align() -> None:
    made = World(KEEP_ROOM)
    made.node("n1", sized(0, amounts(10, 64), WHOLE), sized(1, amounts(7, 64, 2), WHOLE))
    wants = amounts(4), amounts(4, 16, 1), amounts(11), {"other.example/device": 1}
    assert places(made, *wants) == [3, 1, 0, NOWHERE]
    assert places(made, amounts(17)) == [NOWHERE]
    assert made.cluster.places([((CPU, 1),)]) == [17_000]
    assert places(World(KEEP_ROOM), amounts(1)) == [NOWHERE]


def test_room_is_counted_in_sets_of_zones_under_restricted() -> None:
    made = World(KEEP_ROOM)
    zones = [sized(at, amounts(cpus, 64), WHOLE) for at, cpus in enumerate((16, 4, 16, 12))]
    made.node("n1", *zones, policy="restricted")
    assert places(made, amounts(20), amounts(32), amounts(40), amounts(20, 8)) == [
        1,
        1,
        1,
        NOWHERE,  # The processors need two zones, the memory one: no kubelet admits it.
    ]
    assert places(made, amounts(65)) == [NOWHERE]
    assert places(made, amounts(11)) == [3]


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_room_is_counted_on_whole_nodes_where_zones_refuse_no_pod(policy: str) -> None:
    made = World(KEEP_ROOM)
    made.node("n1", sized(0, amounts(16), WHOLE), sized(1, amounts(16), WHOLE), policy=policy)
    whole = made.cluster.nodes()[0].allocatable[CPU] // 1000
    assert places(made, amounts(whole), amounts(whole // 2), amounts(whole + 1)) == [
        1,
        2,
        NOWHERE,
    ]


def test_a_node_that_holds_a_wide_pod_is_spared_under_restricted() -> None:
    """The small pod would take as much of an empty zone on either node."""
    made = World(KEEP_ROOM)
    empty = sized(0, WHOLE), sized(1, WHOLE)
    made.node("whole", *empty, policy="restricted")
    made.node("broken", sized(0, amounts(1, 4), WHOLE), empty[1], policy="restricted")
    made.cluster.rank_by((Wanted(amounts(32), HEAVIEST), Wanted(amounts(2), HEAVIEST)))
    small = [guaranteed(f"p{number}", container("c", amounts(2))) for number in range(8)]
    choices = [made.cluster.place(pod) for pod in small]
    assert {choice.node for choice in choices if isinstance(choice, Placed)} == {"broken"}
    # A node that changed is ranked by itself.
    made.node("whole", empty[0], sized(1, amounts(15, 64), WHOLE), policy="restricted")
    choices = [made.cluster.place(pod) for pod in small]
    assert {choice.node for choice in choices if isinstance(choice, Placed)} == {"broken"}


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_a_node_that_holds_a_demanded_pod_is_spared_where_zones_refuse_no_pod(policy: str) -> None:
    """The other node is less full, and has no devices."""
    made = World(KEEP_ROOM)
    made.node("with", sized(0, WHOLE), policy=policy, allocatable=amounts(12, 64, 4))
    made.node("without", sized(0, WHOLE), policy=policy, allocatable=amounts(32, 64))
    made.cluster.rank_by((Wanted(amounts(12, 1, 4), HEAVIEST),))
    choice = made.cluster.place(guaranteed("p", container("c", amounts(2))))
    assert isinstance(choice, Placed)
    assert choice.node == "without"


def test_demand_of_whole_pods_is_weighed_where_no_kubelet_refuses_for_zones() -> None:
    stream = Told(policy="best-effort")
    stream.sees(FEWEST_CHANGES, cpus=1)
    stream.sees(2, cpus=40, first=50)
    stream.decides()
    stream.decides()
    assert stream.weighed
    assert {CPU: 40_000} in [wanted.amounts for wanted in stream.weighed[-1]]


def aligned(made: World) -> str:
    typical = made.cluster.typical()
    assert typical is not None
    return typical[1].scope


@pytest.mark.parametrize("order", [("n1", "n2", "n3"), ("n3", "n2", "n1"), ("n2", "n1", "n3")])
def test_the_policy_of_most_nodes_does_not_depend_on_the_order_of_nodes(
    order: tuple[str, ...],
) -> None:
    made, scopes = World(KEEP_ROOM), {"n1": "pod", "n2": "container"}
    for name in order:
        made.node(
            name,
            sized(0, WHOLE),
            policy="restricted" if name in scopes else "none",
            scope=scopes.get(name, "pod"),
        )
    assert aligned(made) == "pod"
    made.node("n0", sized(0, WHOLE), policy="restricted", scope="container")
    assert aligned(made) == "container"


def test_pods_that_could_never_run_weigh_nothing() -> None:
    stream = Told()
    stream.sees(FEWEST_CHANGES, cpus=1)
    stream.sees(9, cpus=33, first=50)
    stream.decides()
    stream.decides()
    assert [each.amounts for each in stream.weighed[-1]] == [{CPU: 1000}]


@pytest.mark.parametrize("kinds", [0, CANDIDATES + 20])
def test_only_as_many_kinds_as_may_be_are_counted(kinds: int) -> None:
    asked: list[int] = []

    def room(wants: object) -> list[int]:
        asked.append(len(wants))  # type: ignore[arg-type]
        return [0] * asked[-1]

    weighed({((CPU, number + 1),): 1 for number in range(kinds)}, {}, room)
    assert asked == [min(kinds, CANDIDATES)]
