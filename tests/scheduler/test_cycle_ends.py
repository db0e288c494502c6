"""Pods end while others are pending admissions: a pod sent since the report came before or after
each end, unless something shows the order. The judge is the quality bench's `Consistent`, which
follows every consistent state through the kubelet model.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

import msgspec
import pytest

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed, Unplaceable
from shared.domain.pod import Pod
from shared.domain.report import Placement, Zone, ZonedAmount
from shared.events.cluster_events import EndCause, PodEnded, PodObserved, PodRunning
from shared.events.scheduling_events import NodeCharged, PodReserved
from shared.kubelet.admission import admit, drop_stale, remove, start_containers
from shared.kubelet.machine import KubeletState
from tests.bench.quality.consistent import Consistent
from tests.kubelet.machines import kubelet
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, report, zone
from tests.scheduler.kubelet_worlds import NODE, proven_world, random_pod, report_of, scene
from tests.scheduler.test_cycle_soundness import RULES

EVENTS = 24
NEWCOMERS = 5


class Past:
    """A kubelet, and a scheduler that learns of its changes late: pods start and end, and the
    scheduler observes that in any order.
    """

    def __init__(self, seed: int, policy: str, scope: str) -> None:
        self.rng = random.Random(seed)
        self.state = scene(seed, policy, scope, self.rng.randint(2, 3), unconfirmed=0).base
        self.world = proven_world(self.state, CycleConfig())
        self.known = Consistent(self.state)
        self.known.reported(self.state, 0.0)
        self.on_their_way: dict[str, Pod] = {}
        self.unheard: list[str] = []
        self.started_s: dict[str, int] = {}
        self.ended: list[tuple[str, int]] = []
        self.scan: tuple[KubeletState, float] | None = None
        self.now_s = 0.0
        for number in range(EVENTS):
            self.now_s += 1
            self.rng.choice(TURNS)(self, number)

    def _send(self, number: int) -> None:
        name = self.rng.choice(("web", f"p{number}"))
        if any(
            pod.name == name
            for pod in (
                *self.on_their_way.values(),
                *(each.pod for each in self.state.pods.values()),
            )
        ):
            return
        pod = msgspec.structs.replace(random_pod(self.rng, name), uid=f"{name}-{number}")
        if not self.known.admits(pod) and self.rng.random() < 0.8:
            return
        self.world.fold(f"pod/{pod.uid}", PodObserved(pod))
        self.world.fold(f"pod/{pod.uid}", PodReserved(pod.uid, NODE))
        self.world.fold(f"node/{NODE}", NodeCharged(NODE, pod.uid))
        self.known.sent(pod, self.now_s)
        self.on_their_way[pod.uid] = pod

    def _come(self, number: int) -> None:
        if self.on_their_way:
            pod = self.on_their_way.pop(self.rng.choice(list(self.on_their_way)))
            verdict = admit(self.state, pod)
            self.state = drop_stale(verdict.state)
            if verdict.admitted:
                self.state = start_containers(self.state, pod)
                self.unheard.append(pod.uid)
                self.started_s[pod.uid] = self._by_the_node()
            else:
                self._hear_end(pod.uid, 0, refused=True)

    def _by_the_node(self) -> int:
        """Return the node's time in seconds. Changes within two events have the same second."""
        return 1_000 + int(self.now_s) // 2

    def _run(self, number: int) -> None:
        for uid in self.unheard:
            self.world.fold(f"pod/{uid}", PodRunning(uid, NODE, started_s=self.started_s[uid]))
            self.known.runs(uid, self.now_s, self.started_s[uid])
        self.unheard.clear()

    def _end(self, number: int) -> None:
        """End a pod; the scheduler observes it at once or with the next end."""
        uids = [uid for uid in self.state.pods if uid not in self.unheard]
        if uids:
            uid = self.rng.choice(uids)
            self.state = drop_stale(remove(self.state, uid))
            self.ended.append((uid, self._by_the_node()))
        while self.ended and self.rng.random() < 0.8:
            self._hear_end(*self.ended.pop(0))

    def _hear_end(self, uid: str, finished_s: int, refused: bool = False) -> None:
        cause: EndCause = "rejected" if refused else "succeeded"
        started_s = self.started_s.get(uid, 0)
        self.world.fold(
            f"pod/{uid}", PodEnded(uid, cause, NODE, started_s=started_s, finished_s=finished_s)
        )
        self.known.ended(uid, refused, self.now_s, started_s, finished_s)

    def _report(self, number: int) -> None:
        """Make a report, or deliver an earlier one."""
        if self.scan is None:
            self.scan = self.state, self.now_s
            return
        self.world.report(report_of(self.scan[0], True))
        self.known.reported(*self.scan)
        self.scan = None

    def admitted_in_every_state(self, pod: Pod) -> bool:
        """Return whether every possible state, and the true state, admits the pod; the true state
        does not count while an end is unobserved.
        """
        states = [
            *([] if self.ended else [self.state]),
            *(moment.state for moment in self.known.moments().now),
        ]
        return all(admit(state, pod).admitted for state in states)


TURNS = (*(Past._send, Past._come, Past._end) * 4, *(Past._run,) * 3, Past._report)


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_next_to_ended_pods_it_is_sound_and_seldom_refuses_needlessly(
    policy: str, scope: str
) -> None:
    passed, needless, unsound = 0, 0, []
    for seed in range(40):
        past = Past(seed, policy, scope)
        for pod in (
            random_pod(past.rng, "decided")
            for _ in range(NEWCOMERS if past.world.ledger.nodes[NODE].ended else 0)
        ):
            passes = past.world.cluster.verdict(pod, NODE) is None
            passed, needless = passed + passes, needless + (past.known.admits(pod) and not passes)
            unsound += [seed] if passes and not past.admitted_in_every_state(pod) else []
    assert unsound == []
    assert passed > 40
    assert needless <= passed // 4


def test_what_a_pod_without_cpus_of_its_own_was_listed_with_is_given_back_once() -> None:
    """Its uid is in the checkpoint and not in the listing, and nothing shows that both are one.
    Zone 0 has 59 Gi, of which it had 30 and another has 20: 39 are left for the second container,
    zone 1 being for the first.
    """
    fractional = guaranteed("fractional", container("c", amounts(0.5, 30)))
    other_pod = guaranteed("other", container("c", amounts(1, 20)))
    state = kubelet(2, "single-numa-node", "container")
    for pod in (fractional, other_pod):
        state = start_containers(admit(state, pod).state, pod)
    for asked in (39, 45):
        world = proven_world(state, CycleConfig())
        world.fold("pod/fractional", PodEnded("fractional", "succeeded", NODE))
        newcomer = guaranteed(
            "new", container("a", amounts(1, 59)), container("b", amounts(1, asked))
        )
        truth = admit(drop_stale(remove(state, "fractional")), newcomer).admitted
        assert (world.cluster.verdict(newcomer, NODE) is None) == truth == (asked == 39)


def test_a_pod_that_was_sent_after_two_ends_comes_after_them() -> None:
    """Two of 4 CPUs end, one in each zone, and A of 4 is sent: it takes zone 0, and B of 4 finds
    zone 1.
    """
    world = with_two_listed(
        [zone(at, {"cpu": 0}, amounts(4)) for at in (0, 1)], cpus=4, places=(0, 1)
    )
    end_both(world)
    reserve(world, guaranteed("a", container("c", amounts(4))))
    assert isinstance(world.cluster.place(guaranteed("b", container("c", amounts(4)))), Placed)
    assert isinstance(world.cluster.place(guaranteed("b", container("c", amounts(5)))), Unplaceable)


def test_a_pod_that_was_sent_before_an_end_was_heard_of_may_have_come_before_it() -> None:
    """Zone 0 has 4 CPUs and zone 1 has 6. Two pods of 2 CPUs fill zone 0 and end after A of 4 CPUs
    was reserved, so A is in zone 1 or zone 0.
    """
    world = with_two_listed(
        [zone(0, {"cpu": 0}, amounts(4)), zone(1, amounts(6))], cpus=2, places=(0, 0)
    )
    reserve(world, guaranteed("a", container("c", amounts(4))))
    end_both(world)
    world.fold("pod/a", PodRunning("a", "n"))
    assert isinstance(world.cluster.place(guaranteed("b", container("c", amounts(4)))), Placed)
    assert isinstance(world.cluster.place(guaranteed("b", container("c", amounts(5)))), Unplaceable)


def test_a_pod_that_started_before_another_had_finished_came_before_that_one_s_end() -> None:
    """Zone 0 has 8 CPUs and zone 1 has 6; two of 4 that fill zone 0 end, and the log has their ends
    only after A of 4 runs. By the node's clock A started in second 100 and is in zone 1, if the
    others finished later; else it may have come to zone 0.
    """
    assert isinstance(
        _beside_two_ends(101, 101).cluster.place(guaranteed("b", container("c", amounts(8)))),
        Placed,
    )
    assert isinstance(
        _beside_two_ends(101, 100).cluster.place(guaranteed("b", container("c", amounts(8)))),
        Unplaceable,
    )
    assert isinstance(
        _beside_two_ends(101, 0).cluster.place(guaranteed("b", container("c", amounts(8)))),
        Unplaceable,
    )


def _beside_two_ends(*finished_s: int) -> World:
    world = with_two_listed(
        [zone(0, {"cpu": 0}, amounts(8)), zone(1, amounts(6))], cpus=4, places=(0, 0)
    )
    reserve(world, guaranteed("a", container("c", amounts(4))))
    world.fold("pod/a", PodRunning("a", "n", started_s=100))
    for name, second in zip(("old0", "old1"), finished_s, strict=True):
        world.fold(f"pod/{name}", PodEnded(name, "succeeded", "n", finished_s=second))
    return world


def test_a_pod_that_came_and_ended_since_the_report_may_have_moved_another() -> None:
    """Zone 0 has 6 CPUs, zone 1 has 8. X of 6 came, A of 4 was sent while it was there, and X
    ended: A is in either zone, so that 4 CPUs are surely free in one, but not 6.
    """
    world = World()
    world.node("n", zone(0, amounts(6)), zone(1, amounts(8)))
    reserve(world, guaranteed("x", container("c", amounts(6))))
    world.fold("pod/x", PodRunning("x", "n"))
    reserve(world, guaranteed("a", container("c", amounts(4))))
    world.fold("pod/a", PodRunning("a", "n"))
    world.fold("pod/x", PodEnded("x", "succeeded", "n"))
    assert isinstance(world.cluster.place(guaranteed("b", container("c", amounts(4)))), Placed)
    assert isinstance(world.cluster.place(guaranteed("b", container("c", amounts(7)))), Unplaceable)


def test_a_pod_that_a_partial_report_lists_with_nothing_came_since() -> None:
    """As before, but the report was read while the kubelet admitted X. It lists X without the
    resources that X got a moment later.
    """
    world = with_partial_listing("observe")
    assert isinstance(world.cluster.place(guaranteed("b", container("c", amounts(4)))), Placed)
    assert isinstance(world.cluster.place(guaranteed("b", container("c", amounts(7)))), Unplaceable)


@pytest.mark.parametrize("prediction", ["observe", "trust"])
def test_next_to_a_partially_listed_pod_no_zone_is_predicted(
    prediction: Literal["observe", "trust"],
) -> None:
    """A is in zone 1, because X was in zone 0, so that B goes to zone 0; if A had come first, B
    would go to zone 1.
    """
    placed = with_partial_listing(prediction).cluster.place(
        guaranteed("b", container("c", amounts(4)))
    )
    assert isinstance(placed, Placed)
    assert placed.predicted == {}


def with_partial_listing(prediction: Literal["observe", "trust"]) -> World:
    """Zone 0 has 6 CPUs, zone 1 has 8. X of 6 came while the report was read, A of 4 was sent, and
    X ended.
    """
    world = World(CycleConfig(prediction=prediction))
    zones = [zone(0, amounts(6)), zone(1, amounts(8))]
    world.observe("n")
    reserve(world, guaranteed("x", container("c", amounts(6))))
    world.report(report("n", zones, placements=(Placement("ns", "x", "c", ()),)))
    world.fold("pod/x", PodRunning("x", "n"))
    reserve(world, guaranteed("a", container("c", amounts(4))))
    world.fold("pod/a", PodRunning("a", "n"))
    world.fold("pod/x", PodEnded("x", "succeeded", "n"))
    return world


def with_two_listed(zones: Sequence[Zone], cpus: int, places: tuple[int, int]) -> World:
    """A node on which two pods of so many CPUs run, listed in these zones."""
    world = World()
    world.observe("n")
    listed = []
    for number, place in enumerate(places):
        world.running(guaranteed(f"old{number}", container("c", amounts(cpus))), "n")
        listed.append(
            Placement("ns", f"old{number}", "c", (ZonedAmount("cpu", (place,), cpus * 1000),))
        )
    world.report(report("n", zones, placements=listed, tracked=("cpu",)))
    return world


def end_both(world: World) -> None:
    for name in ("old0", "old1"):
        world.fold(f"pod/{name}", PodEnded(name, "succeeded", "n"))


def reserve(world: World, pod: Pod) -> None:
    """Reserve the pod on node n, in the log."""
    world.fold(f"pod/{pod.uid}", PodObserved(pod))
    world.fold(f"pod/{pod.uid}", PodReserved(pod.uid, "n"))
    world.fold("node/n", NodeCharged("n", pod.uid))


@pytest.mark.parametrize("checkpoints", [True, False])
@pytest.mark.parametrize(
    ("policy", "scope"), [rule for rule in RULES if rule[0] in ("single-numa-node", "restricted")]
)
def test_init_containers_amounts_block_pods_that_came_before_the_end(
    policy: str, scope: str, checkpoints: bool
) -> None:
    """No report shows the zone of the second pod: it is in the other zone if it was admitted before
    the end, and in this one otherwise.
    """
    old = guaranteed(
        "old", container("i", amounts(2, 1), kind="init"), container("c", amounts(0.5, 1))
    )
    coming, newcomer = (
        guaranteed("a", container("c", amounts(2, 1))),
        guaranteed("new", container("c", amounts(4, 1))),
    )
    state_before = drop_stale(
        start_containers(admit(kubelet(2, policy, scope, cores_per_zone=2), old).state, old)
    )
    world = proven_world(state_before, CycleConfig(), checkpoints)
    world.bound(coming, NODE)
    world.fold("pod/old", PodEnded("old", "succeeded", NODE))
    state_after = drop_stale(remove(admit(state_before, coming).state, "old"))
    assert not admit(state_after, newcomer).admitted
    assert world.cluster.verdict(newcomer, NODE) is not None
