"""The Memory Manager, policy Static: the NUMA nodes that a container's memory and hugepages may
use, and their allocation.

Only Guaranteed pods without pod-level resources take part. A node that holds a single-node block
never joins a group, and a group of nodes remains one until it is empty. This module does not know
CPUs, devices or the merge. Source: kubelet 1.36 memorymanager/policy_static.go.
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

NO_DEFAULT = (
    "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with "
    "enough memory is available"
)
NO_EXTENSION = "[memorymanager] failed to find NUMA nodes to extend the current topology hint"
NOT_PREFERRED_DEFAULT = "[memorymanager] failed to find the default preferred hint"
NOT_PREFERRED_EXTENSION = "[memorymanager] failed to find the extended preferred hint"
VIOLATION = "[memorymanager] preferred hint violates NUMA node allocation"


def container_hints(state: MemoryState, pod: Pod, container: Container) -> Hints:
    """Return hints for one container: None for "no preference", an empty dict if no mask can hold
    it.
    """
    if not _takes_part(state, pod):
        return None
    requested = _requested(container)
    blocks = _held(state, pod, container)
    return _hints(state, pod, requested) if blocks is None else _hints_of(blocks, requested)


def pod_hints(state: MemoryState, pod: Pod) -> Hints:
    """Return hints for the pod as a whole (scope pod). The first container that holds blocks
    decides them all.
    """
    if not _takes_part(state, pod):
        return None
    requested = _pod_requested(pod)
    for container in pod.containers:
        blocks = _held(state, pod, container)
        if blocks is not None:
            return _hints_of(blocks, requested)
    return _hints(state, pod, requested)


def allocate(
    state: MemoryState, pod: Pod, container: Container, hint: Hint
) -> MemoryState | AllocationError:
    """Return the state with the container's blocks, near `hint`, or the kubelet's refusal.
    Idempotent.
    """
    if not _takes_part(state, pod):
        return state
    held_blocks = _held(state, pod, container)
    if held_blocks is not None:
        return _with_reuse(state, pod, container, held_blocks)
    requested = _requested(container)
    mask = _final_mask(state, pod, requested, hint)
    if isinstance(mask, AllocationError):
        return mask
    blocks = tuple(Block(mask, size, resource) for resource, size in requested.items())
    return _booked(state, pod, container, blocks)


def remove_pod(state: MemoryState, uid: str) -> MemoryState:
    """Return the state without the pod. The reuse data of its init containers is dropped, because
    its uid never returns.
    """
    if state.reuse_uid == uid:
        state = MemoryState(state.config, state.nodes, state.entries)
    entries = state.entries.get(uid)
    return state if entries is None else release(state, uid, tuple(entries))


def release_init(state: MemoryState, pod: Pod, started: str) -> MemoryState:
    """Return the state after container `started` runs: ordinary init containers listed before it
    have ended.
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
    """Return the larger of the long-running sum and the init peak, for the resources that app
    containers request.
    """
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


def _hints_of(blocks: Blocks, requested: Amounts) -> Hints:
    """Return the hints of a container that already holds blocks: exactly those, or no preference if
    it requests others now.
    """
    if {block.resource: block.size for block in blocks} != requested or len(blocks) != len(
        requested
    ):
        return None
    return {block.resource: [Hint(block.mask, True)] for block in blocks}


def _hints(state: MemoryState, pod: Pod, requested: Amounts) -> dict[str, list[Hint] | None]:
    hints = _candidates(state, pod, requested)
    return dict.fromkeys(requested, hints) if hints else {}


def _candidates(state: MemoryState, pod: Pod, requested: Amounts) -> list[Hint]:
    """Yield every mask that can hold all of `requested`, in enumeration order; preferred if no
    narrower mask ever could.
    """
    if not requested:
        return []
    ids = tuple(sorted(state.nodes))
    allocatable = tuple([_allocatable(state, name, ids) for name in requested])
    capable, least = _capable(ids, allocatable, tuple(requested.values()))
    fitting = _fitting(state, pod, requested, capable)
    grouping, masks, sizes = _Grouping.of(state.nodes), enumerate_masks(ids), mask_sizes(ids)
    if grouping.is_open:
        return [Hint(masks[position], sizes[position] == least) for position in fitting]
    return [
        Hint(mask, sizes[position] == least)
        for position in fitting
        if grouping.allows(mask := masks[position])
    ]


def _fitting(
    state: MemoryState, pod: Pod, requested: Amounts, capable: Sequence[int]
) -> Sequence[int]:
    """Return the positions of masks with enough free and reusable memory for the request."""
    ids = tuple(sorted(state.nodes))
    reuse = state.reuse if state.reuse_uid == pod.uid else {}
    for resource, need in requested.items():
        free = mask_sums(ids, [_free(state.nodes[node], resource) for node in ids])
        for mask, missing in reuse.items():
            free[_positions(ids)[mask]] += missing.get(resource, 0)
        capable = [position for position in capable if free[position] >= need]
    return capable


def _free(node: NodeMemory, resource: str) -> int:
    table = node.tables.get(resource)
    return 0 if table is None else table.free


def _allocatable(state: MemoryState, resource: str, ids: tuple[int, ...]) -> tuple[int, ...]:
    tables = [state.nodes[node].tables.get(resource) for node in ids]
    return tuple([0 if table is None else table.allocatable for table in tables])


@lru_cache(maxsize=64)
def _positions(ids: tuple[int, ...]) -> dict[int, int]:
    return {mask: position for position, mask in enumerate(enumerate_masks(ids))}


@lru_cache(maxsize=1024)
def _capable(
    ids: tuple[int, ...], allocatable: tuple[tuple[int, ...], ...], needs: tuple[int, ...]
) -> tuple[tuple[int, ...], int]:
    """Return the positions of masks that could hold the request on an empty machine, and the fewest
    nodes among them.

    The fewest is the node count if no mask could.
    """
    capable: Sequence[int] = range(len(enumerate_masks(ids)))
    for amounts, need in zip(allocatable, needs, strict=True):
        sums = mask_sums(ids, amounts)
        capable = [position for position in capable if sums[position] >= need]
    return tuple(capable), min(
        (mask_sizes(ids)[position] for position in capable), default=len(ids)
    )


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
        """Return whether no node holds a block: every mask is allowed then."""
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
    """Return the mask to use: the given one, widened or chosen again if it cannot hold the
    request.
    """
    mask, preferred = hint.mask, hint.preferred
    if mask is None:
        requested_mask = _best(_candidates(state, pod, requested))
        if requested_mask is None or requested_mask.mask is None:
            return unexpected(NO_DEFAULT)
        if preferred and not requested_mask.preferred:
            return unexpected(NOT_PREFERRED_DEFAULT)
        mask, preferred = requested_mask.mask, requested_mask.preferred
    if not _covers(state, mask, requested):
        wider = _best(
            [
                requested_mask
                for requested_mask in _candidates(state, pod, requested)
                if _contains(requested_mask.mask, mask)
            ]
        )
        if wider is None or wider.mask is None:
            return unexpected(NO_EXTENSION)
        if preferred and not wider.preferred:
            return unexpected(NOT_PREFERRED_EXTENSION)
        mask = wider.mask
    checked = state.config.group_check and mask & (mask - 1)
    if checked and not _Grouping.of(state.nodes).allows_wide(mask):
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
    """Return whether the mask has enough free memory, without the memory that init containers
    left.
    """
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
    held_blocks = {**state.entries.get(pod.uid, {}), container.name: blocks}
    entries = {**state.entries, pod.uid: _shrunk_inits(held_blocks, pod, container, blocks)}
    booked = MemoryState(state.config, nodes, entries, state.reuse_uid, state.reuse)
    return _with_reuse(booked, pod, container, blocks)


def _shrunk_inits(
    entries: Mapping[str, Blocks], pod: Pod, container: Container, blocks: Blocks
) -> dict[str, Blocks]:
    """Shrink the stored blocks of earlier init containers by the amounts that the new container
    reuses.
    """
    remaining = dict(entries)
    for block in blocks:
        rest = block.size
        for name in _inits_before(pod, container.name):
            shrunk = []
            for old in remaining.get(name, ()):
                reused = (
                    min(old.size, rest)
                    if (old.resource, old.mask) == (block.resource, block.mask)
                    else 0
                )
                rest -= reused
                shrunk.append(Block(old.mask, old.size - reused, old.resource) if reused else old)
            if shrunk:
                remaining[name] = tuple(shrunk)
    return remaining


def _with_reuse(state: MemoryState, pod: Pod, container: Container, blocks: Blocks) -> MemoryState:
    """Leave an init container's blocks to later ones (the largest per mask and resource). Other
    containers use them up.
    """
    reuse = (
        {mask: dict(remaining) for mask, remaining in state.reuse.items()}
        if state.reuse_uid == pod.uid
        else {}
    )
    for block in blocks:
        remaining = reuse.get(block.mask, {})
        reused = remaining.get(block.resource, 0)
        if container.kind == "init":
            reuse[block.mask] = {**remaining, block.resource: max(reused, block.size)}
        elif reused:
            reuse[block.mask] = {**remaining, block.resource: max(reused - block.size, 0)}
    return MemoryState(state.config, state.nodes, state.entries, pod.uid, reuse)
