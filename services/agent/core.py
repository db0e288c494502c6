"""Which CPUs and memory zones each container may use. Pure: a fold of pods and containers into a
state, and decisions as values.

1. A pod's own CPUs are taken from the first container's creation until the pod's sandbox ends,
   because its containers may restart in between.
2. Shared CPUs of zones are their online CPUs, less all that pods have for themselves, less reserved
   CPUs. Pods without a wish run on all CPUs that no pod has for itself, reserved ones included.
3. A wish that cannot be kept is a refusal. No pod takes a CPU of another pod, and none takes the
   last shared CPU of pods that run or of pods without a wish, so no container is left without CPUs.
4. `given` is what the runtime was last asked to set. A container whose target differs is updated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from services.agent.wishes import NOTHING, Wish
from shared.domain.report import Placement, ZonedAmount
from shared.domain.resources import CPU, MEMORY
from shared.kubelet.cpuset import cpus_of, each_cpu, format_cpus, union


class Machine(msgspec.Struct, frozen=True):
    """Online CPUs by zone, the set of zones with memory, and CPUs that no pod may have."""

    zones: dict[int, int] = {}
    memory: int = 0
    reserved: int = 0

    @property
    def cpus(self) -> int:
        return self.of(self.zones)

    def of(self, zones: Iterable[int]) -> int:
        """Return the online CPUs of these zones."""
        return union(self.zones.get(zone, 0) for zone in zones)


class Cpuset(msgspec.Struct, frozen=True):
    """CPUs and memory zones of a cgroup as sets; 0 is not set, so all of them."""

    cpus: int = 0
    mems: int = 0


class Pod(msgspec.Struct, frozen=True):
    """A pod's sandbox, its wish, and the parent of its containers' cgroups if it is known."""

    sandbox: str
    uid: str
    namespace: str
    name: str
    wish: Wish = NOTHING
    cgroup: str = ""


class Container(msgspec.Struct, frozen=True):
    """A live container. Before the runtime has created it, it cannot be updated.

    `given` is None if it is unknown which of two updates came last.
    """

    id: str
    sandbox: str
    name: str
    cgroup: str = ""
    given: Cpuset | None = Cpuset()
    is_created: bool = True


class Refusal(msgspec.Struct, frozen=True):
    """A wish that cannot be kept: one word for metrics, and the sentence."""

    reason: str
    text: str


class State(msgspec.Struct, frozen=True):
    """Pods by sandbox that have or had containers, and live containers by id."""

    machine: Machine = Machine()
    pods: dict[str, Pod] = {}
    containers: dict[str, Container] = {}

    @property
    def taken(self) -> int:
        """The CPUs that only one pod may use."""
        return union(pod.wish.cpus for pod in self.pods.values())


def target(machine: Machine, taken: int, wish: Wish) -> Cpuset:
    """Return what containers of a pod with this wish may use."""
    if wish.cpus:
        return Cpuset(wish.cpus, wish.memory)
    if wish.zones:
        return Cpuset(machine.of(each_cpu(wish.zones)) & ~taken & ~machine.reserved, wish.memory)
    return Cpuset(machine.cpus & ~taken, wish.memory)


def targets(state: State) -> dict[str, Cpuset]:
    """Return what every container may use."""
    taken = state.taken
    return {
        container.id: target(state.machine, taken, state.pods[container.sandbox].wish)
        for container in state.containers.values()
    }


def refusal(state: State, pod: Pod) -> Refusal | None:
    """Return why the pod's wish cannot be kept next to the pods on the node."""
    machine, wish = state.machine, pod.wish
    others = [other for other in state.pods.values() if other.sandbox != pod.sandbox]
    if offline := wish.cpus & ~machine.cpus:
        return Refusal("offline", f"CPUs {format_cpus(offline)} are not online")
    if reserved := wish.cpus & machine.reserved:
        return Refusal("reserved", f"CPUs {format_cpus(reserved)} are reserved on this node")
    for owner in others:
        shared = wish.cpus & owner.wish.cpus
        if shared and owner.uid != pod.uid:
            text = f"CPUs {format_cpus(shared)} belong to pod {owner.namespace}/{owner.name}"
            return Refusal("taken", text)
    zones = cpus_of(machine.zones)
    if unknown := wish.zones & ~zones | wish.memory & ~machine.memory:
        return Refusal("zone", f"zones {format_cpus(unknown)} do not exist or have no memory")
    taken = _taken_with(state, pod)
    for sharing in (pod, *others):
        if not target(machine, taken, sharing.wish).cpus:
            text = f"no shared CPU would be left for pod {sharing.namespace}/{sharing.name}"
            return Refusal("pool", text)
    if not target(machine, taken, NOTHING).cpus:
        return Refusal("pool", "no CPU would be left for pods without zones")
    return None


def creating(state: State, pod: Pod, container: Container) -> State:
    """Return the state with a container that the runtime is about to create.

    A former attempt to create the same container is dropped, because the runtime does not report
    failed ones.
    """
    containers = {
        other.id: other
        for other in state.containers.values()
        if other.is_created or (other.sandbox, other.name) != (container.sandbox, container.name)
    }
    wanted = target(state.machine, _taken_with(state, pod), pod.wish)
    entry = msgspec.structs.replace(container, given=as_given(state.machine, wanted))
    return msgspec.structs.replace(
        state,
        pods={**state.pods, pod.sandbox: pod},
        containers={**containers, container.id: entry},
    )


def _taken_with(state: State, pod: Pod) -> int:
    others = (other.wish.cpus for other in state.pods.values() if other.sandbox != pod.sandbox)
    return pod.wish.cpus | union(others)


def as_given(machine: Machine, wanted: Cpuset) -> Cpuset:
    """Return a new container's setting: none if it may use all CPUs."""
    return Cpuset(0, wanted.mems) if wanted.cpus == machine.cpus else wanted


def created(state: State, container: str, cgroup: str) -> State:
    """Return the state after the runtime has created a container."""
    entry = state.containers.get(container)
    if entry is None:
        return state
    entry = msgspec.structs.replace(entry, is_created=True, cgroup=cgroup or entry.cgroup)
    return _with(state, [entry])


def stopped(state: State, container: str) -> State:
    """Return the state without a container."""
    containers = {key: value for key, value in state.containers.items() if key != container}
    return msgspec.structs.replace(state, containers=containers)


def ended(state: State, sandbox: str) -> State:
    """Return the state without a pod and its containers: its CPUs are free."""
    pods = {key: pod for key, pod in state.pods.items() if key != sandbox}
    containers = {
        container.id: container
        for container in state.containers.values()
        if container.sandbox != sandbox
    }
    return msgspec.structs.replace(state, pods=pods, containers=containers)


def idle(state: State) -> dict[str, str]:
    """Return the cgroups of pods without live containers, by sandbox.

    Such a pod has ended if its cgroup is gone. A runtime that was restarted does not report the end
    of sandboxes that it started before (containerd, `needsStopping`).
    """
    live = {container.sandbox for container in state.containers.values()}
    return {key: pod.cgroup for key, pod in state.pods.items() if pod.cgroup and key not in live}


def synchronized(
    machine: Machine, pods: Iterable[Pod], containers: Iterable[Container]
) -> tuple[State, list[tuple[Pod, Refusal]]]:
    """Return the state of a runtime that has just connected, and the wishes of running pods that
    cannot be kept.

    Containers come in order of creation; of two pods with the same CPUs, the first keeps them. The
    other runs like a pod without a wish, because it cannot be refused any more.
    """
    listed = {pod.sandbox: pod for pod in pods}
    state, refused = State(machine), []
    for container in containers:
        pod = listed.get(container.sandbox)
        if pod is None:
            continue
        if container.sandbox not in state.pods:
            if problem := refusal(state, pod):
                refused.append((pod, problem))
                pod = msgspec.structs.replace(pod, wish=NOTHING)
            state = msgspec.structs.replace(state, pods={**state.pods, pod.sandbox: pod})
        state = _with(state, [container])
    return state, refused


def updates(state: State) -> dict[str, Cpuset]:
    """Return the settings that containers of the runtime lack, by id."""
    wanted = targets(state)
    return {
        container.id: wanted[container.id]
        for container in state.containers.values()
        if container.is_created and not _has(state.machine, container.given, wanted[container.id])
    }


def _has(machine: Machine, given: Cpuset | None, wanted: Cpuset) -> bool:
    if given is None or not wanted.cpus:
        return not wanted.cpus
    return (given.cpus or machine.cpus) == wanted.cpus and wanted.mems in (0, given.mems)


def sent(state: State, sets: Mapping[str, Cpuset]) -> State:
    """Return the state after the runtime was asked for these settings."""
    entries = (
        msgspec.structs.replace(state.containers[container], given=cpuset)
        for container, cpuset in sets.items()
        if container in state.containers
    )
    return _with(state, entries)


def overtaken(state: State, sets: Mapping[str, Cpuset]) -> State:
    """Return the state after a call that set these containers. If the runtime was asked for another
    setting of a container meanwhile, it is unknown which one counts.
    """
    given = state.containers
    return unknown(state, {key for key in sets if key in given and given[key].given != sets[key]})


def unknown(state: State, ids: Iterable[str]) -> State:
    """Return the state in which the settings of these containers are unknown, so that they are set
    again.
    """
    entries = (state.containers[key] for key in ids if key in state.containers)
    return _with(state, [msgspec.structs.replace(entry, given=None) for entry in entries])


def drifted(state: State, measured: Mapping[str, Cpuset]) -> set[str]:
    """Return the ids of containers whose CPUs or memory zones differ from their targets.

    A pod without a wish may have fewer, because the parents of its cgroup may be narrower.
    """
    ids, wanted = set(), targets(state)
    for container in state.containers.values():
        actual, due = measured.get(container.id), wanted[container.id]
        if actual is None or not container.is_created:
            continue
        beyond = actual.cpus & ~due.cpus or (due.mems and actual.mems & ~due.mems)
        has_wish = state.pods[container.sandbox].wish != NOTHING
        if beyond or (has_wish and due.cpus & state.machine.cpus != actual.cpus):
            ids.add(container.id)
    return ids


def _with(state: State, entries: Iterable[Container]) -> State:
    containers = {**state.containers, **{entry.id: entry for entry in entries}}
    return msgspec.structs.replace(state, containers=containers)


def placements(state: State, measured: Mapping[str, Cpuset]) -> tuple[Placement, ...]:
    """Return what containers of pods with a wish have by their cgroups, sorted.

    CPUs that a pod has for itself count as amount, shared CPUs are listed with amount 0. All
    containers of a pod have the same CPUs. Memory has zones and no amount.
    """
    made = []
    for container in state.containers.values():
        pod, actual = state.pods[container.sandbox], measured.get(container.id)
        if pod.wish != NOTHING and actual is not None:
            amounts = tuple(_held(state.machine, pod.wish, actual))
            made.append(Placement(pod.namespace, pod.name, container.name, amounts, pod.uid))
    return tuple(sorted(made, key=lambda entry: (entry.namespace, entry.pod, entry.container)))


def _held(machine: Machine, wish: Wish, actual: Cpuset) -> Iterator[ZonedAmount]:
    for zone, cpus in sorted(machine.zones.items()):
        if part := cpus & actual.cpus:
            amount = 1000 * part.bit_count() if wish.cpus else 0
            yield ZonedAmount(CPU, (zone,), amount, format_cpus(part))
    if wish.memory and actual.mems:
        yield ZonedAmount(MEMORY, tuple(each_cpu(actual.mems)), 0)
