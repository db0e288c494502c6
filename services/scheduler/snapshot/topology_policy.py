"""Which Topology Manager policy counts for a pod on a node, and who said so.

Report attributes, legacy `topologyPolicies` values, the node label and the pod annotation of
Koordinator, with configurable precedence. A pod's own policy runs only on nodes of the same policy
or of none.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.scheduler.snapshot.config import Precedence
from shared.domain.pod import Pod
from shared.domain.policies import BEST_EFFORT, NONE, SINGLE_NUMA_NODE, parse
from shared.domain.report import Report

POLICY_LABEL = "node.koordinator.sh/numa-topology-policy"
MEMORY_LABEL = "node.koordinator.sh/numa-memory-policy"
POD_ANNOTATION = "scheduling.koordinator.sh/numa-topology-spec"


class Rule(msgspec.Struct, frozen=True):
    """The policy in force. `source` is `report`, `node label`, `pod annotation` or `default`;
    `problem` names an unknown or contradictory setting, and then nothing may be aligned by it."""

    policy: str = NONE
    scope: str = "container"
    source: str = "default"
    problem: str = ""


def node_rule(report: Report, labels: Mapping[str, str], precedence: Precedence) -> Rule:
    """The node's rule by its report and its label. The one that comes second decides where the
    first says nothing or `none`: a label value `None` switches nothing off under `label-first`
    either, as the kubelet's own policy goes on refusing pods."""
    reported, labelled = _reported(report), _labelled(report, labels)
    first, second = (labelled, reported) if precedence == "label-first" else (reported, labelled)
    return first if first.policy != NONE or first.problem else second


def is_reported(rule: Rule, report: Report) -> bool:
    """Is it what the kubelet itself goes by?"""
    told = _reported(report)
    return (rule.policy, rule.scope, rule.problem) == (told.policy, told.scope, told.problem)


def _reported(report: Report) -> Rule:
    found = parse(report.policy)
    if found is None:
        return Rule(source="report", problem=f"report names policy {report.policy!r}")
    return Rule(found[0], found[1] or _scope(report), "report")


def _scope(report: Report) -> str:
    return "pod" if report.scope == "pod" else "container"


def _labelled(report: Report, labels: Mapping[str, str]) -> Rule:
    text = labels.get(POLICY_LABEL, "")
    found = parse(text)
    if found is None:
        return Rule(source="node label", problem=f"label {POLICY_LABEL}={text}")
    return Rule(found[0], found[1] or _scope(report), "node label" if text else "default")


class PodPolicy(msgspec.Struct, frozen=True):
    """What a pod's annotation asks for; `problem` when it cannot be read, or cannot be kept."""

    policy: str = ""
    problem: str = ""


class _Spec(msgspec.Struct):
    policy: str = msgspec.field(default="", name="numaTopologyPolicy")
    exclusive: str = msgspec.field(default="", name="singleNUMANodeExclusive")


def pod_policy(pod: Pod) -> PodPolicy:
    """The pod's own policy, empty when it states none."""
    text = pod.annotations.get(POD_ANNOTATION, "")
    if not text:
        return PodPolicy()
    try:
        spec = msgspec.json.decode(text, type=_Spec)
    except msgspec.MsgspecError as error:
        return PodPolicy(problem=f"annotation {POD_ANNOTATION}: {error}")
    found = parse(spec.policy)
    if found is None:
        return PodPolicy(
            problem=f"annotation {POD_ANNOTATION}: unknown numaTopologyPolicy {spec.policy!r}"
        )
    problem = _exclusive(spec.exclusive, found[0])
    if problem:
        return PodPolicy(problem=f"annotation {POD_ANNOTATION}: {problem}")
    return PodPolicy("" if found[0] == NONE else found[0])


def _exclusive(text: str, wanted: str) -> str:
    """What is wrong with `singleNUMANodeExclusive` beside this policy, "" for nothing.

    `Required` keeps pods in one zone apart from pods over several. Where everything is aligned to
    one zone nothing is over several; best-effort only prefers, as in Koordinator. Elsewhere nobody
    could keep it: the kubelet, which chooses the zones, does not know it. `Preferred` has no effect
    in Koordinator either.
    """
    if text not in ("", "Preferred", "Required"):
        return f"unknown singleNUMANodeExclusive {text!r}; write Preferred or Required"
    if text != "Required" or wanted in (SINGLE_NUMA_NODE, BEST_EFFORT):
        return ""
    remedy = "write numaTopologyPolicy SingleNUMANode beside it, or Preferred"
    return f"singleNUMANodeExclusive Required cannot be kept, as the kubelet chooses zones without regard to it; {remedy}"


def combined(node: Rule, wanted: str) -> Rule:
    """The rule for a pod that wants `wanted` (empty: no wish). A contradiction is a problem, as in
    Koordinator.
    """
    if node.problem or not wanted or wanted == node.policy:
        return node
    if node.policy != NONE:
        return Rule(
            node.policy, node.scope, node.source, f"pod wants {wanted}, node has {node.policy}"
        )
    return Rule(wanted, node.scope, "pod annotation")


def pinned(report: Report, labels: Mapping[str, str], precedence: Precedence) -> tuple[str, ...]:
    """The resources that are aligned on this node: what its managers track, changed by the memory
    label.

    `numa-memory-policy: none` leaves memory and hugepages out where the label may overrule the
    report; any other value takes them in where the zones report them.
    """
    label = labels.get(MEMORY_LABEL, "").strip().lower()
    if not label:
        return report.tracked
    memory = {
        name
        for zone in report.zones
        for name in zone.resources
        if name == "memory" or name.startswith("hugepages-")
    }
    if label != "none":
        return tuple(sorted({*report.tracked, *memory}))
    if precedence == "label-first":
        return tuple(name for name in report.tracked if name not in memory)
    return report.tracked
