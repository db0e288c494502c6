"""Hugepages without a table in a zone: the real kubelet, 1.36.2, crashed with a nil pointer. The
kubelet model does not, so only the constraint judges here.
"""

from __future__ import annotations

import msgspec
import pytest

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Container, Pod
from shared.domain.policies import POLICIES
from shared.domain.refusal import Reason
from shared.kubelet.memory_state import NodeMemory
from tests.kubelet.machines import GIB, kubelet
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import NODE, proven_world

PAGES = "hugepages-2Mi"


def world(policy: str, checkpoints: bool = True) -> World:
    """Zone 1 has hugepages, zone 0 has no table of them."""
    state = kubelet(2, policy)
    zones = dict(state.memory.nodes)
    zones[0] = lacking(zones[0])
    return proven_world(
        msgspec.structs.replace(state, memory=msgspec.structs.replace(state.memory, nodes=zones)),
        CycleConfig(),
        checkpoints,
    )


def lacking(zone: NodeMemory) -> NodeMemory:
    tables = {name: table for name, table in zone.tables.items() if name != PAGES}
    return msgspec.structs.replace(zone, tables=tables)


def naming(pages: int | None, qos: str = "Guaranteed") -> Pod:
    amounts = {"cpu": 1000, "memory": GIB, **({} if pages is None else {PAGES: pages})}
    return Pod("p", "ns", "p", qos, (Container("c", "app", amounts, amounts),))  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("pages", [0, 1 << 21])
def test_no_pod_is_sent_there_that_would_end_the_kubelet(policy: str, pages: int) -> None:
    seen = world(policy)
    refusal = seen.cluster.verdict(naming(pages), NODE)
    assert refusal is not None
    assert (refusal.reason, refusal.resource) == (Reason.KUBELET_FAILS, PAGES)
    assert "in every zone" in refusal.remedy
    assert not isinstance(seen.cluster.place(naming(pages)), Placed)


def test_other_pods_and_not_guaranteed_pods_are() -> None:
    """The Memory Manager looks at Guaranteed pods alone."""
    seen = world("single-numa-node")
    assert seen.cluster.verdict(naming(None), NODE) is None
    assert seen.cluster.verdict(naming(1 << 21, "Burstable"), NODE) is None


def test_without_the_checkpoint_a_zone_without_pages_looks_alike() -> None:
    assert world("single-numa-node", checkpoints=False).cluster.verdict(naming(0), NODE) is None
