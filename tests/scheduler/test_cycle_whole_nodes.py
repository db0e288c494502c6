"""Pods that take half a node or all of it: their zones may have more outcomes than are enumerated,
and are not searched if nothing depends on it.
"""

from __future__ import annotations

from typing import Any

import pytest

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import ContainerKind
from shared.hints.admission import KubeletModel
from shared.hints.devices import DeviceCountManager, Devices, Pool
from shared.hints.provider import RequestedAmounts, Reusable, State
from shared.hints.request import ContainerRequest, HintRequest
from shared.hints.splits import TooManyWaysError
from shared.kubelet.hint import Hint
from shared.kubelet.topology_manager import NO_HINT, TopologyManager
from tests.kubelet.machines import GPU, kubelet
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone
from tests.scheduler.kubelet_worlds import Scene, measured, truth, world_of

PARTS = (
    [(8, 64, 4)],
    [(8, 64, 4), (8, 64, 4)],
    [(8, 64, 5)],
    [(8, 32, 4), (8, 32, 3)],
    [(28, 250, 8)],
    [(8, 32, 2)] * 3,
)


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
@pytest.mark.parametrize("zones", [2, 4, 8])
def test_an_empty_node_of_eight_gpus_takes_what_its_kubelet_takes(
    zones: int, policy: str, scope: str
) -> None:
    gpus = {f"g{at}": 1 << at % zones for at in range(8)}
    state, taken = kubelet(zones, policy, scope, cores_per_zone=16 // zones, gpus=gpus), 0
    for parts in PARTS:
        pod = guaranteed(
            "p",
            *(
                container(f"c{at}", amounts(*each[:2]) | {GPU: each[2]})
                for at, each in enumerate(parts)
            ),
        )
        seen = Scene(state, (), pod)
        placed = isinstance(world_of(seen, CycleConfig()).cluster.place(pod), Placed)
        assert placed == (truth(seen) == "admitted"), parts
        taken += placed
    assert taken or policy == "restricted"


@pytest.mark.parametrize(
    ("policy", "scope", "zones", "seed"),
    [("single-numa-node", "pod", 5, 785369), ("best-effort", "pod", 8, 789487)],
)
def test_rare_scenes_that_were_refused_needlessly(
    policy: str, scope: str, zones: int, seed: int
) -> None:
    """Memory of an init container alone, which the pod's hint leaves out; 4 of 12 GPUs in 8
    zones.
    """
    outcome = measured([seed], policy, scope, unconfirmed=0, zones=zones)
    assert (outcome.passed, outcome.unsound) == (1, [])


@pytest.mark.parametrize(
    ("policy", "unconfirmed", "zones", "seed"),
    [("best-effort", 0, 5, 2200536), ("none", 3, 6, 2100593)],
)
def test_memory_groups_reject_no_pod_that_needs_no_memory(
    policy: str, unconfirmed: int, zones: int, seed: int
) -> None:
    """Other pods hold memory in several zones: a pod of devices alone passes, and so does one with
    its memory in another zone. The bulk evaluation found that, and the explanation must, too.
    """
    outcome = measured([seed], policy, "container", unconfirmed, checkpoints=False, zones=zones)
    assert (outcome.passed, outcome.unsound) == (1, [])


def test_a_report_that_counts_cpus_only_is_enough_for_a_pod_of_all_gpus() -> None:
    """Other exporters report no CPU ids, so 60 of 64 CPUs may come from 8 zones in thousands of
    ways.
    """
    world = World()
    world.node("n", *(zone(at, amounts(8, 32, 1)) for at in range(8)), policy="best-effort")
    assert isinstance(
        world.cluster.place(guaranteed("p", container("c", amounts(60, 250, 8)))), Placed
    )


def test_devices_that_are_too_few_are_refused_before_others_are_counted_out() -> None:
    """8 of 16 in 8 zones may be taken in 1,107 ways; the other resource has too little in any."""
    pool = Pool(tuple(1 << at for at in range(8)), (2,) * 8)
    manager, state = (
        DeviceCountManager((("many", pool), ("few", pool)), False),
        Devices(((2,) * 8, (0,) * 8)),
    )
    assert manager.allocate(state, None, (("many", 8), ("few", 1)), "app", NO_HINT) == ()
    with pytest.raises(TooManyWaysError):
        manager.allocate(state, None, (("many", 8),), "app", NO_HINT)


class Refuses:
    """A manager that is asked only for allocations, and refuses all of them."""

    def allocate(
        self,
        state: State,
        reusable: Reusable,
        requested: RequestedAmounts,
        kind: ContainerKind,
        hint: Hint,
    ) -> list[tuple[State, Reusable]]:
        return []


class Countless(Refuses):
    """A manager that never rejects."""

    def allocate(
        self,
        state: State,
        reusable: Reusable,
        requested: RequestedAmounts,
        kind: ContainerKind,
        hint: Hint,
    ) -> list[tuple[State, Reusable]]:
        raise TooManyWaysError


@pytest.mark.parametrize(
    ("managers", "refused"), [((Countless(), Refuses()), True), ((Countless(), Countless()), False)]
)
def test_an_evaluation_without_a_limit_speaks_for_no_other(managers: Any, refused: bool) -> None:
    model = KubeletModel(TopologyManager("none", "container", 0b11), managers)
    asked = ((("cpu", 1),), (("memory", 1),))
    request = HintRequest((), (ContainerRequest("app", asked),), asked, False)
    assert model.refuses((0, 0), request) == refused
    if not refused:
        with pytest.raises(TooManyWaysError):
            model.admit((0, 0), request)
