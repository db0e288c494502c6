"""Features of the kubelet that a pod needs and its node must declare (`status.declaredFeatures`,
KEP-5328).

Semantics: kube-scheduler's NodeDeclaredFeatures (1.36, on by default); a kubelet without the
feature rejects the pod. Clusters that know no declared features know no pods that need one: the API
server refuses or drops the fields. Features that only a change of a pod needs are the API server's
affair.
"""

from __future__ import annotations

from typing import Any

from services.scheduler.filter.constraints.constraint import Check, ClusterView
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain import fields
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal

RESTARTS_ALL = "RestartAllContainersOnContainerExits"
USER_NAMESPACE = "UserNamespacesHostNetworkSupport"


class DeclaredFeatures:
    """Kept: the features' names, sorted."""

    name = "declaredFeatures"
    handles: frozenset[str] = frozenset()

    def read(self, spec: Json, pod: Pod) -> Any:
        needed = [RESTARTS_ALL] if _restarts_all(spec) else []
        if spec.get("hostUsers") is False and fields.flag(spec, "hostNetwork", "spec"):
            needed.append(USER_NAMESPACE)
        return needed or None

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        if not kept:
            return None

        def check(node_info: NodeInfo) -> Refusal | None:
            declared = (
                node_info.observed.declared_features if node_info.observed is not None else ()
            )
            lacking = [name for name in kept if name not in declared]
            return Refusal(node_info.name, Reason.FEATURE, ", ".join(lacking)) if lacking else None

        return check


def _restarts_all(spec: Json) -> bool:
    """Whether an exit of some container restarts all of them (KEP-5532)."""
    return any(
        fields.text(rule, "action", where) == "RestartAllContainers"
        for group in ("containers", "initContainers")
        for path, container in fields.objects(spec, group, "spec")
        for where, rule in fields.objects(container, "restartPolicyRules", path)
    )
