"""What a registered provider changes: `python -m tests.hints.effects RESOURCE` prints it by the
words of CONTRIBUTING's recipe.

One kubelet of two zones, two of the resource in each as it seems, with pods that ask for CPUs
alone. Nothing here knows which providers there are.
"""

from __future__ import annotations

import json
import sys

import msgspec

from services.scheduler.core import CoreConfig
from services.scheduler.handlers import fold_of
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Nomination, Placed, Unplaceable
from shared.domain.pod import Container, Pod
from shared.kubelet.admission import admit, drop_stale
from shared.kubelet.device_state import Device
from tests.kubelet.machines import GIB, kubelet
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import NODE, proven_world


def pod(name: str, cpus: int, priority: int = 0, **more: int) -> Pod:
    asked = {"cpu": cpus * 1000, "memory": GIB, **more}
    return Pod(
        name, "ns", name, "Guaranteed", (Container("c", "app", asked, asked),), priority=priority
    )


def world(resource: str, *there: Pod) -> World:
    """Zone 0 gives 6 CPUs, zone 1 gives 8; they are filled in this order."""
    state = kubelet(2, "single-numa-node", "container", cores_per_zone=4)
    pool = {f"{zone}-{number}": Device(1 << zone) for zone in (0, 1) for number in (0, 1)}
    state = msgspec.structs.replace(
        state, devices=msgspec.structs.replace(state.devices, registered={resource: pool})
    )
    for running_pod in there:
        state = admit(state, running_pod).state
    return proven_world(drop_stale(state), CycleConfig())


def effects(resource: str) -> dict[str, object]:
    """Return decisions and messages for pods that request one unit of the resource. The pod in zone
    0 is the cheaper victim.
    """
    asking, empty, bound = pod("p", 4, 10, **{resource: 1}), world(resource), world(resource)
    full = world(resource, pod("low0", 5, -2), pod("low1", 7, -1))
    placed, refused = empty.cluster.place(asking), full.cluster.place(asking)
    bound.bound(asking, NODE)
    nominated = full.cluster.nominate(asking, full.ledger.pods, (), None)
    assert isinstance(placed, Placed)
    assert isinstance(refused, Unplaceable)
    assert isinstance(nominated, Nomination)
    return {
        "filter": isinstance(
            world(resource, pod("low0", 1), pod("low1", 7)).cluster.place(asking), Placed
        ),
        "charge": bound.ledger.nodes[NODE].charges["p"].possible,
        "reservation": sorted(empty.cluster.assume(placed, asking)),
        "prediction": placed.predicted,
        "preemption": nominated.victims,
        "explanation": refused.message,
        "snapshots": fold_of(CoreConfig()).fingerprint,
    }


if __name__ == "__main__":
    print(json.dumps(effects(sys.argv[1])))
