"""The Memory Manager, policy Static: which NUMA nodes a container's memory and hugepages may take,
and taking them.

Only Guaranteed pods without pod-level resources take part. A node that holds a block of its own
alone never joins a group, and a group of nodes stays one until it is empty. This module must not
know CPUs, devices or the merge. Source: kubelet 1.36 memorymanager/policy_static.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from shared.domain.pod import Container, Pod
from shared.domain.resources import HUGEPAGES_PREFIX, MEMORY, Amounts, add, largest
from shared.kubelet.errors import AllocationError, unexpected
from shared.kubelet.hint import Hint, Hints
from shared.kubelet.masks import enumerate_masks, mask_sizes, mask_sums, narrower
from shared.kubelet.memory_state import (
    Block,
    Blocks,
    MemoryState,
    NodeMemory,
    initial,
    release,
    take,
)

__all__ = ["allocate", "container_hints", "initial", "pod_hints", "release_init", "remove_pod"]

NO_DEFAULT = "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
NO_EXTENSION = "[memorymanager] failed to find NUMA nodes to extend the current topology hint"
NOT_PREFERRED_DEFAULT = "[memorymanager] failed to find the default preferred hint"
NOT_PREFERRED_EXTENSION = "[memorymanager] failed to find the extended preferred hint"
VIOLATION = "[memorymanager] preferred hint violates NUMA node allocation"


def container_hints(state: MemoryState, pod: Pod, container: Container) -> Hints:
    """Hints for one container; None for "no preference", an empty dict when no mask can hold it."""
    if not _takes_part(state, pod):
        return None
    requested = _requested(container)
    held = _held(state, pod, container)
    return _hints(state, pod, requested) if held is None else _hints_of(held, requested)


def pod_hints(state: MemoryState, pod: Pod) -> Hints:
    """Hints for the pod as a whole (scope pod); the first container that holds blocks decides them
    all.
    """
    if not _takes_part(state, pod):
        return None
    requested = _pod_requested(pod)
    for container in pod.containers:
        held = _held(state, pod, container)
        if held is not None:
            return _hints_of(held, requested)
    return _hints(state, pod, requested)


def allocate(
    state: MemoryState, pod: Pod, container: Container, hint: Hint
) -> MemoryState | AllocationError:
    """The book with the container's blocks, near `hint`, or the kubelet's refusal. Idempotent."""
    if not _takes_part(state, pod):
        return state
    held = _held(state, pod, container)
    if held is not None:
        return _with_reuse(state, pod, container, held)
    requested = _requested(container)
    mask = _final_mask(state, pod, requested, hint)
    if isinstance(mask, AllocationError):
        return mask
    blocks = tuple(Block(mask, size, resource) for resource, size in requested.items())
    return _booked(state, pod, container, blocks) if blocks else state


def remove_pod(state: MemoryState, uid: str) -> MemoryState:
    """The book after the pod is gone; what its init containers left is forgotten, as its uid never
    returns.
    """
    if state.reuse_uid == uid:
        state = MemoryState(state.config, state.nodes, state.entries)
    held = state.entries.get(uid)
    return state if held is None else release(state, uid, tuple(held))


def release_init(state: MemoryState, pod: Pod, started: str) -> MemoryState:
    """The book after container `started` runs: ordinary init containers listed before it have
    ended.
    """
    return release(state, pod.uid, tuple(_inits_before(pod, started)))


def _takes_part(state: MemoryState, pod: Pod) -> bool:
    return state.config.policy == "Static" and pod.qos == "Guaranteed" and not pod.pod_level


def _held(state: MemoryState, pod: Pod, container: Container) -> Blocks | None:
    return state.entries.get(pod.uid, {}).get(container.name)


def _requested(container: Container) -> Amounts:
    asked = container.requests
    return {
        name: asked[name]
        for name in sorted(asked)
        if name == MEMORY or name.startswith(HUGEPAGES_PREFIX)
    }


def _pod_requested(pod: Pod) -> Amounts:
    """The larger of the long-running sum and the init peak, for what app containers ask for."""
    apps: Amounts = {}
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in pod.containers:
        asked = _requested(container)
        if container.kind == "app":
            apps = add(apps, asked)
        elif container.kind == "sidecar":
            sidecars = add(sidecars, asked)
        else:
            peak = largest(
                peak, {name: size + sidecars.get(name, 0) for name, size in asked.items()}
            )
    return {
        name: max(size + sidecars.get(name, 0), peak.get(name, 0)) for name, size in apps.items()
    }


def _inits_before(pod: Pod, name: str) -> Iterator[str]:
    for container in pod.containers:
        if container.name == name or container.kind == "app":
            return
        if container.kind == "init":
            yield container.name


def _hints_of(held: Blocks, requested: Amounts) -> Hints:
    """What a container that already holds blocks proposes: exactly those, or no preference if it
    asks for others now.
    """
    if {block.resource: block.size for block in held} != requested or len(held) != len(requested):
        return None
    return {block.resource: [Hint(block.mask, True)] for block in held}


def _hints(state: MemoryState, pod: Pod, requested: Amounts) -> dict[str, list[Hint] | None]:
    found = _candidates(state, pod, requested)
    return dict.fromkeys(requested, found) if found else {}


def _candidates(state: MemoryState, pod: Pod, requested: Amounts) -> list[Hint]:
    """Every mask that can hold all of `requested`, in enumeration order; preferred where no
    narrower one ever could.
    """
    if not requested:
        return []
    ids = tuple(sorted(state.nodes))
    allocatable = tuple([_allocatable(state, name, ids) for name in requested])
    capable, least = _capable(ids, allocatable, tuple(requested.values()))
    fitting = _fitting(state, pod, requested, capable)
    grouping, masks, sizes = _Grouping.of(state.nodes), enumerate_masks(ids), mask_sizes(ids)
    if grouping.is_open:
        return [Hint(masks[at], sizes[at] == least) for at in fitting]
    return [Hint(mask, sizes[at] == least) for at in fitting if grouping.allows(mask := masks[at])]


def _fitting(
    state: MemoryState, pod: Pod, requested: Amounts, capable: Sequence[int]
) -> Sequence[int]:
    """Those positions of masks whose free and reusable memory covers the request."""
    ids = tuple(sorted(state.nodes))
    reuse = state.reuse if state.reuse_uid == pod.uid else {}
    for resource, need in requested.items():
        free = mask_sums(ids, [_free(state.nodes[node], resource) for node in ids])
        for mask, left in reuse.items():
            free[_positions(ids)[mask]] += left.get(resource, 0)
        capable = [at for at in capable if free[at] >= need]
    return capable


def _free(node: NodeMemory, resource: str) -> int:
    table = node.tables.get(resource)
    return 0 if table is None else table.free


def _allocatable(state: MemoryState, resource: str, ids: tuple[int, ...]) -> tuple[int, ...]:
    tables = [state.nodes[node].tables.get(resource) for node in ids]
    return tuple([0 if table is None else table.allocatable for table in tables])


@lru_cache(maxsize=64)
def _positions(ids: tuple[int, ...]) -> dict[int, int]:
    return {mask: at for at, mask in enumerate(enumerate_masks(ids))}


@lru_cache(maxsize=1024)
def _capable(
    ids: tuple[int, ...], allocatable: tuple[tuple[int, ...], ...], needs: tuple[int, ...]
) -> tuple[tuple[int, ...], int]:
    """Positions of the masks that could hold the request on an empty machine, and the fewest nodes
    among them.

    The fewest is the node count where none could.
    """
    capable: Sequence[int] = range(len(enumerate_masks(ids)))
    for amounts, need in zip(allocatable, needs, strict=True):
        sums = mask_sums(ids, amounts)
        capable = [at for at in capable if sums[at] >= need]
    return tuple(capable), min((mask_sizes(ids)[at] for at in capable), default=len(ids))


class _Grouping(msgspec.Struct, frozen=True):
    """Which masks the single-versus-group rule leaves open."""

    grouped: int
    alone: int
    groups: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, nodes: Mapping[int, NodeMemory]) -> _Grouping:
        grouped = alone = 0
        groups: dict[int, int] = {}
        for node_id, node in nodes.items():
            if node.cells.bit_count() > 1:
                grouped |= 1 << node_id
                if node.assignments:
                    groups[node.cells] = groups.get(node.cells, 0) | 1 << node_id
            elif node.assignments:
                alone |= 1 << node_id
        return cls(grouped, alone, tuple(groups.items()))

    @property
    def is_open(self) -> bool:
        """True on a machine where no node holds a block: every mask is allowed."""
        return not (self.grouped or self.alone)

    def allows(self, mask: int) -> bool:
        """May a hint propose `mask`?"""
        if not mask & (mask - 1):
            return not mask & self.grouped
        return self.allows_wide(mask)

    def allows_wide(self, mask: int) -> bool:
        """No node of the mask is used alone or in another group."""
        if mask & self.alone or not self.groups:
            return not mask & self.alone
        return all(mask == cells or not mask & members for cells, members in self.groups)


def _final_mask(
    state: MemoryState, pod: Pod, requested: Amounts, hint: Hint
) -> int | AllocationError:
    """The mask to take: the given one, widened or chosen anew where it cannot hold the request."""
    mask, preferred = hint.mask, hint.preferred
    if mask is None:
        own = _best(_candidates(state, pod, requested))
        if own is None or own.mask is None:
            return unexpected(NO_DEFAULT)
        if preferred and not own.preferred:
            return unexpected(NOT_PREFERRED_DEFAULT)
        mask, preferred = own.mask, own.preferred
    if not _covers(state, mask, requested):
        wider = _best(
            [own for own in _candidates(state, pod, requested) if _contains(own.mask, mask)]
        )
        if wider is None or wider.mask is None:
            return unexpected(NO_EXTENSION)
        if preferred and not wider.preferred:
            return unexpected(NOT_PREFERRED_EXTENSION)
        mask = wider.mask
    if mask & (mask - 1) and not _Grouping.of(state.nodes).allows_wide(mask):
        return unexpected(VIOLATION)
    return mask


def _contains(outer: int | None, inner: int) -> bool:
    return outer is not None and outer & inner == inner


def _best(hints: list[Hint]) -> Hint | None:
    """Preferred before not preferred, then the narrowest."""
    best: Hint | None = None
    for hint in hints:
        if best is None or _beats(hint, best):
            best = hint
    return best


def _beats(hint: Hint, best: Hint) -> bool:
    if hint.preferred != best.preferred:
        return hint.preferred
    return narrower(hint.mask or 0, best.mask or 0)


def _covers(state: MemoryState, mask: int, requested: Amounts) -> bool:
    """Enough free memory under the mask, not counting what init containers left."""
    inside = [node for node_id, node in state.nodes.items() if mask >> node_id & 1]
    return all(
        sum([_free(node, resource) for node in inside]) >= need
        for resource, need in requested.items()
    )


def _booked(state: MemoryState, pod: Pod, container: Container, blocks: Blocks) -> MemoryState:
    nodes = state.nodes
    reuse = state.reuse if state.reuse_uid == pod.uid else {}
    for block in blocks:
        nodes = take(nodes, block, reuse.get(block.mask, {}).get(block.resource, 0))
    held = {**state.entries.get(pod.uid, {}), container.name: blocks}
    entries = {**state.entries, pod.uid: _shrunk_inits(held, pod, container, blocks)}
    booked = MemoryState(state.config, nodes, entries, state.reuse_uid, state.reuse)
    return _with_reuse(booked, pod, container, blocks)


def _shrunk_inits(
    held: Mapping[str, Blocks], pod: Pod, container: Container, blocks: Blocks
) -> dict[str, Blocks]:
    """Stored blocks of earlier init containers shrink by what the new container reuses of them."""
    after = dict(held)
    for block in blocks:
        rest = block.size
        for name in _inits_before(pod, container.name):
            shrunk = []
            for old in after.get(name, ()):
                reused = (
                    min(old.size, rest)
                    if (old.resource, old.mask) == (block.resource, block.mask)
                    else 0
                )
                rest -= reused
                shrunk.append(Block(old.mask, old.size - reused, old.resource) if reused else old)
            if shrunk:
                after[name] = tuple(shrunk)
    return after


def _with_reuse(state: MemoryState, pod: Pod, container: Container, blocks: Blocks) -> MemoryState:
    """An init container leaves its blocks to later ones (the largest per mask and resource); others
    use them up.
    """
    reuse = (
        {mask: dict(left) for mask, left in state.reuse.items()}
        if state.reuse_uid == pod.uid
        else {}
    )
    for block in blocks:
        left = reuse.get(block.mask, {})
        before = left.get(block.resource, 0)
        if container.kind == "init":
            reuse[block.mask] = {**left, block.resource: max(before, block.size)}
        elif before:
            reuse[block.mask] = {**left, block.resource: max(before - block.size, 0)}
    return MemoryState(state.config, state.nodes, state.entries, pod.uid, reuse)
