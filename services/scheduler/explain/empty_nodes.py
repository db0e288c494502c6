"""Whether a pod would fit on an empty node: of the pods that wait for a zone, how many would one
more node of a type help. Must not know the log.

1. A node type is the value of the label `node.kubernetes.io/instance-type`. Nodes without it are of
   one type if policy and amounts of their reports are equal; the type is then called `like NODE`.
2. The filter answers for one node of the type without pods, ready, schedulable and without
   exclusions. What pods require of other pods or volumes is left out.
3. Of several types that take a pod, the one with the fewest CPUs is named. The first waiting pod
   of a request answers for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import MachineType, machine_type_of
from services.scheduler.snapshot.pod_class import key_of, without_kept
from services.scheduler.snapshot.result import Placed
from services.scheduler.state.totals import MOST_CLASSES, OTHERS, request_text
from shared.domain.effective import effective_request
from shared.domain.pod import Pod
from shared.domain.resources import CPU
from shared.events.cluster_events import NodeObserved
from shared.ledger.next_report import emptied
from shared.ledger.state import Ledger, LedgerNode

TYPE_LABEL = "node.kubernetes.io/instance-type"
# The most node types that are asked, those with the fewest CPUs first.
MOST_TYPES = 10
# Answers that are kept. If there are more, all are forgotten.
MOST_ANSWERS = 4096


def any_of_its_class(pod: Pod) -> Pod:
    """Return the pod without what distinguishes it from pods with the same requests, node
    constraints and annotations: name, labels, and constraints on pods and volumes."""
    return msgspec.structs.replace(
        without_kept(pod), uid="shape", namespace="", name="shape", labels={}
    )


class _NodeType(msgspec.Struct, frozen=True):
    """`node` is the example that is asked."""

    name: str
    node: LedgerNode
    observed: NodeObserved
    machine: MachineType


class EmptyNodes:
    """Keeps its answers, because types and waiting classes rarely change."""

    def __init__(self, config: CycleConfig) -> None:
        self._config = config
        self._answers: dict[tuple[str, str], tuple[NodeObserved, MachineType, bool]] = {}

    def zone_waits(self, ledger: Ledger) -> dict[tuple[str, ...], int]:
        """Return how many pods wait for a zone, not for a node: by resource, by request
        (`cpu 8, memory 16Gi`), and by the type of an empty node that would take them ("" if none
        would).
        """
        waiting = Counter[tuple[str, str]]()
        samples: dict[tuple[str, str], Pod] = {}
        for entry in ledger.pods.values():
            if entry.zone_wait and entry.stage == "pending":
                wait = entry.zone_wait, request_text(effective_request(entry.pod))
                waiting[wait] += 1
                samples.setdefault(wait, entry.pod)
        types = _types(ledger) if waiting else []
        counts = Counter[tuple[str, ...]]()
        for rank, (wait, pods) in enumerate(waiting.most_common()):
            if rank < MOST_CLASSES:
                counts[(*wait, self._first_type(samples[wait], types))] = pods
            else:
                counts[wait[0], OTHERS, ""] += pods
        return dict(counts)

    def _first_type(self, pod: Pod, types: Iterable[_NodeType]) -> str:
        sample = any_of_its_class(pod)
        key = key_of(sample)
        fitting = (each.name for each in types if self._takes(each, key, sample))
        return next(fitting, "")

    def _takes(self, node_type: _NodeType, key: str, pod: Pod) -> bool:
        kept = self._answers.get((key, node_type.name))
        if kept and kept[1] is node_type.machine and kept[0] == node_type.observed:
            return kept[2]
        placing, node = ColumnarPlacing(self._config), emptied(node_type.node)
        node.observed = node_type.observed
        placing.put_node(node)
        answer = isinstance(placing.select(pod), Placed)
        if len(self._answers) >= MOST_ANSWERS:
            self._answers.clear()
        self._answers[key, node_type.name] = node_type.observed, node_type.machine, answer
        return answer


def _types(ledger: Ledger) -> list[_NodeType]:
    """Return the node types with the fewest CPUs first. The example is a ready node if there is
    one."""
    types: dict[object, _NodeType] = {}
    for node in sorted(ledger.nodes.values(), key=_example_order):
        report, observed = node.basis, node.observed
        if report is None or observed is None or node.expired:
            continue
        label, machine = observed.labels.get(TYPE_LABEL, ""), machine_type_of(report)
        key = label or (report.policy, report.scope, id(machine))
        if key not in types:
            usable = msgspec.structs.replace(observed, ready=True, unschedulable=False)
            types[key] = _NodeType(label or f"like {node.name}", node, usable, machine)
    by_size = sorted(types.values(), key=lambda each: (_cpus(each.observed), each.name))
    return by_size[:MOST_TYPES]


def _example_order(node: LedgerNode) -> tuple[bool, str]:
    observed = node.observed
    return observed is None or not observed.ready or observed.unschedulable, node.name


def _cpus(observed: NodeObserved) -> int:
    return observed.allocatable.get(CPU, 0)
