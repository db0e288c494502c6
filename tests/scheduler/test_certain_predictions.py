"""No prediction that is certain misses, while pods come and end, watches lag, and reports arrive
late. The judge is the kubelet model: pods reach it in any order, and its reports list their zones.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import pytest

from services.replay.confirmations import actual_zones
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Pod
from shared.domain.report import Placement, Report, ZonedAmount
from shared.events.cluster_events import PodEnded, PodObserved, PodRunning
from shared.events.scheduling_events import NodeCharged, PodReserved, ReservationWithdrawn
from shared.kubelet.admission import admit, drop_stale, remove, start_containers
from shared.kubelet.machine import KubeletState
from tests.kubelet.machines import kubelet
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, report, zone
from tests.scheduler.kubelet_worlds import NODE, proven_world, random_pod, report_of, scene
from tests.scheduler.test_cycle_soundness import RULES

EVENTS = 160
FOREIGN = 0.15
LONG_DELAY = 0.3
Zones = dict[str, tuple[int, ...]]


class Confirmed(NamedTuple):
    """A prediction and the zones in the report that confirmed the pod."""

    uid: str
    predicted: Zones
    actual: Zones
    certain: bool

    @property
    def hit(self) -> bool:
        return all(self.actual.get(name, zones) == zones for name, zones in self.predicted.items())


class Churn:
    """A kubelet, and a scheduler whose watches and reports lag behind it."""

    def __init__(self, seed: int, policy: str, scope: str, plain: bool) -> None:
        self.rng = random.Random(seed)
        self.plain = plain
        zones = self.rng.randint(1, 3)
        if plain:
            state = kubelet(zones, policy, scope, cores_per_zone=4, gpus={"g0": 1})
        else:
            state = scene(seed, policy, scope, zones, unconfirmed=0).base
        self.state = state
        self.world: World = proven_world(state, CycleConfig())
        self.sent: dict[str, Pod] = {}
        self.unreported_ends: list[str] = []
        self.unobserved: list[Pod] = []
        self.scans: list[KubeletState] = []
        self.confirmed: list[Confirmed] = []
        for number in range(EVENTS):
            self.rng.choice(TURNS)(self, number)

    def _pod(self, number: int) -> Pod:
        uid = f"p{number}"
        if not self.plain:
            return random_pod(self.rng, uid)
        gpu = int(self.rng.random() < 0.2)
        demand = amounts(self.rng.choice((1, 2, 3, 5)), self.rng.choice((1, 8, 20)), gpu)
        return guaranteed(uid, container("c", demand))

    def send(self, number: int) -> None:
        """Reserve a pod by Topolog's own choice, or let another scheduler bind one unobserved."""
        pod = self._pod(number)
        if self.rng.random() < FOREIGN:
            self.sent[pod.uid] = pod
            self.unobserved.append(pod)
            return
        placed = self.world.cluster.place(pod)
        if not isinstance(placed, Placed):
            return
        self.world.fold(f"pod/{pod.uid}", PodObserved(pod))
        self.world.fold(
            f"pod/{pod.uid}",
            PodReserved(pod.uid, NODE, predicted=placed.predicted, certain=placed.certain),
        )
        self.world.fold(f"node/{NODE}", NodeCharged(NODE, pod.uid))
        self.sent[pod.uid] = pod

    def admit_pending(self, number: int) -> None:
        """Let the kubelet admit one of the pending pods."""
        if not self.sent:
            return
        pod = self.sent.pop(self.rng.choice(list(self.sent)))
        outcome = admit(self.state, pod)
        self.state = drop_stale(outcome.state)
        if outcome.admitted:
            self.state = start_containers(self.state, pod)
        else:
            self.world.fold(f"pod/{pod.uid}", PodEnded(pod.uid, "rejected", NODE))

    def end(self, number: int) -> None:
        """End a pod that a watch has shown (see the last sentence of `certainty`)."""
        uids = sorted(self.state.pods.keys() - {pod.uid for pod in self.unobserved})
        if uids:
            uid = self.rng.choice(uids)
            self.state = drop_stale(remove(self.state, uid))
            self.unreported_ends.append(uid)

    def observe(self, number: int) -> None:
        """Deliver the next change to the scheduler."""
        for pod in self.unobserved:
            self.world.fold(f"pod/{pod.uid}", PodObserved(pod=pod, node=NODE))
        self.unobserved = []
        for uid in self.unreported_ends:
            self.world.fold(f"pod/{uid}", PodEnded(uid, "succeeded", NODE))
        self.unreported_ends = []
        for uid in self.state.pods:
            if uid in self.world.ledger.pods:
                self.world.fold(f"pod/{uid}", PodRunning(uid, NODE))

    def report(self, number: int) -> None:
        """Make a report, or deliver an earlier one."""
        if not self.scans or self.rng.random() < LONG_DELAY:
            self.scans.append(self.state)
            return
        node = self.world.ledger.nodes[NODE]
        confirmed_before = {uid for uid, charge in node.charges.items() if charge.confirmed}
        self.world.report(report_of(self.scans.pop(0), True))
        for uid, charge in node.charges.items():
            entry = self.world.ledger.pods[uid]
            if (
                charge.confirmed
                and uid not in confirmed_before
                and entry.predicted
                and charge.demand
            ):
                actual = actual_zones(node, charge.key)
                self.confirmed.append(Confirmed(uid, entry.predicted, actual, entry.certain))


TURNS: tuple[Callable[[Churn, int], None], ...] = (
    *(Churn.send,) * 4,
    *(Churn.admit_pending,) * 4,
    *(Churn.end,) * 2,
    *(Churn.observe,) * 2,
    *(Churn.report,) * 4,
)


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_under_churn_no_certain_prediction_misses(policy: str, scope: str, plain: bool) -> None:
    confirmed: list[Confirmed] = []
    for seed in range(12):
        outcome = Churn(seed, policy, scope, plain).confirmed
        assert [item for item in outcome if item.certain and not item.hit] == [], seed
        confirmed += outcome
    assert len(confirmed) > 30 or policy == "none"
    if policy == "single-numa-node":
        assert any(item.certain for item in confirmed)
        assert any(not item.hit for item in confirmed)


def place(world: World, pod: Pod) -> Placed:
    placed = world.cluster.place(pod)
    assert isinstance(placed, Placed)
    world.fold(f"pod/{pod.uid}", PodObserved(pod))
    world.fold(
        f"pod/{pod.uid}",
        PodReserved(pod.uid, "n", predicted=placed.predicted, certain=placed.certain),
    )
    world.fold("node/n", NodeCharged("n", pod.uid))
    return placed


def two_zones() -> World:
    world = World()
    world.node("n", zone(0, amounts(8)), zone(1, amounts(8)))
    return world


def pod(name: str, cpus: int) -> Pod:
    return guaranteed(name, container("c", amounts(cpus)))


def test_a_prediction_is_certain_if_no_order_of_other_pods_changes_it() -> None:
    """After 5 of 8 CPUs, which may be in either zone, 3 more fit zone 0 whatever comes first; 4
    more fit zone 0 only before them."""
    world = two_zones()
    assert place(world, pod("a", 5)).certain
    assert place(world, pod("b", 3)).certain
    assert not place(two_zones_with(pod("a", 5)), pod("b", 4)).certain


def two_zones_with(other: Pod) -> World:
    world = two_zones()
    place(world, other)
    return world


def listed_as(name: str, cpus: int, zone_id: int = 0) -> Placement:
    return Placement("ns", name, "c", (ZonedAmount("cpu", (zone_id,), cpus * 1000),))


def beside_old(in_zone_0: int) -> World:
    """Return a node with two zones of 8 CPUs: OLD is confirmed in zone 0, and A of 4 CPUs is
    pending.
    """
    world = World()
    world.observe("n")
    world.bound(pod("old", in_zone_0), "n")
    world.report(with_old(in_zone_0))
    place(world, pod("a", 4))
    assert world.ledger.pods["a"].certain
    return world


def with_old(cpus: int, *more: Placement, time_ms: int = 1, taken: int = 0) -> Report:
    return report(
        "n",
        [zone(0, amounts(8 - cpus - taken), amounts(8)), zone(1, amounts(8))],
        placements=(listed_as("old", cpus), *more) if cpus else more,
        time_ms=time_ms,
    )


def test_a_pod_that_may_arrive_first_ends_the_certainty_unless_both_have_room() -> None:
    world = beside_old(2)
    world.bound(pod("b", 2), "n")
    assert world.ledger.pods["a"].certain
    world.bound(pod("c", 1), "n")
    assert not world.ledger.pods["a"].certain


def test_an_end_leaves_a_prediction_certain_if_no_zone_is_lower() -> None:
    for in_zone_0, stays in ((2, True), (6, False)):
        world = beside_old(in_zone_0)
        world.fold("pod/old", PodEnded("old", "succeeded", "n"))
        assert world.ledger.pods["a"].certain is stays


def test_a_report_that_shows_an_end_before_the_watch_does_ends_the_certainty() -> None:
    world = beside_old(6)
    world.report(with_old(0, listed_as("a", 4), time_ms=2, taken=4))
    assert world.ledger.nodes["n"].charges["a"].confirmed
    assert not world.ledger.pods["a"].certain


def test_a_report_that_shows_an_unknown_pod_ends_the_certainty() -> None:
    world = beside_old(2)
    world.report(with_old(2, listed_as("unknown", 5), listed_as("a", 4, 1), time_ms=2, taken=5))
    assert not world.ledger.pods["a"].certain


def test_zones_of_another_size_end_the_certainty() -> None:
    world = beside_old(2)
    world.report(
        report(
            "n",
            [zone(0, amounts(7), amounts(9)), zone(1, amounts(8))],
            placements=(listed_as("old", 2),),
            time_ms=2,
        )
    )
    assert not world.ledger.pods["a"].certain


def test_a_certainty_is_final_once_a_report_has_confirmed_the_pod() -> None:
    world = beside_old(2)
    world.report(with_old(2, listed_as("a", 4), time_ms=2, taken=4))
    world.bound(pod("b", 8), "n")
    assert world.ledger.pods["a"].certain


def test_a_withdrawn_reservation_is_certain_of_nothing() -> None:
    world = beside_old(2)
    world.fold("pod/a", ReservationWithdrawn("a", "n", "unasked"))
    assert not world.ledger.pods["a"].certain


def test_a_pod_without_zone_resources_voids_nothing() -> None:
    world = two_zones()
    place(world, pod("a", 1))
    world.bound(msgspec.structs.replace(pod("other", 1), qos="Burstable"), "n")
    assert world.ledger.pods["a"].certain


def test_a_report_that_lists_such_a_pod_ends_no_certainty() -> None:
    world = beside_old(2)
    world.bound(msgspec.structs.replace(pod("other", 1), qos="Burstable"), "n")
    idle = Placement("ns", "other", "c")
    world.report(with_old(2, idle, listed_as("a", 4), time_ms=2, taken=4))
    assert world.ledger.nodes["n"].charges["a"].confirmed
    assert world.ledger.pods["a"].certain
