"""Host ports: two pods of one node cannot have the same one. Semantics: kube-scheduler's NodePorts
(1.36).

With the host's network every container port is a host port. 0.0.0.0 (or none) is every address of
the node.
"""

from __future__ import annotations

from typing import Any

from services.scheduler.filter.constraints.constraint import Check, ClusterView
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain import fields
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal

ANY = ("", "0.0.0.0", "::")


class HostPorts:
    """Kept: [[protocol, address, port], ...]."""

    name = "hostPorts"
    handles = frozenset(("spec.containers.ports.hostPort", "spec.initContainers.ports.hostPort"))

    def read(self, spec: Json, pod: Pod) -> Any:
        host_network = fields.flag(spec, "hostNetwork", "spec")
        found = set()
        for group in ("containers", "initContainers"):
            for path, container in fields.objects(spec, group, "spec"):
                lasting = (
                    group == "containers"
                    or fields.text(container, "restartPolicy", path) == "Always"
                )
                for where, port in fields.objects(container, "ports", path) if lasting else ():
                    number = fields.integer(port, "hostPort", where)
                    number = number or (
                        fields.integer(port, "containerPort", where) if host_network else 0
                    )
                    if number:
                        protocol = fields.text(port, "protocol", where) or "TCP"
                        found.add((protocol, fields.text(port, "hostIP", where), number))
        return [list(each) for each in sorted(found)] or None

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        if not kept:
            return None
        taken: dict[str, list[Any]] = {}
        for held, nodes in view.placed_pods.keeping(self.name):
            for node in nodes:
                taken.setdefault(node, []).extend(held)

        def check(node_info: NodeInfo) -> Refusal | None:
            for wanted in kept:
                if any(_clash(wanted, other) for other in taken.get(node_info.name, ())):
                    return Refusal(node_info.name, Reason.HOST_PORT, f"{wanted[0]} {wanted[2]}")
            return None

        return check if taken else None


def _clash(left: Any, right: Any) -> bool:
    same_address = left[1] == right[1] or left[1] in ANY or right[1] in ANY
    return left[0] == right[0] and left[2] == right[2] and same_address
