"""Resources of which a node's kubelet gives nobody, or fails where somebody asks, whatever is free.

Not a field of Kubernetes: nodes are barred by what was learnt of them, by resource
(`Around.barred`), as few are and every pod asks. Which, and why, is for the rules in `_RULES`.
"""

from __future__ import annotations

from typing import Any

from services.scheduler.filter.constraints import memory_tables, unhealthy_devices
from services.scheduler.filter.constraints.constraint import Around, Bar, Check, KeepsNothing
from shared.domain.pod import Pod
from shared.domain.refusal import Refusal
from shared.domain.resources import Amounts
from shared.ledger.state import LedgerNode

_RULES = (unhealthy_devices.bars, memory_tables.bars)


class BarredResources(KeepsNothing):
    name = "barredResources"

    def check(self, pod: Pod, kept: Any, around: Around) -> Check | None:
        found = barred(pod, around)
        return (lambda events: found.get(events.name)) if found else None


def barred(pod: Pod, around: Around) -> dict[str, Refusal]:
    """The nodes that are barred for the pod, by name."""
    found: dict[str, Refusal] = {}
    for name, asked in _named(pod).items() if around.barred else ():
        for node, bar in around.barred.get(name, {}).items():
            if bar.concerns(pod, asked):
                found.setdefault(
                    node,
                    Refusal(node, bar.reason, bar.subject, name, asked=asked, remedy=bar.remedy),
                )
    return found


def barring(node: LedgerNode) -> dict[str, Bar]:
    """The resources that the node is barred for."""
    found: dict[str, Bar] = {}
    for rule in _RULES:
        found |= rule(node)
    return found


def _named(pod: Pod) -> Amounts:
    """The most of each resource that one container names, by name: the kubelet goes by limits."""
    named: Amounts = {}
    for container in pod.containers:
        for name, amount in container.limits.items():
            named[name] = max(amount, named.get(name, 0))
    return dict(sorted(named.items()))
