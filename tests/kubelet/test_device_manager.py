"""The Device Manager proposes what a plain reading of its rules proposes, and gives every device to
one pod at most.
"""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.pod import Container, ContainerKind, Pod
from shared.kubelet.device_manager import allocate, container_hints, pod_hints, remove_pod
from shared.kubelet.device_state import Device, DeviceState, HintNodes, hold, register
from shared.kubelet.errors import AllocationError
from shared.kubelet.hint import Hint
from shared.kubelet.masks import mask_of
from tests.fixtures.examples import examples

GPU, NIC = "example.com/gpu", "example.com/nic"
ANY = Hint(None, False)


def machine(
    nodes: int = 2, hint_nodes: HintNodes = "bearing", **devices: dict[str, Device]
) -> DeviceState:
    """Return a machine with `gpu=` and `nic=` devices."""
    state = DeviceState(tuple(range(nodes)), hint_nodes=hint_nodes)
    for name, listed in devices.items():
        state = register(state, f"example.com/{name}", listed)
    return state


def container(name: str, kind: ContainerKind = "app", **limits: int) -> Container:
    """Return a container with `gpu=` and `nic=` limits."""
    asked = {f"example.com/{resource}": count for resource, count in limits.items()}
    return Container(name, kind, asked, asked)


def pod(*containers: Container, uid: str = "pod") -> Pod:
    """Return a pod, whose QoS class does not matter here."""
    return Pod(uid=uid, namespace="n", name=uid, containers=containers)


def given_to(state: DeviceState, whose: Pod, hint: Hint = ANY) -> DeviceState:
    """Return the state after all containers got their devices."""
    for container in whose.containers:
        allocated = allocate(state, whose, container, hint)
        assert isinstance(allocated, DeviceState), allocated
        state = allocated
    return state


FOUR = {"a": Device(0b01), "b": Device(0b01), "c": Device(0b10), "d": Device(0b10)}


def test_no_topology_means_no_preference_and_too_few_means_no_hint() -> None:
    pod_container = container("c", gpu=2, nic=3)
    state = machine(gpu={"x": Device(None), "y": Device(0)}, nic=FOUR)
    assert container_hints(state, pod(pod_container), pod_container) == {
        GPU: None,
        NIC: [Hint(0b11, True)],
    }
    greedy = container("c", nic=5)
    assert container_hints(state, pod(greedy), greedy) == {NIC: []}


def test_hints_run_over_nodes_with_devices_or_over_all() -> None:
    pod_container = container("c", gpu=1)
    only = {"a": Device(0b10)}
    assert container_hints(machine(gpu=only), pod(pod_container), pod_container) == {
        GPU: [Hint(0b10, True)]
    }
    everywhere = container_hints(
        machine(hint_nodes="all", gpu=only), pod(pod_container), pod_container
    )
    assert everywhere == {GPU: [Hint(0b10, True), Hint(0b11, False)]}


def test_a_resource_without_plugin_is_not_ours() -> None:
    foreign = Container("c", "app", {}, {"other.example/x": 1, "cpu": 1000})
    assert container_hints(machine(gpu=FOUR), pod(foreign), foreign) == {}
    state = machine(gpu=FOUR)
    assert given_to(state, pod(foreign)).held == {}


def test_aligned_devices_come_first_then_others() -> None:
    state = given_to(machine(gpu=FOUR), pod(container("c", gpu=3)), Hint(0b10, False))
    assert state.held["pod"]["c"][GPU] == {"a", "c", "d"}


def test_the_pick_is_a_parameter() -> None:
    def highest(devices: object, count: int) -> list[str]:
        return sorted(devices, reverse=True)[:count]  # type: ignore[call-overload, no-any-return]

    whose = pod(container("c", gpu=1))
    allocated = allocate(machine(gpu=FOUR), whose, whose.containers[0], ANY, pick=highest)
    assert isinstance(allocated, DeviceState)
    assert allocated.held["pod"]["c"][GPU] == {"d"}


def test_a_plugin_may_prefer_among_the_aligned_only() -> None:
    def prefer(
        resource: str, available: frozenset[str], must: frozenset[str], size: int
    ) -> list[str]:
        return ["d", "b"]

    whose = pod(container("c", gpu=1))
    allocated = allocate(
        machine(gpu=FOUR), whose, whose.containers[0], Hint(0b01, True), prefer=prefer
    )
    assert isinstance(allocated, DeviceState)
    assert allocated.held["pod"]["c"][GPU] == {"b"}


def test_an_init_container_leaves_its_devices_and_a_sidecar_does_not() -> None:
    state = given_to(machine(gpu=FOUR), pod(container("i", "init", gpu=3), container("c", gpu=4)))
    assert state.held["pod"]["c"][GPU] == set(FOUR)
    both = pod(container("s", "sidecar", gpu=3), container("c", gpu=2))
    allocated = allocate(
        given_to(machine(gpu=FOUR), pod(both.containers[0])), both, both.containers[1], ANY
    )
    assert allocated == AllocationError(
        "UnexpectedAdmissionError",
        f"Allocate failed due to requested number of devices unavailable for {GPU}. "
        "Requested: 2, Available: 1, "
        "which is unexpected",
    )


def _refusal(state: DeviceState, whose: Pod) -> str:
    allocated = allocate(state, whose, whose.containers[-1], ANY)
    assert isinstance(allocated, AllocationError)
    return allocated.message


def test_health_is_checked_also_for_held_devices() -> None:
    whose = pod(container("c", gpu=1))
    sick = {name: Device(device.mask, healthy=False) for name, device in FOUR.items()}
    assert "no healthy devices present; cannot allocate unhealthy devices" in _refusal(
        machine(gpu=sick), whose
    )
    state = given_to(machine(gpu=FOUR), whose)
    assert "previously allocated devices are no longer healthy" in _refusal(
        register(state, GPU, {**FOUR, "a": Device(0b01, healthy=False)}), whose
    )
    assert "no healthy devices" in _refusal(register(state, GPU, {}), whose)
    running = allocate(register(state, GPU, {}), whose, whose.containers[0], ANY, running=True)
    assert isinstance(running, DeviceState)
    assert running.held == state.held


def test_a_request_that_changed_is_refused() -> None:
    state = given_to(machine(gpu=FOUR), pod(container("c", gpu=1)))
    assert f'changed request for resource "{GPU}" from 1 to 2' in _refusal(
        state, pod(container("c", gpu=2))
    )
    changed = pod(container("c", gpu=2))
    assert container_hints(state, changed, changed.containers[0]) == {GPU: []}


def test_a_resource_still_held_but_no_longer_registered_is_refused() -> None:
    state = hold(DeviceState((0,)), "pod", "c", GPU, ["a"])
    assert f"cannot allocate unregistered device {GPU}" in _refusal(
        state, pod(container("c", gpu=1))
    )


def test_pod_scope_counts_the_peak_and_sees_what_the_pod_holds() -> None:
    whose = pod(container("i", "init", gpu=3), container("c", gpu=1))
    assert pod_hints(machine(gpu=FOUR), whose) == {GPU: [Hint(0b11, True)]}
    state = given_to(machine(gpu=FOUR), whose)
    assert pod_hints(state, whose) == {GPU: [Hint(0b11, True)]}


devices = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.builds(Device, st.one_of(st.none(), st.integers(0, 7)), st.booleans()),
    min_size=1,
)
wanted = st.lists(
    st.tuples(st.sampled_from(["init", "sidecar", "app"]), st.integers(0, 4)),
    min_size=1,
    max_size=3,
)


def _plain_hints(state: DeviceState, container: Container, uid: str) -> list[Hint] | None:
    """Return the hints of a container that holds nothing yet, by applying the rules to each
    mask.
    """
    listed, need = state.registered[GPU], container.limits[GPU]
    if not any(device.mask for device in listed.values()):
        return None
    taken = {name for held in state.held.values() for c in held.values() for name in c.get(GPU, ())}
    free = {name for name, device in listed.items() if device.healthy and name not in taken}
    reusable = set(state.reuse.get(GPU, ())) if state.reuse_uid == uid else set()
    if len(free | reusable) < need:
        return []
    nodes = [
        node
        for node in state.nodes
        if any((device.mask or 0) >> node & 1 for device in listed.values())
    ]
    masks = [
        mask_of(chosen) for size in range(1, len(nodes) + 1) for chosen in combinations(nodes, size)
    ]
    sizes = [
        m.bit_count()
        for m in masks
        if sum(bool((d.mask or 0) & m) for d in listed.values()) >= need
    ]
    hints = []
    for mask in masks:
        bound = [name for name in reusable if listed[name].mask is not None]
        touching = [name for name in free if (listed[name].mask or 0) & mask]
        if (
            all((listed[name].mask or 0) & mask for name in bound)
            and len(bound) + len(touching) >= need
        ):
            hints.append(mask)
    return [Hint(mask, mask.bit_count() == min(sizes, default=len(nodes))) for mask in hints]


@settings(max_examples=examples(200), deadline=None)
@given(
    devices,
    st.lists(st.tuples(wanted, st.integers(0, 7), st.booleans()), max_size=4),
    st.integers(0, 99),
)
def test_any_history_gives_a_device_to_one_pod_only(
    listed: dict[str, Device],
    pods: list[tuple[list[tuple[ContainerKind, int]], int, bool]],
    seed: int,
) -> None:
    chance = random.Random(seed)
    state = machine(3, gpu=listed)
    for index, (order, mask, leaves) in enumerate(pods):
        sequence = sorted(order, key=lambda entry: entry[0] == "app")
        whose = pod(
            *(container(f"c{i}", kind, gpu=n) for i, (kind, n) in enumerate(sequence)),
            uid=f"p{index}",
        )
        state = _admitted(state, whose, Hint(mask or None, False), chance)
        if leaves:
            state = remove_pod(state, whose.uid)
    owners = [
        name
        for held in state.held.values()
        for name in frozenset().union(*(c[GPU] for c in held.values()))
    ]
    assert len(owners) == len(set(owners))
    assert frozenset(owners) == state.in_use.get(GPU, frozenset())
    for uid in list(state.held):
        state = remove_pod(state, uid)
    assert state.in_use == {}


def _admitted(state: DeviceState, whose: Pod, hint: Hint, chance: random.Random) -> DeviceState:
    state_before = state
    for container in whose.containers:
        assert (container_hints(state, whose, container) or {})[GPU] == _plain_hints(
            state, container, whose.uid
        )
        allocated = allocate(
            state,
            whose,
            container,
            hint,
            pick=lambda found, count: chance.sample(sorted(found), count),
        )
        if isinstance(allocated, AllocationError):
            return state_before
        got = allocated.held.get(whose.uid, {}).get(container.name, {}).get(GPU, frozenset())
        assert len(got) == container.limits[GPU]
        assert got <= state.available(GPU) | state.reusable(whose.uid, GPU)
        state = allocated
    return state


def test_multi_node_devices_touch_each_of_their_nodes() -> None:
    pod_container = container("c", gpu=2)
    state = machine(gpu={"a": Device(0b11), "b": Device(0b10)})
    assert container_hints(state, pod(pod_container), pod_container) == {
        GPU: [Hint(0b10, True), Hint(0b11, False)]
    }


@pytest.mark.parametrize("nodes", [8, 16])
def test_many_nodes_and_devices(nodes: int) -> None:
    listed = {f"d{i:03}": Device(1 << i % nodes) for i in range(nodes * 4)}
    pod_container = container("c", gpu=nodes * 4)
    assert container_hints(machine(nodes, gpu=listed), pod(pod_container), pod_container) == {
        GPU: [Hint((1 << nodes) - 1, True)]
    }
