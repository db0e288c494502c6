"""Small machines, pods and holdings for the tests of owned zones."""

from __future__ import annotations

from hypothesis import strategies as st

from shared.domain.policies import NONE, POLICIES
from shared.domain.refusal import Refusal
from shared.kubelet.topology import Cpu
from shared.owned.admit import admit
from shared.owned.free import free_of
from shared.owned.machine import CpuNesting, nesting
from shared.owned.values import Allocation, Holding, OwnedNode, OwnedRequest, ZoneAmounts

GIB = 1 << 30


def machine(zones: int = 2, cores: int = 4, threads: int = 2, sockets: int = 1) -> CpuNesting:
    """Return a machine with this many cores a zone; siblings have consecutive ids."""
    made = nesting(
        Cpu(core * threads + thread, core, core // cores * sockets // zones, core // cores, 0)
        for core in range(zones * cores)
        for thread in range(threads)
    )
    assert made is not None
    return made


def node(zones: int = 2, cores: int = 4, gib: int = 16, **changes: object) -> OwnedNode:
    """Return a node with two threads a core and this much memory a zone."""
    listed = tuple(
        ZoneAmounts(zone, {"cpu": 2000 * cores, "memory": gib * GIB}) for zone in range(zones)
    )
    fields: dict[str, object] = {"zones": listed, "cpus": machine(zones, cores), **changes}
    return OwnedNode("node", **fields)  # type: ignore[arg-type]


def share(cpu: int, gib: int = 0, **changes: object) -> OwnedRequest:
    amounts = {"cpu": cpu, **({"memory": gib * GIB} if gib else {})}
    return OwnedRequest(amounts, **changes)  # type: ignore[arg-type]


def cpu_set(cpus: int, gib: int = 0, bind: str = "FullPCPUs", **changes: object) -> OwnedRequest:
    return share(1000 * cpus, gib, takes_cpu_set=True, bind=bind, **changes)


def placed(owner: OwnedNode, requests: list[OwnedRequest]) -> list[Holding]:
    """Return what the pods hold after the node has taken them one after another."""
    holdings: list[Holding] = []
    for request in requests:
        outcome = admit(owner, free_of(owner, holdings), request)
        if isinstance(outcome, Allocation):
            holdings.append(outcome.holding)
    return holdings


def allocation(owner: OwnedNode, request: OwnedRequest, *holdings: Holding) -> Allocation:
    outcome = admit(owner, free_of(owner, holdings), request)
    assert isinstance(outcome, Allocation), outcome
    return outcome


def refusal(owner: OwnedNode, request: OwnedRequest, *holdings: Holding) -> Refusal:
    outcome = admit(owner, free_of(owner, holdings), request)
    assert isinstance(outcome, Refusal), outcome
    return outcome


policies = st.sampled_from([policy for policy in POLICIES if policy != NONE])


@st.composite
def requests(draw: st.DrawFn) -> OwnedRequest:
    takes_set = draw(st.booleans())
    cpu = draw(st.integers(1, 14)) * (1000 if takes_set else 700)
    return OwnedRequest(
        {"cpu": cpu, "memory": draw(st.integers(1, 40)) * GIB},
        policy=draw(st.sampled_from([None, None, None, "restricted", "single-numa-node"])),
        zone_exclusive=draw(st.sampled_from(["", "", "Required", "Preferred"])),
        takes_cpu_set=takes_set,
        bind=draw(st.sampled_from(["FullPCPUs", "SpreadByPCPUs"])),
        bind_is_required=draw(st.booleans()),
        cpu_exclusive=draw(st.sampled_from(["", "PCPULevel", "NUMANodeLevel"])),
    )


@st.composite
def nodes(draw: st.DrawFn) -> OwnedNode:
    zones = draw(st.integers(1, 4))
    return node(
        zones,
        draw(st.integers(1, 3)),
        draw(st.integers(4, 20)),
        policy=draw(policies),
        forced_bind=draw(st.sampled_from(["", "", "FullPCPUs", "SpreadByPCPUs"])),
        reserved_cpus=draw(st.sampled_from([0, 0b1, 0b11])),
        cpu_strategy=draw(st.sampled_from(["MostAllocated", "LeastAllocated"])),
        zone_strategy=draw(st.sampled_from(["MostAllocated", "LeastAllocated"])),
        preferred=draw(st.sampled_from(["free", "capacity"])),
    )
