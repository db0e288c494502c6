"""Features of the kubelet that a pod needs and its node must declare (`status.declaredFeatures`,
KEP-5328).

Semantics: kube-scheduler's NodeDeclaredFeatures (1.36, on by default). A kubelet without the
feature rejects the pod. In clusters without declared features no pod needs one, because the API
server refuses or drops the fields. Features that only a change of a pod needs are checked by the
API server.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from services.scheduler.filter.constraints.constraint import (
    Check,
    ClusterView,
    Constraint,
    RefusalReason,
)
from services.scheduler.snapshot.node_arrays import Bools
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain import fields
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal

RESTARTS_ALL = "RestartAllContainersOnContainerExits"
USER_NAMESPACE = "UserNamespacesHostNetworkSupport"

NOT_DECLARED = RefusalReason(
    name=Reason.FEATURE,
    phrase="node declared features check failed - unsatisfied requirements: %s",
    remedy="use nodes whose kubelet has the feature (status.declaredFeatures), or change the pod",
)


class DeclaredFeatures(Constraint):
    """Keeps the features' names, sorted."""

    name = "declaredFeatures"
    reasons = (NOT_DECLARED,)

    def read(self, spec: Json, pod: Pod) -> Any:
        needed = [RESTARTS_ALL] if _restarts_all(spec) else []
        if spec.get("hostUsers") is False and fields.flag(spec, "hostNetwork", "spec"):
            needed.append(USER_NAMESPACE)
        return needed or None

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:

        def check(node_info: NodeInfo) -> Refusal | None:
            observed = node_info.observed
            declared = observed.declared_features if observed is not None else ()
            lacking = [name for name in kept if name not in declared]
            if not lacking:
                return None
            return NOT_DECLARED.refusal(node_info.name, ", ".join(lacking))

        return check

    def passing(self, pod: Pod, kept: Any, view: ClusterView) -> Bools | None:
        declared = view.columns.observed("declared features", attrgetter("declared_features"))
        return declared.where(frozenset(kept).issubset)


def _restarts_all(spec: Json) -> bool:
    """Return whether an exit of some container restarts all of them (KEP-5532)."""
    for group in ("containers", "initContainers"):
        for path, container in fields.objects(spec, group, "spec"):
            for where, rule in fields.objects(container, "restartPolicyRules", path):
                if fields.text(rule, "action", where) == "RestartAllContainers":
                    return True
    return False
