"""The CPUs that a request gets under distribute-cpus-across-numa: an even share on each of the
fewest NUMA nodes.

Among combinations of nodes the best balance of free CPUs wins. The kubelet remembers combinations
by reference to slices that later appends overwrite. This is visible from four nodes on and
reproduced here (`_Slice`). Source: kubelet 1.36, cm/cpumanager/cpu_assignment.go,
takeByTopologyNUMADistributed. This module does not know pods or hints.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from shared.kubelet.cpu_take import numa_order, take_packed, too_few
from shared.kubelet.topology import CpuTopology

_NEVER = math.inf


class _Slice(msgspec.Struct, frozen=True, gc=False):
    """A Go slice: `length` elements of a storage that siblings may share and overwrite."""

    storage: list[int]
    length: int

    def append(self, value: int) -> _Slice:
        """Append as Go does: in place while the capacity lasts, else into doubled storage."""
        storage = self.storage
        if self.length == len(storage):
            storage = storage[: self.length] + [0] * max(1, self.length)
        storage[self.length] = value
        return _Slice(storage, self.length + 1)

    def read(self) -> list[int]:
        return self.storage[: self.length]


class _Choice(msgspec.Struct, frozen=True):
    """The nodes of the even share, the nodes that take the remainder, and the balance that
    results.
    """

    nodes: _Slice
    remainder: _Slice
    balance: float


class _Request(msgspec.Struct, frozen=True):
    """`free` holds the free CPU count of every NUMA node with free CPUs."""

    count: int
    group: int
    free: dict[int, int]


def take_spread(
    topology: CpuTopology, available: int, count: int, group: int, *, spread_cores: bool = False
) -> int | str:
    """Return `count` CPUs in groups of `group`, spread evenly, packed if no even spread exists, or
    the error text.
    """
    if count <= 0:
        return 0
    if available.bit_count() < count and not count % group:
        return too_few(count, available.bit_count())
    choice = None if count % group else _choose(topology, available, count, group)
    if choice is None:
        return take_packed(topology, available, count, spread_cores=spread_cores)
    return _hand_out(topology, available, _Request(count, group, {}), choice, spread_cores)


def _choose(topology: CpuTopology, available: int, count: int, group: int) -> _Choice | None:
    nodes = numa_order(topology, available)
    free = {node: (available & topology.numa_mask[node]).bit_count() for node in nodes}
    least, most = _node_range(topology, len(nodes), count, group)
    for size in range(least, most + 1):
        best = _best_of_size(nodes, size, _Request(count, group, free))
        if best is not None:
            return best
    return None


def _node_range(
    topology: CpuTopology, available_nodes: int, count: int, group: int
) -> tuple[int, int]:
    groups = -(-topology.every.bit_count() // group)
    groups_per_node = -(-groups // len(topology.numas))
    needed = -(-count // group)
    return -(-needed // groups_per_node), min(needed, available_nodes)


def _combinations(
    nodes: list[int], size: int, start: int = 0, chosen: _Slice | None = None
) -> Iterator[_Slice]:
    chosen = chosen or _Slice([], 0)
    if size == 0:
        yield chosen
        return
    for index in range(start, len(nodes) - size + 1):
        yield from _combinations(nodes, size - 1, index + 1, chosen.append(nodes[index]))


def _best_of_size(nodes: list[int], size: int, request: _Request) -> _Choice | None:
    """Return the first strictly best combination. A perfect balance ends the search, as one step
    later in the kubelet.
    """
    best: _Choice | None = None
    for combination in _combinations(nodes, size):
        if best is not None and best.balance == 0:
            break
        choice = _balanced(combination, request)
        if choice is not None and (best is None or choice.balance < best.balance):
            best = choice
    return best


def _share(request: _Request, nodes: int) -> int:
    return request.count // nodes // request.group * request.group


def _balanced(combination: _Slice, request: _Request) -> _Choice | None:
    nodes, free, group = combination.read(), request.free, request.group
    share = _share(request, len(nodes))
    if sum(free[node] // group for node in nodes) * group < request.count:
        return None
    if any(free[node] < share for node in nodes):
        return None
    free_after = {node: count - share if node in nodes else count for node, count in free.items()}
    remainder = request.count - share * len(nodes)
    if not remainder:
        return _Choice(combination, _Slice([], 0), _deviation(free_after))
    return _best_remainder(
        combination,
        [node for node in nodes if free_after[node] >= group],
        free_after,
        remainder,
        group,
    )


def _best_remainder(
    combination: _Slice,
    candidates: list[int],
    free_after: dict[int, int],
    remainder: int,
    group: int,
) -> _Choice | None:
    best: _Choice | None = None
    for size in range(len(candidates), 0, -1):
        for subset in _combinations(candidates, size):
            balance = _deviation_after(free_after, subset.read(), remainder, group)
            if balance < (best.balance if best else _NEVER):
                best = _Choice(combination, subset, balance)
    return best


def _deviation_after(
    free_after: dict[int, int], subset: list[int], remainder: int, group: int
) -> float:
    """Return the balance after dealing the remainder round robin over `subset`; infinite if
    `subset` cannot hold it.
    """
    if sum(free_after[node] for node in subset) < remainder:
        return _NEVER
    free_cpus = dict(free_after)
    while remainder > 0:
        dealt = [node for node in subset if free_cpus[node] >= group][: remainder // group]
        if not dealt:
            return _NEVER
        for node in dealt:
            free_cpus[node] -= group
        remainder -= group * len(dealt)
    return _deviation(free_cpus)


def _deviation(counts: dict[int, int]) -> float:
    """Return the population standard deviation; mean and result rounded to three decimals, half
    away from zero.
    """
    mean = _round3(sum(counts.values()) / len(counts))
    return _round3(
        math.sqrt(sum((count - mean) * (count - mean) for count in counts.values()) / len(counts))
    )


def _round3(value: float) -> float:
    return math.floor(value * 1000 + 0.5) / 1000


def _hand_out(
    topology: CpuTopology, free: int, request: _Request, choice: _Choice, spread_cores: bool
) -> int | str:
    """Take the even share of each chosen node, packed inside it, then the remainder group by
    group.
    """
    nodes, taken, group = choice.nodes.read(), 0, request.group
    share = _share(request, len(nodes))
    for node in nodes:
        taken |= _take_within(topology, free & ~taken, node, share, spread_cores)
    while taken.bit_count() < request.count:
        previous = taken
        for node in choice.remainder.read():
            if taken.bit_count() < request.count:
                taken |= _take_within(topology, free & ~taken, node, group, spread_cores)
        if taken == previous:
            return (
                "accounting error, not enough CPUs allocated, remaining: "
                f"{request.count - taken.bit_count()}"
            )
    return taken


def _take_within(
    topology: CpuTopology, free: int, node: int, count: int, spread_cores: bool
) -> int:
    taken = take_packed(topology, free & topology.numa_mask[node], count, spread_cores=spread_cores)
    return 0 if isinstance(taken, str) else taken
