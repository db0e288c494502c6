"""The values of the choice of zones: a node, the holdings of its pods, a request, an allocation.

Amounts are in the units of `shared.domain.resources`, CPU sets are integers (bit i = CPU i,
`shared.kubelet.cpuset`), masks are sets of zone ids (`shared.kubelet.masks`), policies have the
kubelet's names (`shared.domain.policies`). A refusal is a `shared.domain.refusal.Refusal`. This
room does not know API objects, events, the ledger or time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from shared.domain.policies import NONE, Policy
from shared.domain.resources import CPU, MEMORY, Amounts
from shared.domain.zone_allocation import DeviceHolding
from shared.owned.machine import CpuNesting

BindPolicy = Literal["", "FullPCPUs", "SpreadByPCPUs"]
CpuExclusive = Literal["", "None", "PCPULevel", "NUMANodeLevel"]
ZoneExclusive = Literal["", "Preferred", "Required"]
Strategy = Literal["MostAllocated", "LeastAllocated", "DistributeEvenly"]
PreferredBasis = Literal["free", "capacity"]

FULL_PCPUS: Final = "FullPCPUs"
SPREAD_BY_PCPUS: Final = "SpreadByPCPUs"
PCPU_LEVEL: Final = "PCPULevel"
NUMA_NODE_LEVEL: Final = "NUMANodeLevel"
REQUIRED: Final = "Required"
MOST_ALLOCATED: Final = "MostAllocated"
LEAST_ALLOCATED: Final = "LeastAllocated"
DISTRIBUTE_EVENLY: Final = "DistributeEvenly"


class ZoneAmounts(msgspec.Struct, frozen=True, gc=False):
    """Amounts of one zone, by resource."""

    zone: int
    amounts: Mapping[str, int] = {}


class OwnedNode(msgspec.Struct, frozen=True):
    """A node whose zones Topolog chooses. `zones` is in ascending order of id.

    `zones` are the allocatable amounts before `reserved_cpus` are subtracted. `cpus` is None if the
    layout of the CPUs is unknown; such a node gives no CPU set. `policy` is the policy of the node.
    `forced_bind` is the bind policy that every pod with CPUs must take there. `cpu_strategy`
    orders zones and cores for CPU ids, `zone_strategy` scores masks of zones, and `node_strategy`
    scores nodes. `sharers` is how many pods may hold one CPU. `preferred` says whether the
    narrowest mask is the smallest that is free now or the smallest by capacity. `weights` are the
    weights of the resources in scores.
    """

    name: str
    zones: tuple[ZoneAmounts, ...] = ()
    cpus: CpuNesting | None = None
    reserved_cpus: int = 0
    policy: Policy = NONE
    forced_bind: BindPolicy = ""
    cpu_strategy: Strategy = LEAST_ALLOCATED
    zone_strategy: Strategy = LEAST_ALLOCATED
    node_strategy: Strategy = MOST_ALLOCATED
    sharers: int = 1
    preferred: PreferredBasis = "free"
    weights: tuple[tuple[str, int], ...] = ((CPU, 1), (MEMORY, 1))


class Holding(msgspec.Struct, frozen=True):
    """What one pod holds on a node. `cpus` is its CPU set, and `zones` its amounts by zone in
    ascending order (CPUs of the set included).

    A pod that was placed while no policy was in force has a CPU set without zones, or nothing.
    `is_chosen` is False if no component chose the zones: the pod then takes amounts in every zone
    where it may be, and makes no zone shared or single.
    """

    cpus: int = 0
    cpu_exclusive: CpuExclusive = ""
    zones: tuple[ZoneAmounts, ...] = ()
    is_chosen: bool = True


class OwnedRequest(msgspec.Struct, frozen=True):
    """What a pod asks. `amounts` are the requests of the whole pod.

    `policy` and `zone_exclusive` are the pod's own (numa-topology-spec); None means that the pod
    states no policy. `takes_cpu_set` is set if the pod gets CPU ids wherever it runs; otherwise it
    gets a share, unless the node forces a bind policy. `bind` is the policy by which ids are
    chosen, and `bind_is_required` refuses every other choice.
    """

    amounts: Amounts
    policy: Policy | None = None
    zone_exclusive: ZoneExclusive = ""
    takes_cpu_set: bool = False
    bind: BindPolicy = ""
    bind_is_required: bool = False
    cpu_exclusive: CpuExclusive = ""


class Allocation(msgspec.Struct, frozen=True):
    """The zones, amounts and CPU ids of a pod that a node can take.

    `holding` is what the pod will hold: the ledger's entry. `mask` are the zones that the policy
    chose, None if it chose none: without a policy, and under single-numa-node on a node with one
    zone. `policy` is the applied policy. `bind` is the policy by which CPU ids were chosen,
    empty for a share. `is_preferred` says whether the mask is as narrow as the policy wants.
    `score` ranks the masks of this node (0 to 100 for each resource that names the mask). `devices`
    are the chosen cards.
    """

    holding: Holding
    mask: int | None = None
    policy: Policy = NONE
    bind: BindPolicy = ""
    bind_is_required: bool = False
    is_preferred: bool = True
    score: int = 0
    devices: tuple[DeviceHolding, ...] = ()
