"""Host ports: two pods of one node cannot have the same one.

Semantics: kube-scheduler's NodePorts (1.36). With the host's network every container port is a host
port. 0.0.0.0 (or none) is every address of the node.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
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

ANY_ADDRESS = ("", "0.0.0.0", "::")

PORT_TAKEN = RefusalReason(
    name=Reason.HOST_PORT,
    phrase="node(s) didn't have free ports for the requested pod ports",
    remedy="use another host port, or wait until the pod that has it ends",
)


class HostPorts(Constraint):
    """Keeps [[protocol, address, port], ...]."""

    name = "hostPorts"
    handles = frozenset(("spec.containers.ports.hostPort", "spec.initContainers.ports.hostPort"))
    reasons = (PORT_TAKEN,)

    def read(self, spec: Json, pod: Pod) -> Any:
        host_network = fields.flag(spec, "hostNetwork", "spec")
        ports = set()
        for group in ("containers", "initContainers"):
            for path, container in fields.objects(spec, group, "spec"):
                restarts = fields.text(container, "restartPolicy", path) == "Always"
                if group == "initContainers" and not restarts:
                    continue
                for where, port in fields.objects(container, "ports", path):
                    number = fields.integer(port, "hostPort", where)
                    if not number and host_network:
                        number = fields.integer(port, "containerPort", where)
                    if number:
                        protocol = fields.text(port, "protocol", where) or "TCP"
                        ports.add((protocol, fields.text(port, "hostIP", where), number))
        return [list(port) for port in sorted(ports)] or None

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        taken: dict[str, list[Any]] = {}
        for ports, nodes in view.placed_pods.keeping(self.name):
            for node in nodes:
                taken.setdefault(node, []).extend(ports)

        def check(node_info: NodeInfo) -> Refusal | None:
            for wanted in kept:
                if any(_clash(wanted, port) for port in taken.get(node_info.name, ())):
                    return PORT_TAKEN.refusal(node_info.name, f"{wanted[0]} {wanted[2]}")
            return None

        return check if taken else None

    def passing(self, pod: Pod, kept: Any, view: ClusterView) -> Bools | None:
        taken = [
            nodes.by_slot() > 0
            for ports, nodes in view.placed_pods.keeping(self.name)
            if any(_clash(wanted, port) for wanted in kept for port in ports)
        ]
        return ~reduce(or_, taken) if taken else None


def _clash(wanted: Any, taken: Any) -> bool:
    any_address = wanted[1] in ANY_ADDRESS or taken[1] in ANY_ADDRESS
    same_address = wanted[1] == taken[1] or any_address
    return wanted[0] == taken[0] and wanted[2] == taken[2] and same_address
