"""Which component chooses the zones of each resource of a node: its kubelet, Topolog, or none.

1. The kubelet chooses what its managers pin. A static CPU Manager chooses the CPUs of Guaranteed
   pods even under Topology Manager policy none, a Static Memory Manager memory, the Device Manager
   devices.
2. Topolog chooses CPUs, memory and hugepages together, on nodes where the kubelet chooses none of
   them, its Topology Manager rejects no pod, and the report names an enforcer: Topolog's agent or
   koordlet.
3. Otherwise no component chooses, and a strict policy cannot be kept.

If no source says so, the node has no enforcer, and it is not assumed that the kubelet aligns
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from shared.domain.policies import BEST_EFFORT, NONE
from shared.domain.report import UNKNOWN, Report
from shared.domain.resources import CPU, MEMORY, is_hugepages
from shared.domain.zone_allocation import MEMORY_POLICY

Chooser = Literal["kubelet", "topolog", "nobody", "unknown"]
ENFORCERS = ("topolog", "koordlet")

BIND = "bind"
BIND_LABEL = "node.koordinator.sh/cpu-bind-policy"
STRATEGY_LABEL = "node.koordinator.sh/numa-allocate-strategy"
STRATEGIES = "MostAllocated", "LeastAllocated", "DistributeEvenly"
_BINDS = {"FullPCPUsOnly": "FullPCPUs", "SpreadByPCPUs": "SpreadByPCPUs"}


class Owners(msgspec.Struct, frozen=True):
    """The chooser of CPUs, of memory (hugepages included) and of devices. `is_owned`: Topolog
    chooses CPUs and memory; `reason` says why not.
    """

    cpu: Chooser = "nobody"
    memory: Chooser = "nobody"
    devices: Chooser = "kubelet"
    reason: str = ""
    is_owned: bool = False

    @property
    def text(self) -> str:
        """Return the choosers and the reason as one line."""
        choosers = f"cpu: {self.cpu}, memory: {self.memory}, devices: {self.devices}"
        return f"{choosers} ({self.reason})" if self.reason else choosers


TOPOLOG = Owners("topolog", "topolog", is_owned=True)


def owners_of(report: Report) -> Owners:
    """Return the components that choose the zones of the node with this report."""
    cpu, memory = _manager(report.cpu_policy, "static"), _manager(report.memory_policy, "Static")
    reason = _why_not(report)
    return Owners(cpu, memory, reason=reason) if reason else TOPOLOG


def _manager(policy: str, choosing: str) -> Chooser:
    if policy == UNKNOWN:
        return "unknown"
    return "kubelet" if policy == choosing else "nobody"


def _why_not(report: Report) -> str:
    if report.cpu_policy == "static":
        return "cpuManagerPolicy is static"
    if report.memory_policy == "Static":
        return "memoryManagerPolicy is Static"
    if UNKNOWN in (report.cpu_policy, report.memory_policy):
        return "the report does not name the kubelet's managers"
    if report.policy not in (NONE, BEST_EFFORT):
        return f"topologyManagerPolicy is {report.policy}"
    if report.enforcer not in ENFORCERS:
        return "no agent on the node reports that it enforces zones"
    if not any(zone.offered for zone in report.zones):
        return "the report does not say what the kubelet reserves"
    return ""


@lru_cache(maxsize=1024)
def is_owned_resource(name: str) -> bool:
    """Return whether Topolog chooses zones of this resource on its nodes."""
    return name in (CPU, MEMORY) or is_hugepages(name)


def forced_bind(labels: Mapping[str, str]) -> str:
    """Return the bind policy that the node's label forces on every pod with CPUs, "" for none."""
    return _BINDS.get(labels.get(BIND_LABEL, ""), "")


def memory_policy(labels: Mapping[str, str]) -> str:
    """Return how memory is placed: `none` (not by zone), `record` (counted by zone), or `bind`
    (taken from the chosen zones only)."""
    text = labels.get(MEMORY_POLICY, "").strip().lower()
    return text if text in ("none", BIND) else "record"


def strategies(labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of `OwnedNode` that the node's label chooses; {} without a label."""
    text = labels.get(STRATEGY_LABEL, "")
    names = "cpu_strategy", "zone_strategy", "node_strategy"
    return dict.fromkeys(names, text) if text in STRATEGIES else {}


def counted_zones(labels: Mapping[str, str]) -> str:
    """Return MostAllocated or LeastAllocated if the node's label ranks the node by its zones in
    use, else "".
    """
    text = labels.get(STRATEGY_LABEL, "")
    return text if text in STRATEGIES[:2] else ""
