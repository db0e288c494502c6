"""The Topology Manager policy that is in force for a pod on a node, and its source.

1. The kubelet's policy is in force: a report states it, or the node's label does if the report does
   not know it. Labels decide first if so configured.

2. A label or a pod may ask for more than the kubelet does: one zone on a node with policy none or
   best-effort, or one zone for the whole pod on a node whose kubelet aligns each container. Such a
   pod must be in one zone (`Rule.one_zone`): it passes only if the kubelet model is certain of
   that.

3. Koordinator's pod annotation and Volcano's topologyPolicy state a pod's own policy. Pods with
   Restricted or BestEffort run on nodes of the same policy, as in Koordinator, or of none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

import msgspec

from services.scheduler.snapshot.config import Precedence
from services.scheduler.snapshot.owners import memory_policy
from shared.domain.pod import Pod
from shared.domain.policies import BEST_EFFORT, NONE, RESTRICTED, SINGLE_NUMA_NODE, parse
from shared.domain.report import KOORDLET, OBJECT, Report
from shared.domain.resources import CPU, MEMORY, is_device, is_memory
from shared.domain.scheduler_keys import BY_KEY, asked_by_node
from shared.events.cluster_events import NodeObserved
from shared.owned.request import NUMA_TOPOLOGY_SPEC, TopologySpec

POLICY_LABEL = "node.koordinator.sh/numa-topology-policy"
POD_ANNOTATION = NUMA_TOPOLOGY_SPEC
VOLCANO_ANNOTATION = "volcano.sh/numa-topology-policy"
POD_ANNOTATIONS = (POD_ANNOTATION, VOLCANO_ANNOTATION)

SETTING = "default setting"


class Rule(msgspec.Struct, frozen=True):
    """The policy in force. `source` is `report`, `node label`, `default setting` or `default`.
    `problem` names an unknown or contradictory setting, by which nothing may be aligned. `one_zone`
    is what must be in one zone although the policy does not require it ("container" for each of
    them, "pod", or ""), and `wanted_by` the source of that.
    """

    policy: str = NONE
    scope: str = "container"
    source: str = "default"
    problem: str = ""
    one_zone: str = ""
    wanted_by: str = ""


def node_rule(
    report: Report,
    labels: Mapping[str, str],
    precedence: Precedence,
    default: str = NONE,
    is_owned: bool = False,
) -> Rule:
    """Return the node's rule by its report, its label, and the default policy in the place of a
    missing label. The second source decides if the first has none or says `none`: a label value
    `None` switches nothing off under `label-first` either, because the kubelet's own policy still
    refuses pods. A label that asks for more than a kubelet with policy none or best-effort does is
    a requirement, unless Topolog chooses the zones of the node (`is_owned`).
    """
    reported, labelled = _reported(report), _labelled(report, labels, default)
    first, second = (labelled, reported) if precedence == "label-first" else (reported, labelled)
    rule = first if first.policy != NONE or first.problem else second
    if rule is not labelled or rule.problem or reported.problem or rule.policy == reported.policy:
        return rule
    if reported.policy not in (NONE, BEST_EFFORT):
        return rule
    if is_owned:
        return rule
    if rule.policy == BEST_EFFORT:
        return reported
    wanted_by = BY_KEY[POLICY_LABEL].shown if rule.source == "node label" else rule.source
    return msgspec.structs.replace(reported, one_zone=rule.scope, wanted_by=wanted_by)


def without_promise(rule: Rule) -> Rule:
    """Return the rule without what must be in one zone beyond its policy."""
    return msgspec.structs.replace(rule, one_zone="", wanted_by="") if rule.one_zone else rule


def is_reported(rule: Rule, report: Report) -> bool:
    """Return whether the kubelet itself uses this rule, and it is all that is required."""
    reported = _reported(report)
    return not rule.one_zone and (rule.policy, rule.scope, rule.problem) == (
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


def _labelled(report: Report, labels: Mapping[str, str], default: str) -> Rule:
    text = labels.get(POLICY_LABEL, "")
    if not text and default != NONE:
        return Rule(default, _scope(report), SETTING)
    parsed = parse(text)
    if parsed is None:
        return Rule(source="node label", problem=f"label {POLICY_LABEL}={text}")
    return Rule(parsed[0], parsed[1] or _scope(report), "node label" if text else "default")


class PodPolicy(msgspec.Struct, frozen=True):
    """The policy that a pod's annotation asks for; `problem` if it cannot be read or kept.
    `one_zone` is what must be in one zone under single-numa-node: Koordinator's policy is for the
    whole pod, Volcano's for each container. `exclusive` is singleNUMANodeExclusive. `wanted_by`
    names the annotation.
    """

    policy: str = ""
    wanted_by: str = ""
    problem: str = ""
    one_zone: str = ""
    exclusive: str = ""


def pod_policy(pod: Pod) -> PodPolicy:
    """Return the pod's own policy, empty if it states none."""
    koordinator, volcano = _koordinator_policy(pod), _volcano_policy(pod)
    if koordinator.problem or volcano.problem:
        return koordinator if koordinator.problem else volcano
    if koordinator.policy and volcano.policy and koordinator.policy != volcano.policy:
        keys = f"{POD_ANNOTATION} and {VOLCANO_ANNOTATION}"
        return PodPolicy(problem=f"annotations {keys} ask for different policies")
    if koordinator.policy:
        return koordinator
    return msgspec.structs.replace(volcano, exclusive=koordinator.exclusive)


def _koordinator_policy(pod: Pod) -> PodPolicy:
    text = pod.annotations.get(POD_ANNOTATION, "")
    if not text:
        return PodPolicy()
    try:
        spec = msgspec.json.decode(text, type=TopologySpec)
    except (msgspec.MsgspecError, RecursionError) as error:
        return PodPolicy(problem=f"annotation {POD_ANNOTATION}: {error}")
    parsed = parse(spec.policy)
    if parsed is None:
        problem = f"unknown numaTopologyPolicy {spec.policy!r}"
        return PodPolicy(problem=f"annotation {POD_ANNOTATION}: {problem}")
    if spec.exclusive not in ("", "Preferred", "Required"):
        problem = f"unknown singleNUMANodeExclusive {spec.exclusive!r}; write Preferred or Required"
        return PodPolicy(problem=f"annotation {POD_ANNOTATION}: {problem}")
    policy = _policy(parsed[0], "pod", POD_ANNOTATION)
    return msgspec.structs.replace(policy, exclusive=spec.exclusive)


def prefers_exclusive(pod: Pod) -> bool:
    """Return whether the pod prefers zones apart from pods over several zones."""
    try:
        spec = msgspec.json.decode(pod.annotations.get(POD_ANNOTATION) or "{}", type=TopologySpec)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return spec.exclusive == "Preferred"


def _volcano_policy(pod: Pod) -> PodPolicy:
    text = pod.annotations.get(VOLCANO_ANNOTATION, "")
    parsed = parse(text)
    if parsed is None:
        return PodPolicy(problem=f"annotation {VOLCANO_ANNOTATION}: unknown policy {text!r}")
    return _policy(parsed[0], "container", VOLCANO_ANNOTATION)


def _policy(policy: str, one_zone: str, key: str) -> PodPolicy:
    if policy == NONE:
        return PodPolicy()
    one_zone = one_zone if policy == SINGLE_NUMA_NODE else ""
    return PodPolicy(policy, BY_KEY[key].shown, one_zone=one_zone)


def _unkept_exclusive(wanted: PodPolicy) -> str:
    """Return the problem with `singleNUMANodeExclusive` where a kubelet chooses, "" for none.

    `Required` separates pods in one zone from pods in several zones. If everything is aligned to
    one zone, no pod is in several, so it holds. Under best-effort it is only a preference, as in
    Koordinator. Otherwise it cannot be kept, because the kubelet chooses the zones and does not
    know the annotation. `Preferred` has no effect in Koordinator either.
    """
    if wanted.exclusive != "Required" or wanted.policy in (SINGLE_NUMA_NODE, BEST_EFFORT):
        return ""
    return (
        "singleNUMANodeExclusive Required cannot be kept, because the kubelet chooses zones "
        "without regard to it; write numaTopologyPolicy SingleNUMANode, too, or Preferred"
    )


def combined(node: Rule, wanted: PodPolicy) -> Rule:
    """Return the rule for a pod that wants a policy. One zone is required where the kubelet does
    not require it anyway. Other contradictions are a problem, as in Koordinator.
    """
    unkept = _unkept_exclusive(wanted)
    if unkept and not node.problem:
        return msgspec.structs.replace(without_promise(node), problem=unkept)
    if node.problem or not wanted.policy:
        return node
    if wanted.policy == SINGLE_NUMA_NODE:
        is_enough = node.scope == "pod" or wanted.one_zone == "container"
        is_kept = node.policy == SINGLE_NUMA_NODE and is_enough
        return node if is_kept else _in_one_zone(node, wanted.one_zone, wanted.wanted_by)
    if wanted.policy == node.policy or (node.policy == NONE and wanted.policy == BEST_EFFORT):
        return node
    if node.policy == NONE and wanted.policy == RESTRICTED:
        return _in_one_zone(node, "pod", wanted.wanted_by)
    problem = f"{wanted.wanted_by} wants {wanted.policy}, node has {node.policy}"
    return msgspec.structs.replace(without_promise(node), problem=problem)


def _in_one_zone(node: Rule, one_zone: str, wanted_by: str) -> Rule:
    one_zone = "pod" if "pod" in (one_zone, node.one_zone) else one_zone
    return msgspec.structs.replace(node, one_zone=one_zone, wanted_by=wanted_by)


def pinned(report: Report, labels: Mapping[str, str], precedence: Precedence) -> tuple[str, ...]:
    """Return the resources that are aligned on this node: what its managers track.

    `numa-memory-policy: none` leaves memory and hugepages out if the label may overrule the report.
    """
    if precedence == "label-first" and memory_policy(labels) == "none":
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


def unlisted(
    report: Report, observed: NodeObserved | None, unpinned: Collection[str]
) -> tuple[str, ...]:
    """Return what the node offers and its report lists in no zone, as far as the kubelet may pin it
    and reject a pod for its zone: the exporter leaves it out, or its object does not say. The
    Memory Manager pins every kind of memory or none. Under none and best-effort the zones of CPUs
    and devices matter only for memory next to them.
    """
    if len(report.zones) < 2 or report.exporter == KOORDLET:
        return ()
    is_object = report.source == OBJECT
    pins_memory = any(map(is_memory, report.tracked)) or report.memory_policy == "Static"
    decides = report.policy not in (NONE, BEST_EFFORT)
    decides = decides or (report.policy == BEST_EFFORT and pins_memory)
    allocatable = observed.allocatable if observed is not None else {}
    offered = {CPU, MEMORY, *(name for name, amount in allocatable.items() if amount > 0)}
    names = []
    for name in sorted(offered.difference(report.tracked)):
        is_open = is_object and not any(fnmatchcase(name, pattern) for pattern in unpinned)
        if is_memory(name):
            may_reject = is_open or pins_memory
        elif name == CPU:
            may_reject = decides and (is_open or report.cpu_policy == "static")
        else:
            may_reject = decides and is_open and is_device(name)
        if may_reject:
            names.append(name)
    return tuple(names)


def gives_full_cores(report: Report) -> bool:
    """Return whether the kubelet gives only full physical cores."""
    return report.options.get("full-pcpus-only") == "true"
