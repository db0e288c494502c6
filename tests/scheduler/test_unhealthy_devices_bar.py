"""Unlisted unhealthy devices for which the kubelet rejects any pod that names them: the judge is
the kubelet model. The real one, kubelet 1.36.2, answered alike in recorded admissions
(`tests/vectors/data`).
"""

from __future__ import annotations

import msgspec
import pytest

from services.scheduler.extender.verbs import Texts, filtered, placed_on, preempted
from services.scheduler.extender.wire import Offer
from services.scheduler.filter.constraints.unusable_resources import MAY_LIE_IN_ZONES
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Container, Pod
from shared.domain.policies import POLICIES
from shared.domain.refusal import Reason, Refusal
from shared.hints.devices import UNHEALTHY
from shared.kubelet.admission import admit
from shared.kubelet.device_state import Device, register
from shared.kubelet.machine import KubeletState
from tests.kubelet.machines import GIB, GPU, kubelet
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import NODE, proven_world, report_of, unhealthy_devices

INSISTING = ("single-numa-node", "restricted")


def naming(gpus: int | None) -> Pod:
    amounts = {"cpu": 1000, "memory": GIB, **({} if gpus is None else {GPU: gpus})}
    return Pod("p", "ns", "p", "Guaranteed", (Container("c", "app", amounts, amounts),))


def with_gpus(policy: str, scope: str = "container", **gpus: Device) -> KubeletState:
    state = kubelet(2, policy, scope)
    return msgspec.structs.replace(state, devices=register(state.devices, GPU, gpus))


def judged(state: KubeletState, pod: Pod) -> Refusal | None:
    world = proven_world(state, CycleConfig())
    refusal = world.cluster.verdict(pod, NODE)
    assert (refusal is None) is admit(state, pod).admitted
    assert isinstance(world.cluster.place(pod), Placed) is (refusal is None)
    return refusal


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_without_a_healthy_device_no_pod_that_names_the_resource_passes(
    policy: str, scope: str
) -> None:
    state = with_gpus(policy, scope, a=Device(1, False), b=Device(2, False))
    refusal = judged(state, naming(0))
    assert refusal is not None
    assert (refusal.reason, refusal.resource, refusal.asked) == (Reason.NODE_RESOURCE, GPU, 0)
    assert "do not name the resource" in refusal.remedy
    assert judged(state, naming(1)) is not None
    assert judged(state, naming(None)) is None


@pytest.mark.parametrize("policy", POLICIES)
def test_one_healthy_device_is_enough_for_a_pod_that_requests_none(policy: str) -> None:
    assert judged(with_gpus(policy, a=Device(1), b=Device(2, False)), naming(0)) is None


@pytest.mark.parametrize("policy", INSISTING)
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_one_unhealthy_device_in_a_zone_makes_zones_matter_for_devices_without_a_zone(
    policy: str, scope: str
) -> None:
    refusal = judged(
        with_gpus(policy, scope, a=Device(None), b=Device(None), c=Device(1, False)), naming(1)
    )
    assert refusal is not None
    assert (refusal.subject, refusal.resource, refusal.asked) == (MAY_LIE_IN_ZONES, GPU, 1)
    assert f"(undecided: {UNHEALTHY})" in refusal.remedy


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_nor_does_it_matter_where_no_hint_is_insisted_on(policy: str) -> None:
    assert judged(with_gpus(policy, a=Device(None), c=Device(1, False)), naming(1)) is None


@pytest.mark.parametrize("policy", INSISTING)
def test_a_held_device_is_listed_with_its_zone(policy: str) -> None:
    """Here it has no zone, so it hides none."""
    state = admit(
        with_gpus(policy, a=Device(None), b=Device(None)),
        holder := msgspec.structs.replace(naming(1), uid="h", name="h"),
    )
    (device,) = state.state.devices.held[holder.uid]["c"][GPU]
    pool = {each: Device(None, each != device) for each in ("a", "b")}
    state_after = msgspec.structs.replace(
        state.state, devices=register(state.state.devices, GPU, pool)
    )
    assert judged(state_after, naming(1)) is None


def lost(policy: str, before: Device, after: Device) -> World:
    """Device b was listed as healthy, and the next report of the boot does not list it."""
    first, second = (
        with_gpus(policy, a=Device(None), b=before),
        with_gpus(policy, a=Device(None), b=after),
    )
    world = proven_world(first, CycleConfig())
    seen = world.ledger.nodes[NODE].observed
    assert seen is not None
    world.fold(f"node/{NODE}", msgspec.structs.replace(seen, unhealthy=unhealthy_devices(second)))
    world.report(msgspec.structs.replace(report_of(second, stored=True), boot_time_ms=2))
    return world


@pytest.mark.parametrize("policy", INSISTING)
def test_a_device_that_this_boot_listed_before_keeps_its_zone(policy: str) -> None:
    assert lost(policy, Device(None), Device(None, False)).cluster.verdict(naming(1), NODE) is None
    assert lost(policy, Device(1), Device(1, False)).cluster.verdict(naming(1), NODE) is not None


def test_of_an_earlier_boot_nothing_is_known() -> None:
    world = lost("restricted", Device(None), Device(None, False))
    state = with_gpus("restricted", a=Device(None), b=Device(None, False))
    world.report(
        msgspec.structs.replace(report_of(state, stored=True), boot_id="next", boot_time_ms=1)
    )
    assert world.cluster.verdict(naming(1), NODE) is not None


def test_waiting_pods_are_retried_when_a_device_heals() -> None:
    world, pod = proven_world(with_gpus("restricted", a=Device(1, False)), CycleConfig()), naming(0)
    assert not isinstance(world.cluster.place(pod), Placed)
    seen = world.ledger.nodes[NODE].observed
    assert seen is not None
    world.fold(
        f"node/{NODE}",
        msgspec.structs.replace(seen, unhealthy={}, allocatable={**seen.allocatable, GPU: 1}),
    )
    assert isinstance(world.cluster.place(pod), Placed)
    world.cluster.drop_node(NODE)
    assert not world.cluster.view.unusable


def test_a_stock_kube_scheduler_learns_that_no_eviction_is_needed() -> None:
    world = proven_world(with_gpus("restricted", a=Device(1, False)), CycleConfig())
    for amount, passes in ((0, False), (None, True)):
        pod = naming(amount)
        outcome = filtered(world.cluster, pod, [NODE], Texts())
        assert (outcome.passing, list(outcome.unresolvable)) == (
            ([NODE], []) if passes else ([], [NODE])
        )
        assert isinstance(placed_on(world.cluster, pod, NODE), Placed) is passes
        # kube-scheduler takes a node without victims in the answer for an error.
        assert preempted(world.cluster, world.ledger.pods, pod, {NODE: Offer(())}) == {}
