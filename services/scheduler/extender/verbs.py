"""What the extender answers to filter, prioritize and preempt: zones, node resources, set-exclusions
and unhealthy devices; the rest is kube-scheduler's.

The table of verdicts is asked; nodes that it is not sure of are judged exactly within a budget, and
the others pass: `/bind` judges its one node as far as the larger budget goes, and what it finds the
table remembers. Must not know HTTP."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import compress, islice, repeat

import msgspec

from services.scheduler.explain import explain
from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.explain.wording import headline, remarked
from services.scheduler.extender.wire import Offer
from services.scheduler.filter.constraints import nominated, unusable_resources
from services.scheduler.filter.constraints.constraint import ClusterView
from services.scheduler.filter.constraints.given_by_drivers import by_others, given
from services.scheduler.filter.topology.predict import predict
from services.scheduler.preempt.search import widened
from services.scheduler.select.score_cache import OPTIMISTIC, RULED_OUT
from services.scheduler.select.select_node import last_resort
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import PodClass
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Constraints, Container, Pod
from shared.domain.quantity import format_amount
from shared.domain.refusal import Refusal
from shared.ledger.state import LedgerPod

EXACT_LIMIT = 200
"""Nodes judged, and refusals worked out, for one request; the next request goes on."""
SWEEP_FROM = 24
"""Nodes in doubt from which to judge all at once comes first."""
_UNTOLD = "its NUMA zones do not fit the pod"


class Filtered(msgspec.Struct):
    """Who may take the pod, who might after an eviction, who cannot at all."""

    passing: list[str] = []
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}


def unconstrained(pod: Pod) -> Pod:
    """The pod as the extender judges it: kube-scheduler has judged its constraints."""
    return msgspec.structs.replace(pod, constraints=Constraints())


class Texts:
    """What refusals say, by shape and node, for as long as the node stands as it did; the longest
    unused shape goes first.
    """

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._shapes: dict[str, dict[str, Told]] = {}

    def of(self, pod_class: PodClass) -> dict[str, Told]:
        """Node name -> what was told of it for the shape."""
        found = self._shapes[pod_class.key] = self._shapes.pop(pod_class.key, {})
        if len(self._shapes) > self._limit:
            del self._shapes[next(iter(self._shapes))]
        return found


def filtered(placing: ColumnarPlacing, pod: Pod, names: Sequence[str], texts: Texts) -> Filtered:
    """The verdict of each node. Refusals of a kind have one text, since kube-scheduler counts nodes
    by it.
    """
    found = Filtered()
    for judged, theirs in parted(pod, names, placing.view):
        part = _filtered(placing, pod, unconstrained(judged), theirs, texts)
        found.passing += part.passing
        found.failed |= part.failed
        found.unresolvable |= part.unresolvable
    return found


def _filtered(
    placing: ColumnarPlacing, pod: Pod, judged: Pod, names: Sequence[str], texts: Texts
) -> Filtered:
    pod_class, found = placing.evaluator.pod_class(judged), Filtered()
    if pod_class.problem:
        found.unresolvable = dict.fromkeys(names, pod_class.problem)
        return found
    _bring_up_to_date(placing, pod_class)
    barred, slot_of = _barred(placing, pod, pod_class), placing.slots.get
    fits = [*(placing.evaluator.cache.scores[pod_class.row] != RULED_OUT).tolist(), False]
    for name in barred:
        fits[slot_of(name, -1)] = False
    verdicts = list(map(fits.__getitem__, map(slot_of, names, repeat(-1))))
    found.passing = list(compress(names, verdicts)) or _last_resort(
        placing, pod_class, names, barred
    )
    if len(found.passing) < len(names):
        passing = set(found.passing)
        refused = [name for name in names if name not in passing]
        _refuse(found, placing, pod_class, refused, barred, texts.of(pod_class))
    return found


def refusals(found: Filtered, nominated: str) -> tuple[dict[str, str], dict[str, str]]:
    """(FailedNodes, FailedAndUnresolvableNodes) of a pod for which kube-scheduler evicts pods on
    the node `nominated`, if any.

    Whatever stands in FailedNodes kube-scheduler (1.36) tries to preempt on, and its dry run asks
    no extender: where its own predicates pass already it finds nobody to evict, says so with a text
    that differs each time, takes the changed condition for news of the pod and tries again, tens of
    times a second. So a refused node is beyond help, but for the nominated one: called beyond help,
    it would let kube-scheduler evict elsewhere while the victims there still terminate."""
    failed = {name: text for name, text in found.failed.items() if name == nominated}
    beyond = {name: text for name, text in found.failed.items() if name != nominated}
    return failed, {**found.unresolvable, **beyond}


def _refuse(
    found: Filtered,
    placing: ColumnarPlacing,
    pod_class: PodClass,
    names: list[str],
    barred: Mapping[str, str],
    told: dict[str, Told],
) -> None:
    nodes, left = placing.view.nodes, EXACT_LIMIT
    for name in names:
        node_info = nodes.get(name)
        if node_info is None:
            _unseen(found, pod_class, name)
        elif name in barred:
            found.unresolvable[name] = barred[name]
        else:
            known = told.get(name)
            if known is None or known[0] is not node_info or known[1] != node_info.version:
                left -= 1
                known = told[name] = (
                    _told(placing, node_info, pod_class) if left >= 0 else (None, 0, _UNTOLD, False)
                )
            (found.unresolvable if known[3] else found.failed)[name] = known[2]


def _last_resort(
    placing: ColumnarPlacing, pod_class: PodClass, names: Sequence[str], barred: Collection[str]
) -> list[str]:
    """As for the pods of our own scheduler."""
    offered = {*names}.difference(barred)
    found = last_resort(placing, pod_class, lambda node_info: node_info.name in offered)
    return [found[0].name] if found is not None else []


def _barred(placing: ColumnarPlacing, pod: Pod, pod_class: PodClass) -> dict[str, str]:
    """Node name -> why it takes no such pod, whoever is evicted: resources that it gives nobody,
    zones that are kept for nominees of no lower priority, and what was learnt of it."""
    view, nodes = placing.view, placing.view.nodes
    barred = nominated.zones_kept(pod, view) | unusable_resources.unusable_nodes(
        pod_class.pod, view
    )
    said = {
        name: text_of(refusal, explain.bounds_of(placing, nodes[name], pod_class, refusal))
        for name, refusal in barred.items()
    }
    return said | {
        name: f"set aside for such pods: {aside.cause}"
        for name, aside in placing.view.exclusions.of(pod).items()
    }


Told = tuple[NodeInfo | None, int, str, bool]
"""The node and its version, the text, and whether no eviction can help."""


def _told(placing: ColumnarPlacing, node_info: NodeInfo, pod_class: PodClass) -> Told:
    refusal = explain.remembered(placing, node_info, pod_class, placing.config.steps_node)
    if refusal is None:
        return node_info, node_info.version, _UNTOLD, False
    text = text_of(refusal, explain.bounds_of(placing, node_info, pod_class, refusal))
    return node_info, node_info.version, text, refusal.reason not in explain.EVICTION_MAY_HELP


def _unseen(found: Filtered, pod_class: PodClass, name: str) -> None:
    """A node that Topolog does not know of has no report: only a pod that needs no zone may go
    there.
    """
    if pod_class.zonal:
        found.unresolvable[name] = "node not seen yet"
    else:
        found.passing.append(name)


def text_of(refusal: Refusal, bounds: Collection[str] = ()) -> str:
    """`no single zone with 8 cpu free (best: 6 in zone 1; known within bounds only: device picks)`:
    no node's name in it.
    """
    if refusal.best_zone is None:
        return remarked(headline(refusal), "", bounds)
    best = format_amount(refusal.resource, max(0, refusal.best))
    return remarked(headline(refusal), f"best: {best} in zone {refusal.best_zone}", bounds)


def _bring_up_to_date(placing: ColumnarPlacing, pod_class: PodClass) -> None:
    placing.evaluator.evaluate_all_if_new(pod_class)
    unsure = placing.evaluator.cache.unsure(pod_class.row)
    if len(unsure) >= SWEEP_FROM:
        placing.evaluator.evaluate_unsure(pod_class, OPTIMISTIC)
        unsure = placing.evaluator.cache.unsure(pod_class.row)
    for slot in unsure[:EXACT_LIMIT].tolist():
        placing.evaluator.score(pod_class, placing.evaluator.node_at(slot))
    _spare_those_on_their_way(placing, pod_class, EXACT_LIMIT - len(unsure))


def _spare_those_on_their_way(placing: ColumnarPlacing, pod_class: PodClass, most: int) -> None:
    """What a sweep is sure of is that the pod fits; whether it takes the place of somebody on the
    way is judged singly.
    """
    scores, exact = (
        placing.evaluator.cache.scores[pod_class.row],
        placing.evaluator.cache.exact[pod_class.row],
    )
    beside = (
        node_info
        for name in placing.unconfirmed()
        if (node_info := placing.node(name)) is not None and node_info.pending
    )
    doubtful = (
        node_info
        for node_info in beside
        if scores[node_info.slot] != RULED_OUT and not exact[node_info.slot]
    )
    for node_info in islice(doubtful, max(0, most)):
        placing.evaluator.evaluate(pod_class, node_info)


def prioritized(placing: ColumnarPlacing, pod: Pod, names: Iterable[str]) -> dict[str, int]:
    """Node name -> 0..100 by the configured strategy; 0 for nodes that are not known or do not fit."""
    found: dict[str, int] = {}
    for judged, theirs in parted(pod, names, placing.view):
        found |= _prioritized(placing, unconstrained(judged), theirs)
    return found


def _prioritized(placing: ColumnarPlacing, judged: Pod, names: Sequence[str]) -> dict[str, int]:
    pod_class = placing.evaluator.pod_class(judged)
    if pod_class.problem:
        return dict.fromkeys(names, 0)
    _bring_up_to_date(placing, pod_class)
    scores, found, nodes = placing.evaluator.cache.scores[pod_class.row], {}, placing.view.nodes
    for name in names:
        node_info = nodes.get(name)
        score = int(scores[node_info.slot]) if node_info is not None else 0
        found[name] = max(0, min(100, score))
    return found


def preempted(
    placing: ColumnarPlacing, pods: Mapping[str, LedgerPod], pod: Pod, offers: Mapping[str, Offer]
) -> dict[str, Offer]:
    """The offers by which the pod gets its zones, with more victims where kube-scheduler's do not
    free one; the others are left out."""
    found = {}
    for judged, theirs in parted(pod, offers, placing.view):
        bare = unconstrained(judged)
        pod_class = placing.evaluator.pod_class(bare)
        barred = _barred(placing, pod, pod_class)
        for name in theirs:
            node_info, offer = placing.node(name), offers[name]
            if node_info is None or name in barred:
                continue
            victims = widened(bare, pod_class, node_info, offer.uids, pods, placing.config)
            if victims is not None:
                found[name] = Offer(victims, offer.violations)
    return found


def placed_on(placing: ColumnarPlacing, pod: Pod, node: str) -> Placed | str:
    """The pod on exactly this node, judged as the log stands now; or why not."""
    node_info = placing.node(node)
    if node_info is None:
        return f"{node}: node not seen yet"
    pod_class = placing.evaluator.pod_class(unconstrained(judged_on(pod, node_info, placing.view)))
    barred = _barred(placing, pod, pod_class).get(node)
    if barred is not None:
        return f"{node}: {barred}"
    score = (
        RULED_OUT if pod_class.problem else placing.evaluator.evaluate_harder(pod_class, node_info)
    )
    if score == RULED_OUT:
        placing.evaluator.cache.note_score(pod_class.row, node_info.slot, RULED_OUT)
        return f"{node}: {pod_class.problem or _told(placing, node_info, pod_class)[2]}"
    return _placed(placing, pod_class, node_info, score)


def _placed(
    placing: ColumnarPlacing, pod_class: PodClass, node_info: NodeInfo, score: int
) -> Placed:
    plan, _ = placing.evaluator.plan(pod_class, node_info)
    predicted = predict(node_info, plan) if placing.config.prediction != "off" else {}
    return Placed(node_info.name, score, 1, node_info.ledger.report_version, predicted)


def judged_on(pod: Pod, node_info: NodeInfo, view: ClusterView) -> Pod:
    """The pod as this node is judged for it."""
    return _without(pod, by_others(given(pod, view), node_info))


def parted(pod: Pod, names: Iterable[str], view: ClusterView) -> list[tuple[Pod, list[str]]]:
    """The pod as nodes are judged for it, and which; those that are not known with the pod as it
    is.
    """
    found = given(pod, view)
    if not found:
        return [(pod, list(names))]
    parts: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        node_info = view.nodes.get(name)
        parts.setdefault(() if node_info is None else by_others(found, node_info), []).append(name)
    return [(_without(pod, others), theirs) for others, theirs in parts.items()]


def _without(pod: Pod, names: tuple[str, ...]) -> Pod:
    if not names:
        return pod
    return msgspec.structs.replace(
        pod, containers=tuple(_asks_no(names, each) for each in pod.containers)
    )


def _asks_no(names: tuple[str, ...], container: Container) -> Container:
    requests = {name: amount for name, amount in container.requests.items() if name not in names}
    limits = {name: amount for name, amount in container.limits.items() if name not in names}
    return msgspec.structs.replace(container, requests=requests, limits=limits)
