"""What would make the pod fit, for refusals whose finders do not say so themselves: one sentence a
reason.

Those of zones come with their remedy (`alignment_refusal`), as it needs the zones' amounts. Must
not know zones.
"""

from __future__ import annotations

from shared.domain.quantity import format_amount
from shared.domain.refusal import Reason, Refusal
from shared.domain.resources import Amounts

_FIXED = {
    Reason.UNKNOWN_NODE: "wait until the node's object has been seen",
    Reason.NODE_NAME: "remove the pod's nodeName or its affinity to metadata.name",
    Reason.NODE_SELECTOR: "label the node so, or change the pod's nodeSelector",
    Reason.NODE_AFFINITY: "label the node as one of the pod's required terms says, or change the terms",
    Reason.UNSCHEDULABLE: "`kubectl uncordon` the node",
    Reason.NOT_READY: "wait until the node's kubelet is ready",
    Reason.TAINT: "remove the taint, or let the pod tolerate it",
    Reason.NOMINATED: "wait until that pod is bound: its scheduler has chosen the node for it",
    Reason.FEATURE: "use nodes whose kubelet has the feature (status.declaredFeatures), or change the pod",
    Reason.GIVEN_BY_DRIVER: "have kube-scheduler place such pods, with Topolog as its extender (docs/extender.md)",
    Reason.HOST_PORT: "use another host port, or wait until the pod that has it ends",
    Reason.POD_AFFINITY: "start a pod of its affinity's selection there first, or change the affinity",
    Reason.POD_ANTI_AFFINITY: "use nodes of another topology value, or wait until the other pod ends",
    Reason.TOPOLOGY_SPREAD: "make room in the emptier domains, or raise maxSkew",
    Reason.VOLUME_UNBOUND: "wait until the claim is bound; one that is bound with its first pod (WaitForFirstConsumer) needs "
    "kube-scheduler, with Topolog as its extender (docs/extender.md)",
    Reason.VOLUME_NOT_OURS: "use another claim",
    Reason.VOLUME_IN_USE: "wait until the pod that uses the claim ends: its access mode is ReadWriteOncePod",
    Reason.VOLUME_ELSEWHERE: "use nodes that the volume's node affinity and zone labels allow, or another volume",
    Reason.VOLUME_LIMIT: "wait until a pod with such a volume ends there, or use more nodes",
    Reason.NO_REPORT: "run the exporter on the node, or set on_missing_report: pass",
    Reason.REPORT_EXPIRED: "see why the node's exporter is silent",
    Reason.REPORT_MALFORMED: "correct what publishes the node's topology",
    Reason.POLICY_UNKNOWN: "set it to none, best-effort, restricted or single-numa-node",
    Reason.POLICY_MISMATCH: "change the pod's annotation, or use nodes of that policy",
    Reason.NO_ZONES: "see why the exporter finds no NUMA nodes there",
    Reason.TOO_MANY_PODS: "wait until a pod of the node ends, or raise the kubelet's maxPods",
}


def remedy(refusal: Refusal, allocatable: Amounts) -> str:
    """The refusal's own remedy where it has one; `allocatable` is the node's. Every reason has an
    answer.
    """
    if refusal.remedy:
        return refusal.remedy
    if refusal.reason is Reason.NODE_RESOURCE:
        return _node_resource(refusal, allocatable)
    return _FIXED.get(refusal.reason, "")


def _node_resource(refusal: Refusal, allocatable: Amounts) -> str:
    name, whole = refusal.resource, allocatable.get(refusal.resource, 0)
    if whole <= 0:
        return f"use nodes that offer {name}"
    if whole < refusal.asked:
        return f"ask for at most {format_amount(name, whole)} {name}, or use larger nodes"
    return f"free {format_amount(name, refusal.asked - refusal.best)} more {name} on the node"
