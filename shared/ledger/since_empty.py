"""The state of a kubelet by its history: every pod since a report showed the node empty.

1. A report without placements in which everything is free, while no live pod demands anything,
   starts a history. What ended before is free at the next admission. The history then has the live
   pods and those that ended (`LedgerNode.since_empty`).

2. Admissions and ends are followed in every order that log and clock allow, and the states that do
   not show as the confirmed report remain. They include what no report lists: what init containers
   keep, and which zones share memory.

3. A history ends with what the model does not follow: a rejected or resized pod, a pod that ended
   only by absence from a list, another boot, policy or size of a zone. Bounds decide then.

Must not know the pod to place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shared.domain.report import Report, Zone
from shared.hints.admission import AdmissionWay, KubeletModel, NodeState
from shared.hints.admission_orders import Budget, OverBudgetError, PendingAdmission
from shared.hints.ends import reachable_states_after_ends
from shared.hints.memory import SEVERAL_GROUPS
from shared.hints.observing import ObservedNode, observe
from shared.hints.orders import EndedPod, Orders, relevant
from shared.hints.request import request_of
from shared.ledger.container_zones import lists_placements
from shared.ledger.device_views import with_device_views
from shared.ledger.open_holdings import HIDDEN
from shared.ledger.state import Charge, LedgerNode, Life

# Ended pods of a history, and admissions that are followed.
MOST_LIVES = 8
MOST_STEPS = 256


def is_empty(report: Report) -> bool:
    """Return True if everything is free: the report says as much as one with placements."""
    return all(
        amounts.available == amounts.allocatable
        for zone in report.zones
        for amounts in zone.resources.values()
    )


def note_report(node: LedgerNode, earlier: Report | None, has_moved: bool) -> None:
    """Begin or end the history, after the node's report became current."""
    report = node.report
    if report is None or lists_placements(node):
        node.since_empty = None
        return
    is_unused = not any(charge.demand for charge in node.charges.values())
    is_doubtful = any(ended.absent is not None for ended in node.ended.values())
    if is_unused and not is_doubtful and is_empty(report):
        node.since_empty = ()
    elif has_moved or earlier is None or not _is_as_large(earlier, report):
        node.since_empty = None


def _is_as_large(report: Report, other: Report) -> bool:
    return [_sizes(zone) for zone in report.zones] == [_sizes(zone) for zone in other.zones]


def _sizes(zone: Zone) -> list[tuple[str, int, int]]:
    return [(name, each.capacity, each.allocatable) for name, each in zone.resources.items()]


def note_end(node: LedgerNode, charge: Charge, life: Life | None) -> None:
    """Note the end of a pod, None for a pod that is not followed. It has no charge any more."""
    if node.since_empty is None or not charge.demand:
        return
    if life is None:
        node.since_empty = None
        return
    lives = [*node.since_empty, life]
    pods = [_ended_pod(each) for each in lives]
    live = [_admission(each, node) for each in node.charges.values() if each.demand]
    met = [id(pod) for pod in relevant(live, pods)]
    lives = [each for each, pod in zip(lives, pods, strict=True) if id(pod) in met]
    node.since_empty = tuple(lives) if len(lives) <= MOST_LIVES else None


def _ended_pod(life: Life) -> EndedPod:
    request, since = request_of(life.demand), life.runs_at > 0
    positions = life.sent_at, life.runs_at, life.ended_at
    return EndedPod((), request, *positions, since, life.started_s, life.finished_s)


def _admission(charge: Charge, node: LedgerNode) -> PendingAdmission:
    """A confirmed pod was admitted before its report was made."""
    runs_at = charge.runs_at or (node.report_position if charge.confirmed else 0)
    return PendingAdmission(request_of(charge.demand), charge.sent_at, runs_at, charge.started_s)


def states_since_empty(
    node: LedgerNode,
    report: Report,
    charges: Iterable[Charge],
    shown: Sequence[NodeState],
    policy: str,
    scope: str,
) -> ObservedNode | None:
    """Return the states of the node's kubelet once it had admitted the confirmed pods, under its
    own policy; None if the history is not known or too long. `shown` are states that the report
    allows, empty if they are not known."""
    if node.since_empty is None or (policy, scope) != (report.policy, report.scope):
        return None
    if node.freed or (node.listed is not None and node.ended):  # the report may still count them
        return None
    empty = observe(_emptied(report), (), policy, scope, fine=True)
    if empty is None:
        return None
    live = [charge for charge in charges if charge.confirmed and charge.demand]
    pods = [_admission(charge, node) for charge in live]
    ended = relevant(pods, [_ended_pod(life) for life in node.since_empty])
    requests = [pod.request for pod in pods]
    requests += [request_of(life.demand) for life in node.since_empty]
    managers = empty.model.managers
    views = with_device_views(node, report, policy, managers, empty.bases, requests, (), 1)
    if views.bases != empty.bases:
        return None
    kubelet = empty.model
    if shown and not ended:
        kubelet = _ShownKubelet(kubelet, shown, _kept_by_inits(pods))
    try:
        orders, budget = Orders((*pods, *ended)), Budget(MOST_STEPS)
        reached = reachable_states_after_ends(kubelet, empty.bases, orders, budget)
    except OverBudgetError:
        return None
    states = dict.fromkeys(state for state, _ in reached.search_states)
    if all(charge.runs_at for charge in live):  # their init containers have left
        states = dict.fromkeys(state for state in states if not empty.model.later(state))
    kept = [state for state in states if _is_shown(empty.model, state, shown)]
    bounds = empty.bounds
    if len(kept) > 1:
        bounds |= {HIDDEN} if any(request.inits for request in requests) else {SEVERAL_GROUPS}
    return ObservedNode(empty.model, tuple(kept), bounds) if kept else None


class _ShownKubelet(KubeletModel):
    """A kubelet whose pods hold no more than a report lists, in one of the states that the report
    allows, and what their init containers keep."""

    def __init__(
        self, model: KubeletModel, shown: Sequence[NodeState], unlisted: Mapping[str, int]
    ) -> None:
        super().__init__(model.topology_manager, model.managers)
        self._unlisted = unlisted
        rows = [dict.fromkeys(states) for states in zip(*shown, strict=True)]
        self._shown = [tuple(row) for row in rows]

    def _followed(self, ways: list[AdmissionWay]) -> list[AdmissionWay]:
        return [way for way in ways if self._is_possible(way.states)]

    def _is_possible(self, states: NodeState) -> bool:
        return not any(
            all(manager.exceeds(state, other, self._unlisted) for other in others)
            for manager, state, others in zip(self.managers, states, self._shown, strict=True)
        )


def _kept_by_inits(pods: Iterable[PendingAdmission]) -> Mapping[str, int]:
    """Return the most by resource."""
    kept = Counter[str]()
    for pod in pods:
        for container in pod.request.steps:
            for asked in container.asked if container.kind == "init" else ():
                kept.update(dict(asked))
    return kept


def _emptied(report: Report) -> Report:
    zones = []
    for zone in report.zones:
        resources = {
            name: msgspec.structs.replace(amounts, available=amounts.allocatable)
            for name, amounts in zone.resources.items()
        }
        zones.append(msgspec.structs.replace(zone, resources=resources))
    return msgspec.structs.replace(report, zones=tuple(zones))


def _is_shown(model: KubeletModel, state: NodeState, shown: Sequence[NodeState]) -> bool:
    return not shown or any(
        all(
            manager.shows(own, other)
            for manager, own, other in zip(model.managers, state, others, strict=True)
        )
        for others in shown
    )
