"""Taking CPUs: always the requested number, from the free ones, and by the rules of the options."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.kubelet.cpu_spread import _Slice, take_spread
from shared.kubelet.cpu_take import take_packed
from shared.kubelet.cpuset import format_cpus, parse_cpus
from shared.kubelet.topology import CpuTopology, cpu_topology
from tests.fixtures.examples import examples
from tests.kubelet.machines import regular_cpus

SHAPES = [
    (1, 1, 4, 2, 1),
    (2, 2, 4, 2, 2),
    (4, 2, 4, 2, 2),
    (4, 1, 4, 1, 1),
    (8, 2, 2, 2, 1),
    (2, 4, 4, 2, 1),
]
TOPOLOGIES = [cpu_topology(regular_cpus(*shape)) for shape in SHAPES]


@st.composite
def requests(draw: st.DrawFn) -> tuple[CpuTopology, int, int]:
    topology = draw(st.sampled_from(TOPOLOGIES))
    every = topology.every
    free = draw(st.integers(0, every)) & every if draw(st.booleans()) else every
    return topology, free, draw(st.integers(0, every.bit_count() + 2))


@settings(max_examples=examples(300), deadline=None)
@given(request=requests(), spread=st.booleans(), uncore=st.booleans())
def test_packed_takes_exactly_the_requested_number_of_free_cpus_or_states_how_many_are_free(
    request: tuple[CpuTopology, int, int], spread: bool, uncore: bool
) -> None:
    topology, free, count = request
    taken = take_packed(topology, free, count, spread_cores=spread, align_uncore=uncore)
    if count > free.bit_count():
        assert taken == (
            f"not enough cpus available to satisfy request: requested={count}, "
            f"available={free.bit_count()}"
        )
    else:
        assert isinstance(taken, int)
        assert taken.bit_count() == count
        assert not taken & ~free


@settings(max_examples=examples(200), deadline=None)
@given(request=requests(), whole_cores=st.booleans())
def test_spread_takes_exactly_the_requested_number_of_free_cpus(
    request: tuple[CpuTopology, int, int], whole_cores: bool
) -> None:
    topology, free, count = request
    taken = take_spread(topology, free, count, topology.cpus_per_core if whole_cores else 1)
    if count <= free.bit_count():
        assert isinstance(taken, int)
        assert taken.bit_count() == count
        assert not taken & ~free
    else:
        assert isinstance(taken, str)


def test_packed_prefers_the_fullest_numa_node_that_still_holds_the_request() -> None:
    topology = TOPOLOGIES[1]
    free = parse_cpus("0-3,8-11,6-7,14-15")
    assert format_cpus(_cpus(take_packed(topology, free, 4))) == "6-7,14-15"


def test_an_idle_machine_spreads_evenly_over_the_fewest_nodes() -> None:
    topology = TOPOLOGIES[2]
    taken = _cpus(take_spread(topology, topology.every, 10, 1))
    assert [(taken & cpus).bit_count() for _, cpus in topology.numas] == [5, 5, 0, 0]


def test_a_remembered_slice_is_overwritten_by_a_sibling_only_while_capacity_lasts() -> None:
    three = _Slice([], 0).append(1).append(2).append(3)
    first, second = three.append(4), three.append(5)
    assert (first.read(), second.read()) == ([1, 2, 3, 5], [1, 2, 3, 5])
    fifth, sixth = first.append(6), first.append(7)
    assert (fifth.read(), sixth.read()) == ([1, 2, 3, 5, 6], [1, 2, 3, 5, 7])


def _cpus(taken: int | str) -> int:
    assert isinstance(taken, int)
    return taken
