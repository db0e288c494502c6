"""Free amounts as numpy columns [resource, zone, node], and the plugin's filter and scores on all
nodes at once.

This computes what `plugins.upstream_compat` computes, for the pods of this bench (Guaranteed, whole
CPUs, container scope, single-numa-node on every node); a test compares the two. Resources: cpu in
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
    """Return the amounts as [resource], rounded up to whole units."""
    return np.array(
        [-(-amounts.get(name, 0) // unit) for name, unit in zip(NAMES, UNITS, strict=True)],
        dtype=np.int64,
    )


def requests(pod: Pod) -> tuple[list[Ints], list[Ints]]:
    """Return the requests of the init containers and of the app containers."""
    inits = [vector(part.requests) for part in pod.containers if part.kind == "init"]
    return inits, [vector(part.requests) for part in pod.containers if part.kind == "app"]


def aligned(free: Ints, inits: Sequence[Ints], apps: Sequence[Ints]) -> Bools:
    """Return as bool[node] whether the plugin's filter passes the pod under scope container: each
    init container fits a zone by itself, and the app containers fit one after another, each in the
    lowest zone that has room.

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
    """Return as bool[zone, node] whether the zone has every requested amount. A device that no zone
    of a node lists is not checked there.
    """
    fitting: Bools = np.ones(free.shape[1:], dtype=np.bool_)
    for row in np.flatnonzero(request > 0):
        enough = free[row] >= request[row]
        if is_device(NAMES[row]):
            enough |= (free[row] == ABSENT).all(axis=0)
        fitting &= enough
    return fitting


def score(free: Ints, parts: Sequence[Ints], most: bool) -> Ints:
    """Return the plugin's score, LeastAllocated or MostAllocated: of each container the smallest
    zone score above zero, then the mean over all containers.
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
    """Return what the pod requests of the node as a whole: the larger of the app containers' sum
    and any init container.
    """
    inits, apps = requests(pod)
    summed = np.sum(apps, axis=0)
    for init in inits:
        summed = np.maximum(summed, init)
    return np.asarray(summed, dtype=np.int64)


def zone_column(zones: Mapping[int, Amounts], count: int) -> Ints:
    """Return the zones of one node as [resource, zone]; ABSENT if a zone does not list a
    resource.
    """
    column = np.full((len(NAMES), count), ABSENT, dtype=np.int64)
    for zone, amounts in zones.items():
        for row, (name, unit) in enumerate(zip(NAMES, UNITS, strict=True)):
            if name in amounts:
                column[row, zone] = amounts[name] // unit
    return column


def salt_of(text: str) -> int:
    """Return 64 bits for breaking ties."""
    return xxhash.xxh3_64_intdigest(text.encode())
