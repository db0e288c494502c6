"""GPUs and network cards: `python -m tests.bench devices [--horizon 3600] [--owner kubelet]`.

Machines are as in github.com/NVIDIA/nccl/issues/707 (`nvidia-smi topo -m`): two zones, each with
two PCIe switches of two GPUs and two network cards. Pods come and go on eight of them, and each
owner places them twice: by the Device objects, and by amounts alone, as without these objects.
Where the kubelet chooses, NVIDIA's plugin prefers GPUs by its rule, and network cards are any of
the zone. A JSON line for each way has:

- `near`: the share of pods with several devices that got them on one switch, or four GPUs in one
  zone with a network card of each switch;
- `whole_switches`, `whole_zones`: what share of the pods with two GPUs and a card of one switch,
  and with four GPUs of one zone, still fitted of those that the free GPUs of the nodes would hold,
  over time;
- `moves`: pods to move for one more pod of four GPUs and two cards by `topolog plan defragment`,
  the mean of the moments at which a plan made room.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from typing import Any

from services.replay.defragmenting import defragment
from services.scheduler.snapshot.config import CycleConfig
from shared.domain.idlist import format_ids
from shared.domain.pod import Container, Pod
from shared.domain.report import DeviceGroup, Placement, Report, Zone, ZonedAmount, ZoneResource
from shared.domain.resources import CPU
from shared.events import streams
from shared.events.cluster_events import NodeObserved, PodEnded, PodObserved
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import PodReserved
from shared.events.surroundings_events import NodeDevicesObserved
from shared.kubelet.masks import mask_of, nodes_of
from shared.kubelet.preferred_gpus import PRODUCT, preferred, scores_of
from shared.owned.device_request import JOINT_ALLOCATE
from shared.owned.devices import Device
from tests.scheduler.owned.given import CARD, OwnedWorld, layout

NODES, ZONES, GPUS, CPUS = 8, 2, 8, 96
GPU, NIC, RDMA = "nvidia.com/gpu", "example.com/nic", "koordinator.sh/rdma"
LABELS = {PRODUCT: "NVIDIA-A100-SXM4-40GB"}
# Requests for GPUs and network cards, by weight.
SHAPES = {(1, 0): 8, (1, 1): 3, (2, 1): 4, (2, 0): 2, (4, 2): 3}
MEAN_LIFE_S, SAMPLE_S = 300.0, 60.0
OWNERS = ("kubelet", "topolog")
Held = tuple[str, int, int]  # Node, GPUs and network cards, as sets of numbers.


def machine(node: str) -> tuple[Device, ...]:
    """Return the devices of a node. GPU n and card n are on switch n // 2, in zone n // 4."""
    gpus = [Device("gpu", n, CARD, n // 4, f"p{n // 2}", id=f"{node}-gpu-{n}") for n in range(GPUS)]
    cards = [
        Device("rdma", n, {RDMA: 100}, n // 4, f"p{n // 2}", id=f"{node}-nic-{n}")
        for n in range(GPUS)
    ]
    return (*gpus, *cards)


def is_near(gpus: int, cards: int) -> bool:
    """Return whether the devices of a pod lie as near to each other as they can."""
    switches = {n // 2 for n in (*nodes_of(gpus), *nodes_of(cards))}
    if gpus.bit_count() < 3:
        return len(switches) == 1
    return len({n // 4 for n in nodes_of(gpus)}) == 1 and (
        {n // 2 for n in nodes_of(cards)} == {n // 2 for n in nodes_of(gpus)}
    )


class Devices(OwnedWorld):
    """A cluster and what its kubelets, or Topolog, gave the pods."""

    def __init__(self, owner: str, by_objects: bool, seed: int) -> None:
        super().__init__("single-numa-node")
        self.owner, self.by_objects, self.chance = owner, by_objects, random.Random(seed)
        self.free = {f"n{at}": [(1 << GPUS) - 1] * 2 for at in range(NODES)}
        self.held: dict[str, Held] = {}
        self.pods: dict[str, tuple[Pod, float]] = {}
        self.reports = 0
        for name in self.free:
            offers = {CPU: ZONES * CPUS * 1000, "pods": 110, GPU: GPUS, NIC: GPUS}
            observed = NodeObserved(name, f"uid-{name}", allocatable=offers, labels=LABELS)
            self.tell(streams.node(name), observed)
            if by_objects:
                made = NodeDevicesObserved(name, devices=machine(name))
                self.tell(f"devices/{name}", made)
            self.report(name)

    def pod(self, name: str, gpus: int, cards: int) -> Pod:
        chosen_here = self.owner == "topolog" and self.by_objects
        amounts = {CPU: gpus * 4000, GPU: gpus}
        amounts |= {RDMA if chosen_here else NIC: cards * (100 if chosen_here else 1)}
        amounts = {resource: amount for resource, amount in amounts.items() if amount}
        joint = {JOINT_ALLOCATE: '{"deviceTypes":["gpu","rdma"]}'} if chosen_here and cards else {}
        containers = (Container("c", "app", amounts, amounts),)
        return Pod(
            f"uid-{name}", "ns", name, "Guaranteed", containers, scheduler_name="topolog",
            annotations=joint,
        )  # fmt: skip

    def report(self, node: str) -> None:
        """Append a report of what pods hold. Topolog's agent lists CPUs and no devices."""
        self.reports += 1
        kinds = ((GPU, "gpu"), (NIC, "nic"))
        by_kubelet = self.owner == "kubelet"
        zones, groups = [], list[DeviceGroup]()
        on_node = {uid: held for uid, held in self.held.items() if held[0] == node}
        for number in range(ZONES):
            in_zone = 0b1111 << 4 * number
            amounts = {}
            for index, (resource, kind) in enumerate(kinds):
                free = (self.free[node][index] & in_zone).bit_count() if by_kubelet else 4
                amounts[resource] = ZoneResource(4, 4, free)
                names = [f"{node}-{kind}-{n}" for n in nodes_of(in_zone)]
                groups.append(DeviceGroup(resource, (number,), format_ids(names)))
            if by_kubelet:
                used = 4000 * sum((held[1] & in_zone).bit_count() for held in on_node.values())
                amounts[CPU] = ZoneResource(CPUS * 1000, CPUS * 1000, CPUS * 1000 - used)
            bounds = {} if by_kubelet else {CPU: CPUS * 1000}
            zones.append(Zone(number, amounts, {}, bounds, bounds))
        fields: dict[str, Any] = {"tracked": (CPU, GPU, NIC), "policy": "single-numa-node"}
        if not by_kubelet:
            fields = {
                "tracked": (GPU, NIC), "policy": "none", "cpu_policy": "none",
                "memory_policy": "None", "cpus": layout(ZONES, CPUS), "enforcer": "topolog",
                "enforced": (),
            }  # fmt: skip
        placements = tuple(self._listed(uid, held) for uid, held in on_node.items() if by_kubelet)
        made = Report(
            node, "boot-1", self.reports, "exporter-1", zones=tuple(zones), devices=tuple(groups),
            placements=placements, **fields,
        )  # fmt: skip
        self.tell(streams.report(node), NodeReported(made))

    def _listed(self, uid: str, held: Held) -> Placement:
        node, gpus, cards = held
        zone = (nodes_of(gpus)[0] // 4,)
        items = [ZonedAmount(CPU, zone, 4000 * gpus.bit_count())]
        for resource, kind, numbers in ((GPU, "gpu", gpus), (NIC, "nic", cards)):
            if numbers:
                ids = format_ids([f"{node}-{kind}-{n}" for n in nodes_of(numbers)])
                items.append(ZonedAmount(resource, zone, numbers.bit_count(), ids))
        return Placement("ns", self.pods[uid][0].name, "c", tuple(items), uid)

    def admit(self, made: PodReserved, gpus: int, cards: int) -> None:
        """Give the pod its devices, as its owner does."""
        allocation = made.allocation
        if allocation is not None and allocation.devices:
            by_type = {"gpu": 0, "rdma": 0}
            for card in allocation.devices:
                by_type[card.type] |= 1 << card.minor
            chosen = by_type["gpu"], by_type["rdma"]
        else:
            zones = made.predicted.get("c", ()) if self.owner == "kubelet" else ()
            mask = self._zone(made.node, (*zones, *range(ZONES)), gpus, cards)
            chosen = self._preferred(made.node, mask, gpus), self._any(made.node, mask, cards)
        for kind in range(2):
            assert not chosen[kind] & ~self.free[made.node][kind]
            self.free[made.node][kind] &= ~chosen[kind]
        self.held[made.uid] = made.node, *chosen
        self.tell(
            streams.pod(made.uid),
            PodObserved(self.pods[made.uid][0], node=made.node, phase="Running"),
        )
        self.report(made.node)

    def _zone(self, node: str, zones: tuple[int, ...], gpus: int, cards: int) -> int:
        """Return the numbers of the first zone that has enough; all where nothing aligns."""
        if self.owner == "topolog":
            return (1 << GPUS) - 1
        free = self.free[node]
        masks = [0b1111 << 4 * zone for zone in zones]
        return next(
            mask
            for mask in masks
            if (free[0] & mask).bit_count() >= gpus and (free[1] & mask).bit_count() >= cards
        )

    def _preferred(self, node: str, mask: int, count: int) -> int:
        scores = scores_of(LABELS, tuple((n, n // 4, f"p{n // 2}") for n in range(GPUS)))
        assert scores is not None
        return self.chance.choice(sorted(preferred(self.free[node][0] & mask, count, scores)))

    def _any(self, node: str, mask: int, count: int) -> int:
        return mask_of(self.chance.sample(nodes_of(self.free[node][1] & mask), count))

    def end_pod(self, uid: str) -> None:
        node, *devices = self.held.pop(uid)
        for kind in range(2):
            self.free[node][kind] |= devices[kind]
        self.tell(streams.pod(uid), PodEnded(uid, "succeeded", node))
        self.report(node)

    def whole(self) -> tuple[float, float]:
        """Return the shares of pods of a switch and of a zone that still fit."""
        fits, most = [0, 0], [0, 0]
        for gpus, cards in self.free.values():
            for first in range(0, GPUS, 2):
                pair = 0b11 << first
                fits[0] += gpus & pair == pair and bool(cards & pair)
            fits[1] += sum(gpus & zone == zone for zone in (0b1111, 0b11110000))
            most[0] += min(gpus.bit_count() // 2, cards.bit_count())
            most[1] += gpus.bit_count() // 4
        return fits[0] / max(1, most[0]), fits[1] / max(1, most[1])


def play(owner: str, by_objects: bool, seed: int, horizon_s: float, load: float) -> dict[str, Any]:
    """Play the pods and return the measurements."""
    world, chance = Devices(owner, by_objects, seed), random.Random(seed)
    shapes, weights = list(SHAPES), list(SHAPES.values())
    mean = sum(gpus * weight for (gpus, _), weight in SHAPES.items()) / sum(weights)
    rate = load * NODES * GPUS / (mean * MEAN_LIFE_S)
    due: list[tuple[float, int, str, str]] = []
    at_s, shape_of, arrived, near = 0.0, dict[str, tuple[int, int]](), 0, list[bool]()
    while at_s < horizon_s:
        heapq.heappush(due, (at_s, arrived, "arrive", f"p{arrived}"))
        at_s, arrived = at_s + chance.expovariate(rate), arrived + 1
    for number in range(int(horizon_s / SAMPLE_S)):
        heapq.heappush(due, (number * SAMPLE_S, -1, "sample", ""))
    waits, shares, moves = list[float](), list[tuple[float, float]](), list[int]()
    while due and due[0][0] < horizon_s:
        now_s, order, what, name = heapq.heappop(due)
        if what == "sample":
            shares.append(world.whole())
            if (count := moves_for(world)) is not None:
                moves.append(count)
        elif what == "arrive":
            shape_of[f"uid-{name}"] = asked = chance.choices(shapes, weights)[0]
            world.pods[f"uid-{name}"] = world.pod(name, *asked), now_s
            chance.random()
            world.seen(world.pods[f"uid-{name}"][0])
        else:
            world.end_pod(name)
        while reserved := [event for event in world.turn() if isinstance(event, PodReserved)]:
            for event in reserved:
                world.admit(event, *shape_of[event.uid])
                waits.append(now_s - world.pods[event.uid][1])
                if sum(shape_of[event.uid]) > 1:
                    near.append(is_near(*world.held[event.uid][1:]))
                life = random.Random(f"{seed}{event.uid}").expovariate(1 / MEAN_LIFE_S)
                heapq.heappush(due, (now_s + life, order, "end", event.uid))
    waits.sort()
    return {
        "owner": owner,
        "placed": "by Device objects" if by_objects else "by amounts",
        "pods": arrived,
        "started": len(waits),
        "wait_p99_s": round(waits[int(len(waits) * 0.99)], 1),
        "near": round(sum(near) / len(near), 3),
        "whole_switches": round(sum(share for share, _ in shares) / len(shares), 3),
        "whole_zones": round(sum(share for _, share in shares) / len(shares), 3),
        "moves": round(sum(moves) / len(moves), 2) if moves else None,
    }


def moves_for(world: Devices) -> int | None:
    """Return the moves that make room for one more large pod, None if no moves do."""
    plan = defragment(world.core.folded, CycleConfig(default_policy="single-numa-node"),
                      world.pod("wanted", 4, 2), 1)  # fmt: skip
    return len(plan.steps[0].moves) if plan.steps else None


def main(argv: list[str]) -> None:
    """Print a JSON line for each owner and way of placing."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench devices", description=__doc__)
    parser.add_argument("--horizon", type=float, default=3600.0, help="virtual seconds")
    parser.add_argument("--load", type=float, default=0.8, help="offered share of the GPUs")
    parser.add_argument("--seed", type=int, default=20230815)
    parser.add_argument("--owner", choices=OWNERS, action="append")
    options = parser.parse_args(argv)
    for owner in options.owner or OWNERS:
        for by_objects in (True, False):
            result = play(owner, by_objects, options.seed, options.horizon, options.load)
            print(json.dumps(result), flush=True)
