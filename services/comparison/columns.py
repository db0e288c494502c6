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
    """bool[node]: init containers alone on the untouched zones, app containers one after another in
    the lowest zone that fits, greedily (the plugin's container scope). `free` is [resource, zone,
    node], ABSENT where a zone lists nothing."""
    passed: Bools = np.ones(free.shape[2], dtype=np.bool_)
    for request in inits:
        passed &= fits(free, request).any(axis=0)
    left = free
    for at, request in enumerate(apps):
        fitting = fits(left, request)
        passed &= fitting.any(axis=0)
        if at + 1 < len(apps):
            left = left.copy()
            lowest = fitting.argmax(axis=0)
            places = (slice(None), lowest, np.arange(left.shape[2]))
            left[places] = np.where(left[places] == ABSENT, ABSENT, left[places] - request[:, None])
    return passed


def fits(free: Ints, request: Ints) -> Bools:
    """bool[zone, node]: the zone has every requested amount. Devices that no zone of a node lists
    constrain no zone of it.
    """
    found: Bools = np.ones(free.shape[1:], dtype=np.bool_)
    for at in np.flatnonzero(request > 0):
        enough = free[at] >= request[at]
        if is_device(NAMES[at]):
            enough |= (free[at] == ABSENT).all(axis=0)
        found &= enough
    return found


def score(free: Ints, parts: Sequence[Ints], most: bool) -> Ints:
    """The plugin's LeastAllocated or MostAllocated: the smallest zone score above zero, the mean
    over all containers.
    """
    total = np.zeros(free.shape[2], dtype=np.int64)
    for request in parts:
        asked = np.flatnonzero(request > 0)
        held, wanted = np.maximum(free[asked], 0), request[asked][:, None, None]
        gain = wanted if most else held - wanted
        share = np.where((held > 0) & (held >= wanted), gain * 100 // np.maximum(held, 1), 0)
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
    for each in inits:
        summed = np.maximum(summed, each)
    return np.asarray(summed, dtype=np.int64)


def zone_column(zones: Mapping[int, Amounts], count: int) -> Ints:
    """[resource, zone] of one node; what a zone does not list is ABSENT."""
    column = np.full((len(NAMES), count), ABSENT, dtype=np.int64)
    for zone, amounts in zones.items():
        for at, (name, unit) in enumerate(zip(NAMES, UNITS, strict=True)):
            if name in amounts:
                column[at, zone] = amounts[name] // unit
    return column


def salt_of(text: str) -> int:
    """64 bits for breaking ties."""
    return xxhash.xxh3_64_intdigest(text.encode())
