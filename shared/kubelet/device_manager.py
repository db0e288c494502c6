"""The Device Manager: topology hints for device plugin resources, and the devices that a container
gets.

Requests are container limits, whatever the QoS class. The kubelet picks in Go's random map order in
some places; here the caller's `pick` decides (lowest id by default). This module does not know
CPUs, memory or the merge. Source: kubelet 1.36 devicemanager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import lru_cache

import msgspec

from shared.domain.effective import container_limit
from shared.domain.pod import Container, Pod
from shared.domain.resources import Amounts
from shared.kubelet.device_state import DevicePool, DeviceState, drop_pod, hold, register
from shared.kubelet.errors import AllocationError, unexpected
from shared.kubelet.hint import Hint, Hints
from shared.kubelet.masks import enumerate_masks, mask_of, mask_sizes, mask_sums, nodes_of

__all__ = [
    "allocate",
    "container_hints",
    "pod_hints",
    "register",
    "remove_pod",
    "split_by_affinity",
]

# Chooses that many members of a set where the kubelet chooses at random.
Pick = Callable[[Collection[str], int], Iterable[str]]

# A plugin's GetPreferredAllocation: (resource, available, must include, size) -> device ids.
Preferred = Callable[[str, frozenset[str], frozenset[str], int], Collection[str]]

_NONE: frozenset[str] = frozenset()


def lowest(devices: Collection[str], count: int) -> list[str]:
    return sorted(devices)[:count]


def container_hints(state: DeviceState, pod: Pod, container: Container) -> Hints:
    """Return hints for one container by resource: None means "no preference", [] means "cannot be
    satisfied".
    """
    hints: dict[str, list[Hint] | None] = {}
    for resource, request in _device_limits(state, container.limits):
        allocated = state.held.get(pod.uid, {}).get(container.name, {}).get(resource, _NONE)
        hints[resource] = _hints(
            state, resource, request, allocated, state.reusable(pod.uid, resource)
        )
    return hints


def pod_hints(state: DeviceState, pod: Pod) -> Hints:
    """Return hints for the pod as a whole (scope pod). Devices that init containers leave do not
    count.
    """
    hints: dict[str, list[Hint] | None] = {}
    for resource, request in _device_limits(state, container_limit(pod.containers)):
        holders = state.held.get(pod.uid, {}).values()
        allocated = _NONE.union(*(container.get(resource, _NONE) for container in holders))
        hints[resource] = _hints(state, resource, request, allocated, _NONE)
    return hints


def allocate(
    state: DeviceState,
    pod: Pod,
    container: Container,
    hint: Hint,
    pick: Pick = lowest,
    prefer: Preferred | None = None,
    running: bool = False,
) -> DeviceState | AllocationError:
    """Return the state with the container's devices, or the kubelet's refusal. Idempotent.

    `running` means that the container already runs: a restarted kubelet skips all checks then.
    """
    for resource, request in _device_limits(state, container.limits):
        got = _devices(state, pod, container, resource, request, hint, pick, prefer, running)
        if isinstance(got, AllocationError):
            return got
        if got:
            state = hold(state, pod.uid, container.name, resource, got)
    return _with_reuse(state, pod, container)


def remove_pod(state: DeviceState, uid: str) -> DeviceState:
    """Return the state without the pod. The reuse data of its init containers is dropped, because
    its uid never returns.
    """
    if state.reuse_uid == uid:
        state = msgspec.structs.replace(state, reuse_uid="", reuse={})
    return drop_pod(state, uid)


def split_by_affinity(
    state: DeviceState, resource: str, available: frozenset[str], mask: int | None
) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Split `available` into (aligned with `mask`, on other nodes, without a node)."""
    pool = state.pool(resource)
    if mask is None or not pool.bearing:
        return _NONE, _NONE, available
    aligned = _aligned(pool, available, mask)
    unaligned = _NONE.union(*[ids & available for nodes, ids in pool.groups if not nodes & mask])
    return aligned, unaligned, available - aligned - unaligned


def _device_limits(state: DeviceState, limits: Amounts) -> list[tuple[str, int]]:
    return [(resource, limits[resource]) for resource in sorted(limits) if state.is_known(resource)]


def _hints(
    state: DeviceState,
    resource: str,
    request: int,
    allocated: frozenset[str],
    reusable: frozenset[str],
) -> list[Hint] | None:
    pool = state.pool(resource)
    if not pool.bearing:
        return None
    if allocated:
        return (
            _enumerate(state, pool, request, allocated, _NONE) if len(allocated) == request else []
        )
    available = state.available(resource)
    if len(available | reusable if reusable else available) < request:
        return []
    return _enumerate(state, pool, request, available, reusable)


def _enumerate(
    state: DeviceState,
    pool: DevicePool,
    request: int,
    available: frozenset[str],
    reusable: frozenset[str],
) -> list[Hint]:
    """Yield every mask that enough free and reusable devices touch; preferred if no narrower mask
    ever could.
    """
    nodes = state.nodes if state.hint_nodes == "all" else _bearing(pool.bearing, state.nodes)
    must = [
        pool[name].mask or 0 for name in reusable if name in pool and pool[name].mask is not None
    ]
    matching = _touching(nodes, [(mask, len(ids & available)) for mask, ids in pool.groups])
    least = _least_nodes(nodes, pool.counts, request)
    short = request - len(must)
    hints = zip(enumerate_masks(nodes), matching, mask_sizes(nodes), strict=True)
    if not must:
        return [Hint(mask, size == least) for mask, count, size in hints if count >= short]
    bound = [
        (mask, size)
        for mask, count, size in hints
        if count >= short and all(mask & mask_node for mask_node in must)
    ]
    return [Hint(mask, size == least) for mask, size in bound]


@lru_cache(maxsize=256)
def _bearing(mask: int, nodes: tuple[int, ...]) -> tuple[int, ...]:
    return nodes_of(mask & mask_of(nodes))


@lru_cache(maxsize=256)
def _least_nodes(nodes: tuple[int, ...], counts: tuple[tuple[int, int], ...], request: int) -> int:
    """Return the fewest nodes that `request` devices touch, free or not; the node count if there
    are too few.
    """
    sized = zip(mask_sizes(nodes), _touching(nodes, counts), strict=True)
    return next((size for size, count in sized if count >= request), len(nodes))


def _touching(nodes: tuple[int, ...], counts: Iterable[tuple[int, int]]) -> list[int]:
    """Return how many devices touch each mask, in enumeration order, from `counts` by device
    mask.
    """
    by_mask = dict(counts)
    touching = mask_sums(nodes, [by_mask.pop(1 << node, 0) for node in nodes])
    for spread, count in by_mask.items():
        masks = enumerate_masks(nodes)
        touching = [
            total + count if mask & spread else total
            for mask, total in zip(masks, touching, strict=True)
        ]
    return touching


def _devices(
    state: DeviceState,
    pod: Pod,
    container: Container,
    resource: str,
    request: int,
    hint: Hint,
    pick: Pick,
    prefer: Preferred | None,
    running: bool,
) -> frozenset[str] | AllocationError:
    """Return the devices to add for one resource; empty if the container has them already."""
    allocated = state.held.get(pod.uid, {}).get(container.name, {}).get(resource)
    if allocated is not None and len(allocated) != request:
        return unexpected(
            f'pod "{pod.uid}" container "{container.name}" changed request for resource '
            f'"{resource}" '
            f"from {len(allocated)} to {request}"
        )
    if running:
        return _NONE
    refusal = _health_refusal(state, resource, allocated or _NONE)
    if refusal is not None:
        return refusal
    if allocated is not None or request == 0:
        return _NONE
    return _choose(state, pod.uid, resource, request, hint, pick, prefer)


def _health_refusal(
    state: DeviceState, resource: str, allocated: frozenset[str]
) -> AllocationError | None:
    if resource not in state.registered:
        return unexpected(f"cannot allocate unregistered device {resource}")
    healthy = state.healthy(resource)
    if not healthy:
        return unexpected(
            f"no healthy devices present; cannot allocate unhealthy devices {resource}"
        )
    if not allocated <= healthy:
        return unexpected(
            "previously allocated devices are no longer healthy; cannot allocate unhealthy "
            f"devices {resource}"
        )
    return None


def _choose(
    state: DeviceState,
    uid: str,
    resource: str,
    request: int,
    hint: Hint,
    pick: Pick,
    prefer: Preferred | None,
) -> frozenset[str] | AllocationError:
    """Choose reusable devices first, then aligned ones, then the plugin's preference, then other
    nodes, then no node.
    """
    reusable = state.reusable(uid, resource)
    chosen = _NONE.union(reusable if len(reusable) <= request else pick(reusable, request))
    need = request - len(chosen)
    if not need:
        return chosen
    available = state.available(resource)
    if len(available) < need:
        return unexpected(
            f"requested number of devices unavailable for {resource}. Requested: {need}, "
            f"Available: {len(available)}"
        )
    aligned = _aligned(state.pool(resource), available, hint.mask)
    if need < len(aligned):
        wish = prefer(resource, aligned | chosen, chosen, request) if prefer else _NONE
        return _filled(chosen, (aligned.intersection(wish), aligned), request, pick)
    chosen |= aligned
    if len(chosen) == request:
        return chosen
    wish = prefer(resource, available | chosen, chosen, request) if prefer else _NONE
    _, unaligned, no_affinity = split_by_affinity(state, resource, available, hint.mask)
    return _filled(chosen, (available.intersection(wish), unaligned, no_affinity), request, pick)


def _filled(
    chosen: frozenset[str], groups: Iterable[frozenset[str]], request: int, pick: Pick
) -> frozenset[str]:
    """Return `chosen` with members of the groups, in their order, up to `request` in all."""
    for group in groups:
        room = request - len(chosen)
        missing = group - chosen if room else _NONE
        if missing:
            chosen = chosen.union(missing if len(missing) <= room else pick(missing, room))
    return chosen


def _aligned(pool: DevicePool, available: frozenset[str], mask: int | None) -> frozenset[str]:
    if mask is None:
        return _NONE
    return _NONE.union(*[ids & available for nodes, ids in pool.groups if nodes & mask])


def _with_reuse(state: DeviceState, pod: Pod, container: Container) -> DeviceState:
    """Leave an ordinary init container's devices to later containers. Apps and sidecars remove
    theirs from the reuse set.
    """
    reuse = dict(state.reuse) if state.reuse_uid == pod.uid else {}
    allocated = state.held.get(pod.uid, {}).get(container.name)
    if not allocated and not state.reuse:
        return state
    for resource, devices in (allocated or {}).items():
        reused = reuse.get(resource, _NONE)
        reuse[resource] = reused | devices if container.kind == "init" else reused - devices
    return DeviceState(
        state.nodes, state.registered, state.held, state.in_use, pod.uid, reuse, state.hint_nodes
    )
