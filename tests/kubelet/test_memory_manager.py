"""The Memory Manager proposes what a plain reading of its rules proposes, and never loses a
byte.
"""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.pod import Container, ContainerKind, Pod
from shared.kubelet.errors import AllocationError
from shared.kubelet.hint import Hint
from shared.kubelet.masks import mask_of
from shared.kubelet.memory_manager import (
    allocate,
    container_hints,
    pod_hints,
    release_init,
    remove_pod,
)
from shared.kubelet.memory_state import (
    MemoryConfig,
    MemoryState,
    NodeMemoryConfig,
    config_error,
    hugepages_name,
    initial,
    restored,
)
from tests.fixtures.examples import examples

MI = 2**20
HUGE = "hugepages-2Mi"


def machine(*free: int, huge: int = 0, policy: str = "Static") -> MemoryState:
    """Return a machine whose nodes have this many MiB for pods and `huge` pages of 2 MiB."""
    nodes = tuple(
        NodeMemoryConfig(i, (size + 1 + 2 * huge) * MI, ((2 * MI, huge),), {"memory": MI})
        for i, size in enumerate(free)
    )
    return initial(MemoryConfig(policy, nodes))  # type: ignore[arg-type]


def container(name: str, memory: int, kind: ContainerKind = "app", huge: int = 0) -> Container:
    """Return a container that requests MiB of memory and pages."""
    return Container(name, kind, {"memory": memory * MI, **({HUGE: huge * 2 * MI} if huge else {})})


def pod(*containers: Container, uid: str = "pod") -> Pod:
    """A Guaranteed pod."""
    return Pod(uid=uid, namespace="n", name=uid, qos="Guaranteed", containers=containers)


def taken(state: MemoryState) -> list[int]:
    """Return the MiB that are reserved on each node."""
    return [node.tables["memory"].reserved // MI for node in state.nodes.values()]


def allocated(state: MemoryState, whose: Pod, hint: Hint) -> MemoryState:
    """Return the state after all containers of a pod were allocated under `hint`."""
    for container in whose.containers:
        allocation = allocate(state, whose, container, hint)
        assert isinstance(allocation, MemoryState), allocation
        state = allocation
    return state


ANY = Hint(None, False)


def test_a_pod_that_is_not_guaranteed_has_no_preference() -> None:
    burstable = Pod(
        uid="u", namespace="n", name="u", qos="Burstable", containers=(container("c", 1),)
    )
    state = machine(10, 10)
    assert container_hints(state, burstable, burstable.containers[0]) is None
    assert pod_hints(state, burstable) is None
    assert allocate(state, burstable, burstable.containers[0], ANY) is state


def test_policy_none_takes_no_part() -> None:
    state = machine(10, policy="None")
    assert container_hints(state, pod(container("c", 1)), container("c", 1)) is None


def test_a_pod_with_pod_level_resources_is_left_out() -> None:
    special = Pod(
        uid="u",
        namespace="n",
        name="u",
        qos="Guaranteed",
        containers=(container("c", 1),),
        pod_level={"cpu": 1},
    )
    assert container_hints(machine(10), special, special.containers[0]) is None


def test_no_room_gives_an_empty_map_not_an_empty_list() -> None:
    state = machine(10, 10)
    assert container_hints(state, pod(container("c", 21)), container("c", 21)) == {}


def test_the_narrowest_size_that_could_ever_hold_it_is_preferred_even_when_taken() -> None:
    state = allocated(machine(10, 10), pod(container("a", 8), uid="a"), Hint(0b01, True))
    state = allocated(state, pod(container("b", 8), uid="b"), Hint(0b10, True))
    assert container_hints(state, pod(container("c", 9)), container("c", 9)) == {}
    assert container_hints(state, pod(container("c", 2)), container("c", 2)) == {
        "memory": [Hint(0b01, True), Hint(0b10, True)]
    }


def test_a_group_takes_node_by_node_and_stays_a_group_until_empty() -> None:
    wide = pod(container("c", 15), uid="wide")
    state = allocated(machine(10, 10, 10), wide, Hint(0b011, True))
    assert taken(state) == [10, 5, 0]
    pod_spec = pod(container("c", 1))
    assert container_hints(state, pod_spec, pod_spec.containers[0]) == {
        "memory": [Hint(0b100, True), Hint(0b011, False)]
    }
    refusal = allocate(state, pod_spec, container("c", 6), Hint(0b110, False))
    assert isinstance(refusal, AllocationError)
    assert "preferred hint violates NUMA node allocation" in refusal.message
    assert taken(remove_pod(state, "wide")) == [0, 0, 0]
    assert remove_pod(state, "wide").nodes == machine(10, 10, 10).nodes


def test_refusals_carry_the_kubelets_words() -> None:
    state = machine(10, 10)
    narrow = allocate(state, pod(container("c", 12)), container("c", 12), Hint(0b01, True))
    assert isinstance(narrow, MemoryState)
    assert taken(narrow) == [10, 2]
    full = allocated(machine(10, 10), pod(container("a", 5), uid="a"), Hint(0b01, True))
    for hint, size, text in [
        (
            ANY,
            30,
            (
                "failed to get the default NUMA affinity, no NUMA nodes with enough memory is "
                "available"
            ),
        ),
        (Hint(0b01, True), 8, "failed to find NUMA nodes to extend the current topology hint"),
    ]:
        refusal = allocate(full, pod(container("c", size)), container("c", size), hint)
        assert refusal == AllocationError(
            "UnexpectedAdmissionError",
            f"Allocate failed due to [memorymanager] {text}, which is unexpected",
        )


def test_an_init_container_leaves_its_memory_to_the_app() -> None:
    both = pod(container("i", 6, "init"), container("c", 4))
    state = allocated(machine(10), both, Hint(1, True))
    assert taken(state) == [6]
    assert [block.size // MI for block in state.entries["pod"]["i"]] == [2]
    assert taken(release_init(state, both, "c")) == [4]


def test_a_sidecar_keeps_its_memory() -> None:
    both = pod(container("s", 6, "sidecar"), container("c", 4))
    state = allocated(machine(10), both, Hint(1, True))
    assert taken(state) == [10]
    assert taken(release_init(state, both, "c")) == [10]


def test_what_an_init_container_left_is_forgotten_when_another_pod_comes() -> None:
    state = allocated(machine(10), pod(container("i", 4, "init"), uid="one"), Hint(1, True))
    state = allocated(state, pod(container("c", 1), uid="two"), Hint(1, True))
    assert state.reuse_uid == "two"
    assert taken(allocated(state, pod(container("c", 4), uid="one"), Hint(1, True))) == [9]


def test_a_container_that_has_blocks_proposes_exactly_those() -> None:
    whose = pod(container("c", 4, huge=1))
    state = allocated(machine(10, 10, huge=4), whose, Hint(0b10, True))
    expected = {HUGE: [Hint(0b10, True)], "memory": [Hint(0b10, True)]}
    assert container_hints(state, whose, whose.containers[0]) == expected
    assert pod_hints(state, whose) == expected
    assert container_hints(state, whose, container("c", 5, huge=1)) is None
    assert allocate(state, whose, whose.containers[0], Hint(0b01, True)).entries == state.entries  # type: ignore[union-attr]


def test_a_resource_that_no_node_has_cannot_be_allocated() -> None:
    odd = Container("c", "app", {"memory": MI, "hugepages-1Gi": 2**30})
    assert container_hints(machine(10), pod(odd), odd) == {}
    assert isinstance(allocate(machine(10), pod(odd), odd, ANY), AllocationError)


def test_configurations_that_a_kubelet_refuses() -> None:
    unreserved = MemoryConfig("Static", (NodeMemoryConfig(0, 100),))
    assert (
        config_error(unreserved) == "[memorymanager] you should specify the system reserved memory"
    )
    greedy = MemoryConfig("Static", (NodeMemoryConfig(0, 100, (), {"memory": 200}),))
    assert config_error(greedy) == "NUMA node 0 reserves more memory than it has"
    assert config_error(MemoryConfig("None", unreserved.nodes)) is None
    assert config_error(machine(5).config) is None


def test_hugepage_names() -> None:
    assert [hugepages_name(size) for size in (2**16, 2**21, 2**25, 2**30)] == [
        "hugepages-64Ki",
        "hugepages-2Mi",
        "hugepages-32Mi",
        "hugepages-1Gi",
    ]


sizes = st.integers(0, 25)
containers = st.lists(
    st.tuples(st.sampled_from(["init", "sidecar"]), sizes, st.integers(0, 3)), max_size=2
).flatmap(
    lambda first: st.lists(
        st.tuples(st.just("app"), sizes, st.integers(0, 3)), min_size=1, max_size=2
    ).map(
        lambda apps: tuple(
            container(f"c{i}", size, kind, huge)  # type: ignore[arg-type]
            for i, (kind, size, huge) in enumerate([*first, *apps])
        )
    )
)
hints = st.builds(Hint, st.one_of(st.none(), st.integers(1, 7)), st.booleans())
steps = st.lists(
    st.tuples(
        st.sampled_from(["admit", "admit", "admit", "remove", "start"]),
        st.integers(0, 3),
        containers,
        hints,
    ),
    max_size=8,
)


def _plain_hints(state: MemoryState, whose: Pod, container: Container) -> dict[str, list[Hint]]:
    """Return the hints by applying every rule to every mask."""
    asked = container.requests
    ids = sorted(state.nodes)
    masks = [set(chosen) for size in range(1, len(ids) + 1) for chosen in combinations(ids, size)]
    reuse = state.reuse if state.reuse_uid == whose.uid else {}
    fewest, hints = len(ids), []
    for nodes in masks:
        tables = {
            r: [state.nodes[n].tables[r] for n in nodes if r in state.nodes[n].tables]
            for r in asked
        }
        if any(sum(table.allocatable for table in tables[r]) < asked[r] for r in asked):
            continue
        fewest = min(fewest, len(nodes))
        cells = {n: state.nodes[n].cells for n in nodes}
        if len(nodes) == 1 and any(group.bit_count() > 1 for group in cells.values()):
            continue
        if len(nodes) > 1 and any(
            state.nodes[n].assignments and cells[n] != mask_of(nodes) for n in nodes
        ):
            continue
        remaining = reuse.get(mask_of(nodes), {})
        if all(
            sum(table.free for table in tables[r]) + remaining.get(r, 0) >= asked[r] for r in asked
        ):
            hints.append(nodes)
    listed = [Hint(mask_of(nodes), len(nodes) == fewest) for nodes in hints]
    return dict.fromkeys(asked, listed) if listed else {}


@settings(max_examples=examples(75), deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=3), steps)
def test_any_history_keeps_the_book_whole(
    free: list[int], history: list[tuple[str, int, tuple[Container, ...], Hint]]
) -> None:
    state = empty = machine(*free, huge=3)
    alive: dict[str, Pod] = {}
    for op, who, wanted, hint in history:
        uid = f"pod-{who}"
        if op == "remove":
            state = remove_pod(state, uid)
            alive.pop(uid, None)
        elif op == "start" and uid in alive:
            for container in alive[uid].containers:
                state = release_init(state, alive[uid], container.name)
        elif op == "admit" and uid not in alive:
            state = _admitted(state, pod(*wanted, uid=uid), hint, alive)
        _assert_whole(state)
    for uid in list(state.entries):
        state = remove_pod(state, uid)
    assert state.nodes == empty.nodes


def _admitted(state: MemoryState, whose: Pod, hint: Hint, alive: dict[str, Pod]) -> MemoryState:
    state_before, top = state, (1 << len(state.nodes)) - 1
    near = Hint(hint.mask & top or None, hint.preferred) if hint.mask else hint
    for container in whose.containers:
        assert container_hints(state, whose, container) == _plain_hints(state, whose, container)
        allocated = allocate(state, whose, container, near)
        if isinstance(allocated, AllocationError):
            return remove_pod(state_before, whose.uid)
        state = allocated
    alive[whose.uid] = whose
    return state


def _assert_whole(state: MemoryState) -> None:
    for resource in ("memory", HUGE):
        tables = [node.tables[resource] for node in state.nodes.values()]
        assert all(table.free >= 0 and table.reserved >= 0 for table in tables)
        assert all(table.free + table.reserved == table.allocatable for table in tables)
        blocks = [
            b
            for held in state.entries.values()
            for bs in held.values()
            for b in bs
            if b.resource == resource
        ]
        assert sum(block.size for block in blocks) == sum(table.reserved for table in tables)
    for node_id, node in state.nodes.items():
        masks = {
            b.mask
            for held in state.entries.values()
            for bs in held.values()
            for b in bs
            if b.mask >> node_id & 1
        }
        groups = {mask for mask in masks if mask != 1 << node_id}
        # A hint of one node may be a part of a group: the kubelet checks only wide masks.
        assert len(groups) <= 1
        assert (node.cells in masks) if masks else node.cells == 1 << node_id
    assert not isinstance(restored(state.config, state.nodes, state.entries), str)


@pytest.mark.parametrize("count", [8, 16])
def test_many_nodes_are_enumerated_completely(count: int) -> None:
    state = machine(*[10] * count)
    hints_by_resource = container_hints(
        state, pod(container("c", 10 * count)), container("c", 10 * count)
    )
    assert hints_by_resource == {"memory": [Hint((1 << count) - 1, True)]}
