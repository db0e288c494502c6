"""A node of the quality bench whose zones Topolog chooses: its agent, and the zones of pods that
run before the scheduler starts.
"""

from __future__ import annotations

import msgspec

from services.scheduler.snapshot.owned_request import owned_request
from services.scheduler.snapshot.owners import is_owned_resource
from services.scheduler.snapshot.topology_policy import PodPolicy
from services.simulator.cluster import SimulatedNode
from services.simulator.feasibility import rooms
from services.simulator.node_agent import NodeAgent
from shared.domain.effective import effective_request
from shared.domain.pod import Pod
from shared.domain.policies import Policy
from shared.domain.refusal import Refusal
from shared.domain.zone_allocation import RESOURCE_STATUS, status_text
from shared.kubelet.cpuset import format_cpus, parse_cpus
from shared.owned.admit import admit
from shared.owned.free import free_of
from shared.owned.machine import nesting
from shared.owned.values import MOST_ALLOCATED, Holding, OwnedNode, ZoneAmounts


class OwnedZones:
    """The zones of one node. `agent` enforces the annotations of its pods."""

    def __init__(self, node: SimulatedNode, policy: Policy) -> None:
        self.agent = NodeAgent(node, None)
        amounts_by_zone = rooms([node])[0].total
        zones = tuple(
            ZoneAmounts(zone.id, {n: size for n, size in amounts.items() if is_owned_resource(n)})
            for zone, amounts in zip(node.machine.zones, amounts_by_zone, strict=True)
        )
        reserved = parse_cpus(node.kubelet.reserved_cpus)
        cpus = nesting(node.machine.cpus)
        # Zones are filled one after the other, as kubelets do, so that both owners start alike.
        self._node = OwnedNode(
            node.name, zones, cpus, reserved, policy, zone_strategy=MOST_ALLOCATED
        )
        self._holdings: list[Holding] = []

    def with_zones(self, pod: Pod) -> Pod | None:
        """Return a pod that runs from the start, with the annotation by which another scheduler
        bound it; None if the zones have no room.
        """
        request = owned_request(pod, effective_request(pod), PodPolicy(), self._node.policy)
        answer = admit(self._node, free_of(self._node, self._holdings), request)
        if isinstance(answer, Refusal):
            return None
        holding = answer.holding
        self._holdings.append(holding)
        zones = {record.zone: dict(record.amounts) for record in holding.zones}
        status = {RESOURCE_STATUS: status_text(format_cpus(holding.cpus), zones)}
        return msgspec.structs.replace(pod, annotations={**pod.annotations, **status})
