"""The agent of a simulated node, which enforces the zones that Topolog chose.

The agent's own core (`services.agent.core`) decides; cgroups always have what it sets. In addition
this agent sums the amounts of all annotations and refuses a pod that overfills a zone or a card,
which a real agent cannot notice. This module does not know kubelets, sockets or the API server.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path

from services.agent import core, wishes
from services.agent.core import Container, Machine
from services.agent.statement import StatementFile
from services.simulator.cluster import SimulatedNode, zone_hugepages
from shared.domain.pod import Pod
from shared.domain.resources import CPU, MEMORY, Amounts, add
from shared.domain.statement import Statement
from shared.domain.zone_allocation import DeviceHolding
from shared.kubelet.cpuset import cpus_of, parse_cpus
from shared.owned.annotations import devices_of, holding_of
from shared.owned.device_request import PERCENTAGES


class NodeAgent:
    """One node's agent. A refusal shows that the scheduler erred or had outdated reports. Without
    a folder, nothing is written.
    """

    def __init__(self, node: SimulatedNode, folder: Path | None) -> None:
        self._node = node
        reserved = parse_cpus(node.kubelet.reserved_cpus)
        zones = {
            zone.id: cpus_of(cpu.id for cpu in node.machine.cpus if cpu.numa == zone.id)
            for zone in node.machine.zones
        }
        memory = cpus_of(zone.id for zone in node.machine.zones if zone.memory_bytes)
        self._state = core.State(Machine(zones, memory, reserved))
        self._held: dict[str, dict[int, Amounts]] = {}
        self._cards: dict[str, tuple[DeviceHolding, ...]] = {}
        self._file = StatementFile(str(folder)) if folder is not None else None
        if self._file is not None:
            self._file.lock()
        self._report()

    def create(self, pod: Pod) -> str:
        """Create the pod's containers. Return why its annotations cannot be kept, "" on success."""
        try:
            wish = wishes.read(pod.annotations, pod.labels, "record")
        except ValueError as error:
            return str(error)
        made = core.Pod(pod.uid, pod.uid, pod.namespace, pod.name, wish)
        refusal = core.refusal(self._state, made)
        problem = refusal.text if refusal is not None else self._overfilled(pod)
        if problem:
            return problem
        for container in pod.containers:
            entry = Container(f"{pod.uid}/{container.name}", pod.uid, container.name)
            self._state = core.creating(self._state, made, entry)
        self._report()
        return ""

    def end(self, uid: str) -> None:
        """Remove the pod and its containers."""
        if uid in self._state.pods:
            self._held.pop(uid, None)
            self._cards.pop(uid, None)
            self._state = core.ended(self._state, uid)
            self._report()

    def close(self) -> None:
        """Withdraw the statement, because nothing is enforced from now on."""
        if self._file is not None:
            self._file.close()

    def zones_of(self, uid: str) -> int:
        """Return the zones of the pod's amounts, as a mask."""
        return cpus_of(self._held.get(uid, ()))

    def _overfilled(self, pod: Pod) -> str:
        """Return which zone or card has less than the annotations of its pods say, "" for none.
        Then the pod's amounts are added.
        """
        holding, cards = holding_of(pod.annotations), devices_of(pod.annotations)
        cards_of_pods = {**self._cards, pod.uid: cards}
        used = Counter[tuple[str, int, str]]()
        for card in chain.from_iterable(cards_of_pods.values()):
            for name in card.resources.keys() & PERCENTAGES:
                used[card.type, card.minor, name] += card.resources[name]
        if over := next((key for key, percent in used.items() if percent > 100), None):
            return f"{over[0]} {over[1]} has less {over[2]} than its pods were given"
        zones_of_pods = dict(self._held)
        zones_of_pods[pod.uid] = {
            record.zone: dict(record.amounts) for record in (holding.zones if holding else ())
        }
        for zone in self._node.machine.zones:
            total: Amounts = {}
            for zones in zones_of_pods.values():
                total = add(total, zones.get(zone.id, {}))
            for name, amount in total.items():
                if amount > self.capacity(zone.id).get(name, 0):
                    return f"zone {zone.id} has less {name} than its pods were given"
        self._held, self._cards = zones_of_pods, cards_of_pods
        return ""

    def capacity(self, zone_id: int) -> Amounts:
        machine = self._state.machine
        cpus = machine.of([zone_id]) & ~machine.reserved
        zone = next(zone for zone in self._node.machine.zones if zone.id == zone_id)
        pages = zone_hugepages(zone)
        memory = zone.memory_bytes - sum(pages.values())
        return {CPU: cpus.bit_count() * 1000, MEMORY: memory, **pages}

    def _report(self) -> None:
        targets = core.targets(self._state)
        self._state = core.sent(self._state, targets)
        self.statement = Statement(containers=core.placements(self._state, targets))
        if self._file is not None:
            self._file.write(self.statement.containers)
