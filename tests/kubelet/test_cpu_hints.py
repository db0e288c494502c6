"""CPU hints equal a plain walk over masks and CPUs, as the kubelet does it."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.kubelet.cpu_hints import hints, pod_hints
from shared.kubelet.cpu_options import CpuOptions
from shared.kubelet.cpu_policy import CpuManager
from shared.kubelet.cpu_request import exclusive_cpus, pod_exclusive_cpus
from shared.kubelet.cpu_state import CpuState
from shared.kubelet.cpuset import each_cpu
from shared.kubelet.hint import Hint
from shared.kubelet.masks import mask_of
from shared.kubelet.topology import Cpu, cpu_topology
from tests.fixtures.examples import examples
from tests.kubelet.machines import container, guaranteed, regular_cpus

SHAPES = [(1, 1, 4, 2), (2, 2, 4, 1), (2, 4, 4, 1), (4, 2, 2, 2), (4, 1, 2, 1), (3, 3, 2, 2)]


def plain_hints(
    cpus: list[Cpu], available: int, reusable: int, count: int, by_socket: bool
) -> list[Hint]:
    """Return what generateCPUTopologyHints returns, counted CPU by CPU."""
    nodes = sorted({cpu.numa for cpu in cpus})
    zone = {cpu.id: cpu.numa for cpu in cpus}
    least, hints = len(nodes), []
    for size in range(1, len(nodes) + 1):
        for chosen in combinations(nodes, size):
            if sum(cpu.numa in chosen for cpu in cpus) >= count:
                least = min(least, size)
            if any(zone[cpu] not in chosen for cpu in each_cpu(reusable)):
                continue
            matching = reusable.bit_count() + sum(
                zone[cpu] in chosen for cpu in each_cpu(available)
            )
            if matching >= count:
                hints.append(chosen)
    return [Hint(mask_of(chosen), _preferred(cpus, chosen, least, by_socket)) for chosen in hints]


def _preferred(cpus: list[Cpu], chosen: tuple[int, ...], least: int, by_socket: bool) -> bool:
    per_socket = len({cpu.numa for cpu in cpus}) // len({cpu.socket for cpu in cpus})
    touched = len({cpu.socket for cpu in cpus if cpu.numa in chosen})
    aligned = by_socket and per_socket > 0 and touched == (least + per_socket - 1) // per_socket
    return len(chosen) == least or aligned


@settings(max_examples=examples(300), deadline=None)
@given(shape=st.sampled_from(SHAPES), data=st.data(), by_socket=st.booleans())
def test_hints_equal_the_plain_walk(
    shape: tuple[int, int, int, int], data: st.DataObject, by_socket: bool
) -> None:
    cpus = regular_cpus(*shape)
    topology = cpu_topology(cpus)
    available = data.draw(st.integers(0, topology.every)) & topology.every
    reusable = data.draw(st.sampled_from([0, 1, 3])) & ~available
    count = data.draw(st.integers(1, len(cpus) + 1))
    manager = CpuManager("static", topology, CpuOptions(align_by_socket=by_socket))
    assert hints(manager, available, reusable, count) == plain_hints(
        cpus, available, reusable, count, by_socket
    )


def test_a_pod_asks_for_the_larger_of_its_peak_at_start_and_its_sum_while_running() -> None:
    init, sidecar = container("init", cpu=6, kind="init"), container("side", cpu=1, kind="sidecar")
    apps = (container("a", cpu=2), container("b", cpu=3))
    assert pod_exclusive_cpus(guaranteed("p", sidecar, init, *apps)) == 7
    assert pod_exclusive_cpus(guaranteed("p", init, sidecar, *apps)) == 6
    assert pod_exclusive_cpus(guaranteed("p", sidecar, *apps)) == 6


def test_only_whole_cpus_of_guaranteed_pods_are_exclusive() -> None:
    whole = container(cpu=2)
    assert exclusive_cpus(guaranteed("p", whole), whole) == 2
    burstable = guaranteed("p", whole)
    assert exclusive_cpus(type(burstable)("p", "n", "p", "Burstable", (whole,)), whole) == 0
    fractional = type(whole)("c", requests={"cpu": 2500}, limits={"cpu": 2500})
    assert exclusive_cpus(guaranteed("p", fractional), fractional) == 0
    level = type(burstable)("p", "n", "p", "Guaranteed", (whole,), pod_level={"cpu": 2000})
    assert exclusive_cpus(level, whole) == 0


def test_owned_cpus_of_another_number_than_asked_cannot_be_satisfied() -> None:
    manager = CpuManager("static", cpu_topology(regular_cpus(2, 2, 4, 1)))
    pod = guaranteed("p", container("c0", cpu=2))
    assert pod_hints(manager, CpuState(0b11111100, {"p": {"c0": 0b1}}), pod) == {"cpu": []}
    assert pod_hints(manager, CpuState(0b11111100, {"p": {"c0": 0b11}}), pod) == {
        "cpu": [Hint(1, True), Hint(3, False)]
    }
