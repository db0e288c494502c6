"""The CPU Manager: exclusive CPUs of Guaranteed containers, hints for them, reuse inside a pod, release.

Source: kubelet 1.36, cm/cpumanager/policy_static.go. Must not know other managers, nor who merges the hints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from shared.domain.pod import Container, Pod
from shared.domain.resources import CPU
from shared.kubelet.cpu_options import CpuOptions, check_machine, parse_cpu_options
from shared.kubelet.cpu_spread import take_spread
from shared.kubelet.cpu_take import take_packed
from shared.kubelet.cpuset import format_cpus
from shared.kubelet.errors import AllocationError, unexpected
from shared.kubelet.hint import Hint, Hints
from shared.kubelet.masks import enumerate_masks, mask_sizes, mask_sums, nodes_of
from shared.kubelet.options import ConfigError
from shared.kubelet.topology import CpuTopology

NONE, STATIC = "none", "static"
SMT_ALIGNMENT = "SMTAlignmentError"


class CpuManager(msgspec.Struct, frozen=True):
    """A configured CPU Manager; sets of CPUs are integers. `reserved_cores` is `reserved` with all thread siblings."""

    policy: str
    topology: CpuTopology
    options: CpuOptions = CpuOptions()
    reserved: int = 0
    reserved_cores: int = 0


class CpuState(msgspec.Struct, frozen=True):
    """The shared pool, the exclusive CPUs per pod uid and container, and what `reuse_uid` may take again."""

    shared: int
    entries: Mapping[str, Mapping[str, int]] = {}
    reuse_uid: str = ""
    reuse: int = 0

    def of(self, uid: str, container: str) -> int:
        """The exclusive CPUs of a container; the empty set where it has none."""
        return self.entries.get(uid, {}).get(container, 0)


def configure(
    topology: CpuTopology,
    policy: str,
    options: dict[str, str],
    reserved_count: int,
    reserved: int,
    topology_policy: str,
    alpha_options: bool = True,
) -> CpuManager | ConfigError:
    """A manager, or the error text with which the kubelet would not start.

    `reserved` is the explicit set of system CPUs (0: chosen by `reserved_count`).
    """
    if policy == NONE:
        return CpuManager(NONE, topology)
    if policy != STATIC:
        return ConfigError(f'unknown policy: "{policy}"')
    parsed = parse_cpu_options(options, alpha_options)
    if isinstance(parsed, ConfigError):
        return parsed
    clash = check_machine(parsed, topology, topology_policy)
    return clash or _with_reservation(CpuManager(STATIC, topology, parsed), reserved_count, reserved)


def _with_reservation(manager: CpuManager, count: int, explicit: int) -> CpuManager | ConfigError:
    chosen = explicit or take(manager, manager.topology.every, count)
    reserved = 0 if isinstance(chosen, str) else chosen
    if reserved.bit_count() != count:
        text = f"(size of {format_cpus(reserved)} did not equal {count})"
        return ConfigError(f"[cpumanager] unable to reserve the required amount of CPUs {text}")
    unknown = reserved & ~manager.topology.every
    if unknown:
        text = f"unknown CPU ID: {(unknown & -unknown).bit_length() - 1}"
        prefix = "[cpumanager] unable to build the reserved physical CPUs from the reserved set"
        return ConfigError(f"{prefix}: {text}")
    cores = sum(cpus for _, cpus in manager.topology.cores if cpus & reserved)
    return msgspec.structs.replace(manager, reserved=reserved, reserved_cores=cores)


def initial(manager: CpuManager) -> CpuState:
    """The state before any pod; under policy none the pool is not kept and stays empty."""
    if manager.policy == NONE:
        return CpuState(0)
    strict = manager.reserved if manager.options.strict_reservation else 0
    return CpuState(manager.topology.every & ~strict)


def validate(manager: CpuManager, state: CpuState) -> ConfigError | None:
    """Why a restarted kubelet would refuse this state, as read from its checkpoint; None if it starts."""
    if manager.policy == NONE or not (state.shared or state.entries):
        return None
    if not state.shared:
        return ConfigError("default cpuset cannot be empty")
    return _reserved_error(manager, state) or _overlap_error(state) or _known_error(manager, state)


def _reserved_error(manager: CpuManager, state: CpuState) -> ConfigError | None:
    quoted = f'"{format_cpus(manager.reserved)}" are present in defaultCpuSet: "{format_cpus(state.shared)}"'
    if manager.options.strict_reservation:
        return ConfigError(f"some of strictly reserved cpus: {quoted}") if manager.reserved & state.shared else None
    return ConfigError(f"not all reserved cpus: {quoted}") if manager.reserved & ~state.shared else None


def _overlap_error(state: CpuState) -> ConfigError | None:
    for uid, containers in sorted(state.entries.items()):
        for name, cpus in sorted(containers.items()):
            if cpus & state.shared:
                where = f'pod: {uid}, container: {name} cpuset: "{format_cpus(cpus)}"'
                return ConfigError(f'{where} overlaps with default cpuset "{format_cpus(state.shared)}"')
    return None


def _known_error(manager: CpuManager, state: CpuState) -> ConfigError | None:
    expected, known = initial(manager).shared, state.shared
    for containers in state.entries.values():
        known |= _union(containers.values())
    if known == expected:
        return None
    text = f'current set of available CPUs "{format_cpus(expected)}" doesn\'t match with CPUs in state'
    return ConfigError(f'{text} "{format_cpus(known)}"')


def exclusive_cpus(pod: Pod, container: Container) -> int:
    """How many exclusive CPUs a container gets: whole-number requests of Guaranteed pods, else 0."""
    if pod.qos != "Guaranteed" or pod.pod_level:
        return 0
    whole, fraction = divmod(container.requests.get(CPU, 0), 1000)
    return 0 if fraction else whole


def pod_exclusive_cpus(pod: Pod) -> int:
    """The pod-scope request: the larger of the long-running sum and the peak while init containers run (KEP-753)."""
    sidecars = apps = peak = 0
    for container in pod.containers:
        count = exclusive_cpus(pod, container)
        if container.kind == "sidecar":
            sidecars += count
        elif container.kind == "init":
            peak = max(peak, sidecars + count)
        else:
            apps += count
    return max(peak, apps + sidecars)


def container_hints(manager: CpuManager, state: CpuState, pod: Pod, container: Container) -> Hints:
    """Hints of one container; None for the shared pool."""
    count = exclusive_cpus(pod, container) if manager.policy == STATIC else 0
    if not count:
        return None
    owned = state.of(pod.uid, container.name)
    if owned:
        return {CPU: hints(manager, owned, 0, count) if owned.bit_count() == count else []}
    return {CPU: hints(manager, _available(manager, state), _reusable(state, pod), count)}


def pod_hints(manager: CpuManager, state: CpuState, pod: Pod) -> Hints:
    """Hints of a whole pod, for scope pod."""
    count = pod_exclusive_cpus(pod) if manager.policy == STATIC else 0
    if not count:
        return None
    owned = state.entries.get(pod.uid, {})
    counts = {container.name: exclusive_cpus(pod, container) for container in pod.containers}
    if any(cpus.bit_count() != counts.get(name, 0) for name, cpus in owned.items()):
        return {CPU: []}
    assigned = _union(owned.values())
    if assigned.bit_count() == count:
        return {CPU: hints(manager, assigned, 0, count)}
    return {CPU: hints(manager, _available(manager, state), _reusable(state, pod) | assigned, count)}


def hints(manager: CpuManager, available: int, reusable: int, count: int) -> list[Hint]:
    """A hint for each mask that holds all reusable CPUs and enough available ones, in enumeration order."""
    topology, nodes = manager.topology, manager.topology.numa_nodes
    free = mask_sums(nodes, [(available & cpus).bit_count() for _, cpus in topology.numas])
    needed = sum(1 << numa for numa, cpus in topology.numas if reusable & cpus)
    short, least = count - reusable.bit_count(), _least_nodes(topology, count)
    sized = zip(enumerate_masks(nodes), free, mask_sizes(nodes), strict=True)
    if manager.options.align_by_socket:
        aligned = _sockets_wanted(topology, least)
        fitting = [(mask, size) for mask, cpus, size in sized if cpus >= short and not needed & ~mask]
        return [Hint(mask, size == least or _sockets(topology, mask) == aligned) for mask, size in fitting]
    return [Hint(mask, size == least) for mask, cpus, size in sized if cpus >= short and not needed & ~mask]


def _least_nodes(topology: CpuTopology, count: int) -> int:
    """The smallest number of NUMA nodes whose CPUs, used or not, could hold the request."""
    held = 0
    for nodes, cpus in enumerate(sorted((cpus.bit_count() for _, cpus in topology.numas), reverse=True), 1):
        held += cpus
        if held >= count:
            return nodes
    return len(topology.numas)


def _sockets_wanted(topology: CpuTopology, least_nodes: int) -> int:
    """How many sockets a socket-aligned hint touches; -1 where sockets outnumber NUMA nodes."""
    per_socket = len(topology.numas) // len(topology.sockets)
    return -(-least_nodes // per_socket) if per_socket else -1


def _sockets(topology: CpuTopology, mask: int) -> int:
    return len({socket for numa in nodes_of(mask) for socket, _, _ in topology.sockets_in_numa[numa]})


def allocate(manager: CpuManager, state: CpuState, pod: Pod, container: Container, hint: Hint) -> CpuState | AllocationError:
    """Gives a container its exclusive CPUs under the stored hint; the mask is a wish, not a bound."""
    count = exclusive_cpus(pod, container) if manager.policy == STATIC else 0
    if not count:
        return state
    refusal = _smt_refusal(manager, state, count)
    if refusal is not None:
        return refusal
    owned = state.of(pod.uid, container.name)
    if owned:
        return _with_reuse(state, pod, container, owned)
    taken = _take_aligned(manager, _available(manager, state) | _reusable(state, pod), count, hint.mask)
    if isinstance(taken, str):
        return unexpected(taken)
    containers = {**state.entries.get(pod.uid, {}), container.name: taken}
    after = CpuState(state.shared & ~taken, {**state.entries, pod.uid: containers}, state.reuse_uid, state.reuse)
    return _with_reuse(after, pod, container, taken)


def _smt_refusal(manager: CpuManager, state: CpuState, count: int) -> AllocationError | None:
    """full-pcpus-only: whole cores only; reusable CPUs are not counted, and owned ones do not help."""
    if not manager.options.full_pcpus_only:
        return None
    per_core = manager.topology.cpus_per_core
    if count % per_core:
        return AllocationError(
            SMT_ALIGNMENT, f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {per_core}"
        )
    physical = (state.shared & ~manager.reserved_cores).bit_count()
    if count <= physical:
        return None
    numbers = f"available physical CPUs = {physical}, requested CPUs = {count}, CPUs per core = {per_core}"
    return AllocationError(SMT_ALIGNMENT, f"SMT Alignment Error: not enough free physical CPUs: {numbers}")


def _take_aligned(manager: CpuManager, allocatable: int, count: int, mask: int | None) -> int | str:
    aligned = 0 if mask is None else allocatable & _reach(manager, mask)
    first = take(manager, aligned, min(count, aligned.bit_count()))
    if isinstance(first, str) or first.bit_count() == count:
        return first
    rest = take(manager, allocatable & ~first, count - first.bit_count())
    return rest if isinstance(rest, str) else first | rest


def _reach(manager: CpuManager, mask: int) -> int:
    """The CPUs that a mask prefers: those of its NUMA nodes, or of all their sockets under align-by-socket."""
    topology = manager.topology
    nodes = [numa for numa in nodes_of(mask) if numa in topology.numa_mask]
    if not manager.options.align_by_socket:
        return _union(topology.numa_mask[numa] for numa in nodes)
    return _union(cpus for numa in nodes for _, cpus, _ in topology.sockets_in_numa[numa])


def take(manager: CpuManager, cpus: int, count: int) -> int | str:
    """`count` of `cpus` as the options ask, regardless of affinity; or the kubelet's error text."""
    options = manager.options
    if options.across_numa:
        group = manager.topology.cpus_per_core if options.full_pcpus_only else 1
        return take_spread(manager.topology, cpus, count, group, spread_cores=options.across_cores)
    return take_packed(manager.topology, cpus, count, spread_cores=options.across_cores, align_uncore=options.align_uncore)


def _with_reuse(state: CpuState, pod: Pod, container: Container, cpus: int) -> CpuState:
    """CPUs of a regular init container may be taken again by later ones; the reuse data of other pods is dropped."""
    before = _reusable(state, pod)
    after = before | cpus if container.kind == "init" else before & ~cpus
    return CpuState(state.shared, state.entries, pod.uid, after)


def remove_pod(state: CpuState, uid: str) -> CpuState:
    """All CPUs of a pod go back to the shared pool; its reuse data is forgotten, as its uid never returns."""
    if state.reuse_uid == uid:
        state = CpuState(state.shared, state.entries)
    if uid not in state.entries:
        return state
    entries = {other: containers for other, containers in state.entries.items() if other != uid}
    shared = state.shared | _union(state.entries[uid].values())
    return CpuState(shared, entries, state.reuse_uid, state.reuse)


def _available(manager: CpuManager, state: CpuState) -> int:
    return state.shared & ~manager.reserved


def _reusable(state: CpuState, pod: Pod) -> int:
    return state.reuse if state.reuse_uid == pod.uid else 0


def _union(sets: Iterable[int]) -> int:
    union = 0
    for cpus in sets:
        union |= cpus
    return union
