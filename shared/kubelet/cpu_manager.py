"""The CPU Manager at work: exclusive CPUs for containers of Guaranteed pods, near a hint, reused
inside a pod.

Source: kubelet 1.36, cm/cpumanager/policy_static.go. This module does not know other managers or
the merge.
"""

from __future__ import annotations

from shared.domain.pod import Container, Pod
from shared.kubelet.cpu_hints import container_hints, hints, pod_hints
from shared.kubelet.cpu_policy import NONE, STATIC, CpuManager, configure, take
from shared.kubelet.cpu_request import exclusive_cpus
from shared.kubelet.cpu_state import CpuState, initial, remove_pod, validate
from shared.kubelet.cpuset import union
from shared.kubelet.errors import AllocationError, unexpected
from shared.kubelet.hint import Hint
from shared.kubelet.masks import nodes_of

__all__ = [
    "NONE",
    "SMT_ALIGNMENT",
    "STATIC",
    "CpuManager",
    "CpuState",
    "allocate",
    "configure",
    "container_hints",
    "exclusive_cpus",
    "hints",
    "initial",
    "pod_hints",
    "remove_pod",
    "take",
    "take_aligned",
    "too_few_whole_cores",
    "validate",
]

SMT_ALIGNMENT = "SMTAlignmentError"


def allocate(
    manager: CpuManager, state: CpuState, pod: Pod, container: Container, hint: Hint
) -> CpuState | AllocationError:
    """Allocate a container's exclusive CPUs under the stored hint. The mask is a preference, not a
    bound.
    """
    count = exclusive_cpus(pod, container) if manager.policy == STATIC else 0
    if not count:
        return state
    refusal = _smt_refusal(manager, state, count)
    if refusal is not None:
        return refusal
    owned = state.of(pod.uid, container.name)
    if owned:
        return _with_reuse(state, pod, container, owned)
    taken = take_aligned(
        manager, state.available(manager) | state.reusable(pod.uid), count, hint.mask
    )
    if isinstance(taken, str):
        return unexpected(taken)
    containers = {**state.entries.get(pod.uid, {}), container.name: taken}
    new_state = CpuState(
        state.shared & ~taken, {**state.entries, pod.uid: containers}, state.reuse_uid, state.reuse
    )
    return _with_reuse(new_state, pod, container, taken)


def _smt_refusal(manager: CpuManager, state: CpuState, count: int) -> AllocationError | None:
    """Check full-pcpus-only: only whole cores. Reusable CPUs do not count, and CPUs that the pod
    holds do not help.
    """
    if not manager.options.full_pcpus_only:
        return None
    per_core = manager.topology.cpus_per_core
    if count % per_core:
        return AllocationError(SMT_ALIGNMENT, _not_a_multiple(count, per_core))
    physical = (state.shared & ~manager.reserved_cores).bit_count()
    if count <= physical:
        return None
    if not physical and manager.rules.minor <= 31:
        return AllocationError(SMT_ALIGNMENT, _not_a_multiple(count, per_core))
    numbers = (
        f"available physical CPUs = {physical}, requested CPUs = {count}, CPUs per core = "
        f"{per_core}"
    )
    return AllocationError(
        SMT_ALIGNMENT, f"SMT Alignment Error: not enough free physical CPUs: {numbers}"
    )


def _not_a_multiple(count: int, per_core: int) -> str:
    return f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {per_core}"


def too_few_whole_cores(manager: CpuManager, shared: int, count: int) -> bool:
    """Return whether full-pcpus-only would refuse `count` CPUs from this shared pool, which
    includes the reserved ones.
    """
    if not manager.options.full_pcpus_only:
        return False
    return (
        bool(count % manager.topology.cpus_per_core)
        or count > (shared & ~manager.reserved_cores).bit_count()
    )


def take_aligned(manager: CpuManager, allocatable: int, count: int, mask: int | None) -> int | str:
    """Return `count` CPUs of `allocatable`, first those of the mask, or the kubelet's error
    text.
    """
    aligned = 0 if mask is None else allocatable & _reach(manager, mask)
    first = take(manager, aligned, min(count, aligned.bit_count()))
    if isinstance(first, str) or first.bit_count() == count:
        return first
    rest = take(manager, allocatable & ~first, count - first.bit_count())
    return rest if isinstance(rest, str) else first | rest


def _reach(manager: CpuManager, mask: int) -> int:
    """Return the CPUs that a mask prefers: those of its NUMA nodes, or of all their sockets under
    align-by-socket.
    """
    topology = manager.topology
    nodes = [numa for numa in nodes_of(mask) if numa in topology.numa_mask]
    if not manager.options.align_by_socket:
        return union(topology.numa_mask[numa] for numa in nodes)
    return union(cpus for numa in nodes for _, cpus, _ in topology.sockets_in_numa[numa])


def _with_reuse(state: CpuState, pod: Pod, container: Container, cpus: int) -> CpuState:
    """Let later containers take the CPUs of an init container again. The reuse data of other pods
    is dropped.
    """
    reused = state.reusable(pod.uid)
    reusable = reused | cpus if container.kind == "init" else reused & ~cpus
    return CpuState(state.shared, state.entries, pod.uid, reusable)
