"""A pod that its init container keeps out is refused with that reason, and with a remedy that
helps.
"""

from __future__ import annotations

import pytest

from services.scheduler.snapshot.result import Placed, Unplaceable
from shared.domain.pod import Container, Pod
from tests.ledger.given import GIB, zone
from tests.scheduler.cycle_worlds import World, report


def asking(init_milli: int) -> Pod:
    def container(name: str, kind: str, milli: int) -> Container:
        amounts = {"cpu": milli, "memory": GIB}
        return Container(name, kind, amounts, amounts)  # type: ignore[arg-type]

    containers = (container("warm", "init", init_milli), container("train", "app", 14_000))
    return Pod("uid", "ns", "p", "Guaranteed", containers)


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted"])
def test_the_init_container_that_pins_the_zone_is_named(policy: str) -> None:
    """Zone 0 has 13 CPUs free, zone 1 has 16: the kubelet puts the init container into zone 0."""
    world = World()
    world.observe("n1")
    world.report(report("n1", (zone(0, 16, 13), zone(1, 16, 16)), policy, tracked=("cpu",)))
    refused = world.cluster.place(asking(1000))
    assert isinstance(refused, Unplaceable)
    (near_miss,) = refused.detail
    assert near_miss["container"] == "warm"
    assert "init container warm pins the zone" in str(near_miss["subject"])
    assert "for example 999m" in str(near_miss["remedy"])
    assert isinstance(world.cluster.place(asking(999)), Placed)
