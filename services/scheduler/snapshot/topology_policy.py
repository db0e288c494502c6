"""The Topology Manager policy that is in force for a pod on a node, and its source.

Sources are report attributes, legacy `topologyPolicies` values, the node label and Koordinator's
pod annotation, with a configurable precedence. A pod's own policy runs only on nodes of the same
policy or of none.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.scheduler.snapshot.config import Precedence
from shared.domain.pod import Pod
from shared.domain.policies import BEST_EFFORT, NONE, SINGLE_NUMA_NODE, parse
from shared.domain.report import Report
from shared.domain.resources import CPU, MEMORY, is_memory
from shared.domain.scheduler_keys import asked_by_node

POLICY_LABEL = "node.koordinator.sh/numa-topology-policy"
MEMORY_LABEL = "node.koordinator.sh/numa-memory-policy"
POD_ANNOTATION = "scheduling.koordinator.sh/numa-topology-spec"


class Rule(msgspec.Struct, frozen=True):
    """The policy in force. `source` is `report`, `node label`, `pod annotation` or `default`.
    `problem` names an unknown or contradictory setting, by which nothing may be aligned.
    """

    policy: str = NONE
    scope: str = "container"
    source: str = "default"
    problem: str = ""


def node_rule(report: Report, labels: Mapping[str, str], precedence: Precedence) -> Rule:
    """Return the node's rule by its report and its label. The second source decides if the first
    has none or says `none`: a label value `None` switches nothing off under `label-first` either,
    because the kubelet's own policy still refuses pods.
    """
    reported, labelled = _reported(report), _labelled(report, labels)
    first, second = (labelled, reported) if precedence == "label-first" else (reported, labelled)
    return first if first.policy != NONE or first.problem else second


def is_reported(rule: Rule, report: Report) -> bool:
    """Return whether the kubelet itself uses this rule."""
    reported = _reported(report)
    return (rule.policy, rule.scope, rule.problem) == (
        reported.policy,
        reported.scope,
        reported.problem,
    )


def _reported(report: Report) -> Rule:
    parsed = parse(report.policy)
    if parsed is None:
        return Rule(source="report", problem=f"report names policy {report.policy!r}")
    return Rule(parsed[0], parsed[1] or _scope(report), "report")


def _scope(report: Report) -> str:
    return "pod" if report.scope == "pod" else "container"


def _labelled(report: Report, labels: Mapping[str, str]) -> Rule:
    text = labels.get(POLICY_LABEL, "")
    parsed = parse(text)
    if parsed is None:
        return Rule(source="node label", problem=f"label {POLICY_LABEL}={text}")
    return Rule(parsed[0], parsed[1] or _scope(report), "node label" if text else "default")


class PodPolicy(msgspec.Struct, frozen=True):
    """The policy that a pod's annotation asks for; `problem` if it cannot be read or kept."""

    policy: str = ""
    problem: str = ""


class _Spec(msgspec.Struct):
    policy: str = msgspec.field(default="", name="numaTopologyPolicy")
    exclusive: str = msgspec.field(default="", name="singleNUMANodeExclusive")


def pod_policy(pod: Pod) -> PodPolicy:
    """Return the pod's own policy, empty if it states none."""
    text = pod.annotations.get(POD_ANNOTATION, "")
    if not text:
        return PodPolicy()
    try:
        spec = msgspec.json.decode(text, type=_Spec)
    except msgspec.MsgspecError as error:
        return PodPolicy(problem=f"annotation {POD_ANNOTATION}: {error}")
    parsed = parse(spec.policy)
    if parsed is None:
        problem = f"unknown numaTopologyPolicy {spec.policy!r}"
        return PodPolicy(problem=f"annotation {POD_ANNOTATION}: {problem}")
    problem = _exclusive(spec.exclusive, parsed[0])
    if problem:
        return PodPolicy(problem=f"annotation {POD_ANNOTATION}: {problem}")
    return PodPolicy("" if parsed[0] == NONE else parsed[0])


def _exclusive(text: str, policy: str) -> str:
    """Return the problem with `singleNUMANodeExclusive` under this policy, "" for none.

    `Required` keeps pods in one zone apart from pods over several zones. If everything is aligned
    to one zone, no pod is over several; best-effort only prefers, as in Koordinator. Otherwise it
    cannot be kept, because the kubelet chooses the zones and does not know it. `Preferred` has no
    effect in Koordinator either.
    """
    if text not in ("", "Preferred", "Required"):
        return f"unknown singleNUMANodeExclusive {text!r}; write Preferred or Required"
    if text != "Required" or policy in (SINGLE_NUMA_NODE, BEST_EFFORT):
        return ""
    return (
        "singleNUMANodeExclusive Required cannot be kept, because the kubelet chooses zones "
        "without regard to it; write numaTopologyPolicy SingleNUMANode, too, or Preferred"
    )


def combined(node: Rule, wanted: str) -> Rule:
    """Return the rule for a pod that wants a policy (empty: no wish). A contradiction is a problem,
    as in Koordinator.
    """
    if node.problem or not wanted or wanted == node.policy:
        return node
    if node.policy != NONE:
        problem = f"pod wants {wanted}, node has {node.policy}"
        return Rule(node.policy, node.scope, node.source, problem)
    return Rule(wanted, node.scope, "pod annotation")


def pinned(report: Report, labels: Mapping[str, str], precedence: Precedence) -> tuple[str, ...]:
    """Return the resources that are aligned on this node: what its managers track.

    `numa-memory-policy: none` leaves memory and hugepages out if the label may overrule the report.
    """
    if precedence == "label-first" and labels.get(MEMORY_LABEL, "").strip().lower() == "none":
        return tuple(name for name in report.tracked if not is_memory(name))
    return report.tracked


def unkept_labels(report: Report, labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return what the node's labels ask for and its kubelet does not do: (resource, sentence).
    Pods that need exclusive amounts of the resource do not run there.
    """
    unkept = []
    for row, ask in asked_by_node(labels):
        resource = MEMORY if ask == "memory zones" else CPU
        keeps = ask in ("zones", "preference")
        keeps |= ask == "memory zones" and MEMORY in report.tracked
        keeps |= ask == "full cores" and gives_full_cores(report)
        if not keeps:
            unkept.append((resource, f"{row.shown}: {row.remedy}"))
    return tuple(unkept)


def gives_full_cores(report: Report) -> bool:
    """Return whether the kubelet gives only full physical cores."""
    return report.options.get("full-pcpus-only") == "true"
