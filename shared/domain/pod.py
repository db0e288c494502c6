"""A pod as scheduling and admission see it: identity, containers, amounts, QoS class, constraints.

`shared.domain.manifest` builds it from a Kubernetes manifest. This module does not know JSON or the
text form of quantities.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from shared.domain.gang import Gang
from shared.domain.resources import Amounts

Qos = Literal["Guaranteed", "Burstable", "BestEffort"]
ContainerKind = Literal["init", "sidecar", "app"]


class Container(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One container. A `sidecar` is an init container with restartPolicy Always (KEP-753)."""

    name: str
    kind: ContainerKind = "app"
    requests: Amounts = {}
    limits: Amounts = {}


class Toleration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A toleration as in core/v1. An empty key with operator Exists tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class NodeSelectorTerm(msgspec.Struct, frozen=True, omit_defaults=True):
    """One term of required node affinity: all expressions and fields must match. Each is (key,
    operator, values).
    """

    expressions: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    fields: tuple[tuple[str, str, tuple[str, ...]], ...] = ()


class Constraints(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a pod may run apart from resources.

    `unsupported` names spec fields that Topolog does not implement. `gates` are the pod's
    spec.schedulingGates. `kept` maps a constraint's name to the part of the spec that the
    constraint keeps.
    """

    node_name: str = ""
    node_selector: dict[str, str] = {}
    required_affinity: tuple[NodeSelectorTerm, ...] = ()
    preferred_affinity: tuple[tuple[int, NodeSelectorTerm], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    unsupported: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    kept: dict[str, Any] = {}


class Pod(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A pod's identity and requests. `containers` are in the kubelet's order: init containers and
    sidecars first, then apps.

    `pod_level` is spec.resources.requests if set (KEP-2837), else None. `overhead` is the
    RuntimeClass overhead. `controller` is its controller as `apiVersion kind name uid`, "" for none
    and for pods that older releases observed.
    """

    uid: str
    namespace: str
    name: str
    qos: Qos = "BestEffort"
    containers: tuple[Container, ...] = ()
    overhead: Amounts = {}
    pod_level: Amounts | None = None
    priority: int = 0
    preemption_policy: str = "PreemptLowerPriority"
    scheduler_name: str = "default-scheduler"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    constraints: Constraints = Constraints()
    gang: Gang | None = None
    controller: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, the identity that podresources and the fingerprint use."""
        return f"{self.namespace}/{self.name}"
