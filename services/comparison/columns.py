"""Free amounts as numpy columns [resource, zone, node], and the plugin's filter and scores on all
nodes at once.

An equivalent of `plugins.upstream_compat` for the pods of this bench (Guaranteed, whole CPUs,
container scope, single-numa-node on every node): a test holds the two equal. Resources: cpu in
whole cores (the plugin rounds up), memory in MiB, GPUs and NICs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import xxhash

from services.simulator.cluster import GPU, NIC
from shared.domain.pod import Pod
from shared.domain.resources import CPU, MEMORY, Amounts, is_device

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
NAMES = (CPU, MEMORY, GPU, NIC)
UNITS = (1000, 2**20, 1, 1)
ABSENT = -1


def vector(amounts: Mapping[str, int]) -> Ints:
    """Amounts as [resource], rounded up to whole units."""
    return np.array(
        [-(-amounts.get(name, 0) // unit) for name, unit in zip(NAMES, UNITS, strict=True)],
        dtype=np.int64,
    )


def requests(pod: Pod) -> tuple[list[Ints], list[Ints]]:
    """Init containers' and app containers' requests."""
    inits = [vector(part.requests) for part in pod.containers if part.kind == "init"]
    return inits, [vector(part.requests) for part in pod.containers if part.kind == "app"]


def aligned(free: Ints, inits: Sequence[Ints], apps: Sequence[Ints]) -> Bools:
    """Return bool[node]: each init container alone on the untouched zones, app containers one after
    another in the lowest zone that fits, greedily (the plugin's container scope).

    `free` is [resource, zone, node], ABSENT if a zone lists nothing.
    """
    passed: Bools = np.ones(free.shape[2], dtype=np.bool_)
    for request in inits:
        passed &= fits(free, request).any(axis=0)
    remaining = free
    for index, request in enumerate(apps):
        fitting = fits(remaining, request)
        passed &= fitting.any(axis=0)
        if index + 1 < len(apps):
            remaining = remaining.copy()
            lowest = fitting.argmax(axis=0)
            places = (slice(None), lowest, np.arange(remaining.shape[2]))
            remaining[places] = np.where(
                remaining[places] == ABSENT, ABSENT, remaining[places] - request[:, None]
            )
    return passed


def fits(free: Ints, request: Ints) -> Bools:
    """bool[zone, node]: the zone has every requested amount. Devices that no zone of a node lists
    constrain no zone of it.
    """
    fitting: Bools = np.ones(free.shape[1:], dtype=np.bool_)
    for row in np.flatnonzero(request > 0):
        enough = free[row] >= request[row]
        if is_device(NAMES[row]):
            enough |= (free[row] == ABSENT).all(axis=0)
        fitting &= enough
    return fitting


def score(free: Ints, parts: Sequence[Ints], most: bool) -> Ints:
    """The plugin's LeastAllocated or MostAllocated: the smallest zone score above zero, the mean
    over all containers.
    """
    total = np.zeros(free.shape[2], dtype=np.int64)
    for request in parts:
        asked = np.flatnonzero(request > 0)
        clipped, wanted = np.maximum(free[asked], 0), request[asked][:, None, None]
        gain = wanted if most else clipped - wanted
        share = np.where(
            (clipped > 0) & (clipped >= wanted), gain * 100 // np.maximum(clipped, 1), 0
        )
        zones = share.sum(axis=0) // len(asked)
        smallest = np.where(zones > 0, zones, 1000).min(axis=0)
        total += np.where(smallest == 1000, 0, smallest)
    return total // max(1, len(parts))


def node_request(pod: Pod) -> Ints:
    """The pod's request of the node as a whole: the larger of the app containers' sum and any init
    container.
    """
    inits, apps = requests(pod)
    summed = np.sum(apps, axis=0)
    for init in inits:
        summed = np.maximum(summed, init)
    return np.asarray(summed, dtype=np.int64)


def zone_column(zones: Mapping[int, Amounts], count: int) -> Ints:
    """[resource, zone] of one node; what a zone does not list is ABSENT."""
    column = np.full((len(NAMES), count), ABSENT, dtype=np.int64)
    for zone, amounts in zones.items():
        for row, (name, unit) in enumerate(zip(NAMES, UNITS, strict=True)):
            if name in amounts:
                column[row, zone] = amounts[name] // unit
    return column


def salt_of(text: str) -> int:
    """64 bits for breaking ties."""
    return xxhash.xxh3_64_intdigest(text.encode())
