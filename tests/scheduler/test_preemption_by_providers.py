"""Preemption asks the same providers as the filter, even if the kubelet's state is known: the
victims make room by the provider's answer, and the remedy names its zone.

The provider is that of `tests/hints/licences.py`: licences exist in zone 1, although the report
shows some in each zone.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Nomination
from services.scheduler.snapshot.topology_policy import POLICY_LABEL
from shared.domain.pod import Container, Pod
from shared.domain.refusal import Refusal
from shared.events.cluster_events import PodEnded
from shared.hints import registry
from shared.hints.provider import HintProvider
from shared.kubelet.admission import admit, drop_stale, remove
from shared.kubelet.device_state import Device
from shared.kubelet.machine import KubeletState
from tests.hints.licences import HOME, LICENCE, Licences
from tests.kubelet.machines import GIB, GPU, kubelet
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import NODE, proven_world, random_pod, report_of
from tests.scheduler.test_cycle_soundness import RULES

HIGH = 10


def use(monkeypatch: pytest.MonkeyPatch, provider: HintProvider) -> None:
    monkeypatch.setattr(registry, "PROVIDERS", (*registry.PROVIDERS, provider))


def asking(name: str, cpus: int, licences: int = 0, priority: int = 0) -> Pod:
    amounts = {"cpu": cpus * 1000, "memory": GIB, **({LICENCE: licences} if licences else {})}
    return Pod(
        name,
        "ns",
        name,
        "Guaranteed",
        (Container("c", "app", amounts, amounts),),
        priority=priority,
    )


def licensed(state: KubeletState) -> KubeletState:
    """Return a report with two licences in each of two zones."""
    pool = {f"licence{zone}-{number}": Device(1 << zone) for zone in (0, HOME) for number in (0, 1)}
    registered = {**state.devices.registered, LICENCE: pool}
    return msgspec.structs.replace(
        state, devices=msgspec.structs.replace(state.devices, registered=registered)
    )


def full(*pods: Pod, policy: str = "single-numa-node") -> KubeletState:
    """Zone 0 gives 6 CPUs, zone 1 gives 8."""
    state = licensed(kubelet(2, policy, "container", cores_per_zone=4))
    for pod in pods:
        admission = admit(state, pod)
        assert admission.admitted
        state = admission.state
    return drop_stale(state)


def nominated(world: World, pod: Pod) -> Nomination | None:
    return world.cluster.nominate(pod, world.ledger.pods, (), None)


def refused(world: World, pod: Pod) -> Refusal:
    refusal = world.cluster.verdict(pod, NODE)
    assert refusal is not None
    return refusal


def evict(world: World, nomination: Nomination) -> None:
    for uid in nomination.victims:
        world.fold(f"pod/{uid}", PodEnded(uid, "deleted", NODE))


def with_plenty_on_the_node(state: KubeletState) -> World:
    """The node's object allows more licences than its zones show."""
    world = proven_world(state, CycleConfig())
    observed = world.ledger.nodes[NODE].observed
    assert observed is not None
    world.observe(NODE, allocatable={**observed.allocatable, LICENCE: 100})
    return world


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_pod_in_the_providers_zone_is_evicted(
    monkeypatch: pytest.MonkeyPatch, checkpoints: bool
) -> None:
    use(monkeypatch, Licences())
    world = proven_world(full(asking("low0", 5), asking("low1", 7)), CycleConfig(), checkpoints)
    high = asking("high", 4, 1, HIGH)
    assert refused(world, high).remedy == (
        f"request at most 1 cpu in container c; otherwise necessary: 3 more free cpu in zone {HOME}"
    )
    nomination = nominated(world, high)
    assert nomination is not None
    assert nomination.victims == ("low1",)
    assert set(nomination.zones) == {HOME}
    evict(world, nomination)
    assert world.cluster.verdict(high, NODE) is None


def test_amounts_do_not_keep_the_provider_from_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report shows no licence, but the provider has some."""
    use(monkeypatch, Licences(left=(3,)))
    lows = [asking("low0", 2, 2, HIGH), asking("low1", 7), asking("keeper", 1, 2, HIGH)]
    world = with_plenty_on_the_node(full(*lows))
    high = asking("high", 4, 1, HIGH)
    assert refused(world, high).resource == "cpu"
    nomination = nominated(world, high)
    assert nomination is not None
    assert nomination.victims == ("low1",)
    evict(world, nomination)
    assert world.cluster.verdict(high, NODE) is None


def test_no_pod_is_evicted_if_the_provider_may_have_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, Licences(left=(0, 2)))
    world = with_plenty_on_the_node(
        full(asking("low0", 1, 2), asking("low1", 6), asking("low2", 1, 2))
    )
    high = asking("high", 1, 1, HIGH)
    refusal = refused(world, high)
    assert refusal.resource == LICENCE
    assert "the pod may fit already" in refusal.remedy
    assert nominated(world, high) is None


def test_a_label_that_aligns_what_the_kubelet_does_not_counts_for_victims_too() -> None:
    """Koordinator's label, on a kubelet of policy none: two CPUs in each of two zones are of no
    use.
    """
    state = full(asking("low0", 6), asking("low1", 4), policy="none")
    world = proven_world(state, CycleConfig())
    assert [zone.resources["cpu"].available for zone in report_of(state).zones] == [2000, 2000]
    observed = world.ledger.nodes[NODE].observed
    assert observed is not None
    world.observe(NODE, allocatable=observed.allocatable, labels={POLICY_LABEL: "SingleNUMANode"})
    high = asking("high", 4, 0, HIGH)
    nomination = nominated(world, high)
    assert nomination is not None
    evict(world, nomination)
    assert world.cluster.verdict(high, NODE) is None


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_after_the_evictions_the_filter_takes_the_pod(
    monkeypatch: pytest.MonkeyPatch, policy: str, scope: str
) -> None:
    use(monkeypatch, Licences())
    helped = 0
    for seed in range(40):
        rng = random.Random(f"{seed} licences")
        state = licensed(kubelet(2, policy, scope, cores_per_zone=2))
        for number in range(rng.randint(2, 6)):
            state = admit(state, licence_of(random_pod(rng, f"p{number}"))).state
        world = proven_world(drop_stale(state), CycleConfig())
        high = msgspec.structs.replace(licence_of(random_pod(rng, "high")), priority=HIGH)
        verdict_before = world.cluster.verdict(high, NODE)
        nomination = nominated(world, high)
        if nomination is not None:
            assert verdict_before is not None
            evict(world, nomination)
            for uid in nomination.victims:
                state = remove(state, uid)
            world.report(report_of(state, stored=True))
            assert world.cluster.verdict(high, NODE) is None, seed
            helped += any(LICENCE in each.requests for each in high.containers)
    assert helped > 3


def licence_of(pod: Pod) -> Pod:
    """Return the pod with licences instead of GPUs."""
    containers = []
    for container in pod.containers:
        asked = {
            LICENCE if name == GPU else name: amount for name, amount in container.requests.items()
        }
        containers.append(msgspec.structs.replace(container, requests=asked, limits=asked))
    return msgspec.structs.replace(pod, containers=tuple(containers))
