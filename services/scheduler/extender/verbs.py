"""The answers to filter, prioritize, preempt and bind: zones, node resources, exclusions and
unhealthy devices. The rest of scheduling is kube-scheduler's.

Answers come from the score cache. Nodes that it is not sure of are evaluated within a budget; the
others pass, because `/bind` evaluates its one node with the larger budget, and the cache remembers
the result. Must not know HTTP."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import compress, islice, repeat
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from services.scheduler.explain import explain
from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.explain.refusal_table import EVICTION_MAY_HELP
from services.scheduler.explain.wording import headline, with_remarks
from services.scheduler.extender.wire import Offer
from services.scheduler.filter.constraints import nominated, unusable_resources
from services.scheduler.filter.constraints.constraint import ClusterView
from services.scheduler.filter.constraints.excluded_nodes import excluded
from services.scheduler.filter.constraints.given_by_drivers import by_others, given
from services.scheduler.preempt.search import minimal_victims
from services.scheduler.score.ranks import OPTIMISTIC, RULED_OUT, band_of, score_of
from services.scheduler.select import select_node
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import PodClass
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Constraints, Container, Pod
from shared.domain.quantity import format_amount
from shared.domain.refusal import Refusal
from shared.ledger.state import LedgerPod

# Nodes evaluated, and refusals explained, for one request; the next request goes on.
EXACT_LIMIT = 200
# If at least this many nodes are unsure, all are evaluated at once first.
BULK_FROM = 24
# The number of spreads that scores distinguish: kube-scheduler reads whole numbers from 0 to 10.
BANDS = 5
NOT_SEEN = "node not seen yet"
BOOKED = "node(s) had no booking of the pod"
_UNEXPLAINED = "its NUMA zones do not fit the pod"
Slots = NDArray[np.intp]


class FilterAnswer(msgspec.Struct):
    """Nodes that pass, and for the others a reason: an eviction may help `failed`, nothing helps
    `unresolvable`.
    """

    passing: list[str] = []
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}


class NodeText(NamedTuple):
    """The text of a refusal for this version of the node, and whether an eviction may help."""

    node_info: NodeInfo | None
    version: int
    text: str
    eviction_may_help: bool


class Texts:
    """Texts of refusals by pod class and node name. The least recently used class goes first."""

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._classes: dict[str, dict[str, NodeText]] = {}

    def of(self, pod_class: PodClass) -> dict[str, NodeText]:
        """Return the texts of a class, to be read and extended."""
        texts = self._classes[pod_class.key] = self._classes.pop(pod_class.key, {})
        if len(self._classes) > self._limit:
            del self._classes[next(iter(self._classes))]
        return texts


def unconstrained(pod: Pod) -> Pod:
    """Return the pod without constraints: kube-scheduler has checked those."""
    return msgspec.structs.replace(pod, constraints=Constraints())


def filtered(
    placing: ColumnarPlacing, pod: Pod, names: Sequence[str], texts: Texts
) -> FilterAnswer:
    """Filter these nodes. Equal refusals have equal texts, because kube-scheduler counts nodes by
    text.
    """
    answer, groups = FilterAnswer(), by_given_resources(pod, names, placing.view)
    for judged_pod, part_names in groups:
        part = _filtered(placing, pod, unconstrained(judged_pod), part_names, texts)
        if len(groups) == 1:
            return part
        answer.passing += part.passing
        answer.failed |= part.failed
        answer.unresolvable |= part.unresolvable
    return answer


def _filtered(
    placing: ColumnarPlacing, pod: Pod, judged_pod: Pod, names: Sequence[str], texts: Texts
) -> FilterAnswer:
    pod_class, answer = placing.evaluator.pod_class(judged_pod), FilterAnswer()
    if pod_class.problem:
        answer.unresolvable = dict.fromkeys(names, pod_class.problem)
        return answer
    _bring_up_to_date(placing, pod_class)
    unusable = _unusable(placing, pod, pod_class)

    @cache
    def usable() -> set[str]:
        return {*names}.difference(unusable)

    booked = select_node.booked_node(placing, pod, pod_class, lambda info: info.name in usable())
    if booked is not None:
        others = [name for name in names if name != booked[0].name]
        return FilterAnswer([booked[0].name], {}, dict.fromkeys(others, BOOKED))
    # The last entry is for nodes without a slot.
    fits = np.append(placing.evaluator.cache.scores[pod_class.row] != RULED_OUT, False)
    fits[_slots(placing, unusable)] = False
    passes = fits[_slots(placing, names)]
    refused = list(compress(names, (~passes).tolist()))
    answer.passing = list(compress(names, passes.tolist())) if refused else list(names)
    if not answer.passing:
        chosen = select_node.last_resort(placing, pod_class, lambda info: info.name in usable())
        answer.passing = [chosen[0].name] if chosen is not None else []
        refused = [name for name in names if name not in answer.passing]
    if refused:
        _explain(answer, placing, pod_class, refused, unusable, texts.of(pod_class))
    return answer


def _slots(placing: ColumnarPlacing, names: Collection[str]) -> Slots:
    """Return the slots of nodes, -1 for nodes without one."""
    slots = map(placing.slots.get, names, repeat(-1))
    return np.fromiter(slots, np.intp, len(names))


def failed_nodes(answer: FilterAnswer, nominated: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return FailedNodes and FailedAndUnresolvableNodes. `nominated` is the node on which
    kube-scheduler evicts pods for this one, "" for none.

    kube-scheduler 1.36 tries to preempt on every node of FailedNodes, and its dry run asks no
    extender. If its own predicates pass already, it finds no victim and writes a condition whose
    text differs each time. It then takes the changed condition for a change of the pod, and tries
    again tens of times a second. So only the nominated node is in FailedNodes: if it were
    unresolvable, kube-scheduler would evict elsewhere while the victims there still terminate."""
    failed = {name: text for name, text in answer.failed.items() if name == nominated}
    others = {name: text for name, text in answer.failed.items() if name != nominated}
    return failed, {**answer.unresolvable, **others}


def _explain(
    answer: FilterAnswer,
    placing: ColumnarPlacing,
    pod_class: PodClass,
    names: list[str],
    unusable: Mapping[str, str],
    texts: dict[str, NodeText],
) -> None:
    nodes, budget = placing.view.nodes, EXACT_LIMIT
    for name in names:
        node_info = nodes.get(name)
        if node_info is None:
            # Without a report only a pod that needs no zone may go there.
            if pod_class.zonal:
                answer.unresolvable[name] = NOT_SEEN
            else:
                answer.passing.append(name)
        elif name in unusable:
            answer.unresolvable[name] = unusable[name]
        else:
            text = texts.get(name)
            if text is None or text[:2] != (node_info, node_info.version):
                budget -= 1
                text = NodeText(None, 0, _UNEXPLAINED, True)
                if budget >= 0:
                    text = _node_text(placing, node_info, pod_class)
                texts[name] = text
            (answer.failed if text.eviction_may_help else answer.unresolvable)[name] = text.text


def _unusable(placing: ColumnarPlacing, pod: Pod, pod_class: PodClass) -> dict[str, str]:
    """Return reasons by node that no eviction changes: resources that the node gives to no pod,
    zones that are kept for nominated pods of no lower priority, and exclusions."""
    view = placing.view
    refusals = nominated.zones_kept(pod, view)
    refusals = refusals | unusable_resources.unusable_nodes(pod_class.pod, view)
    texts = {
        name: text_of(refusal, explain.bounds_of(placing, view.nodes[name], pod_class, refusal))
        for name, refusal in refusals.items()
    }
    for name, exclusion in view.exclusions.of(pod).items():
        texts[name] = excluded(pod, exclusion, name).phrase
    return texts


def _node_text(placing: ColumnarPlacing, node_info: NodeInfo, pod_class: PodClass) -> NodeText:
    refusal = explain.cached_refusal(placing, node_info, pod_class, placing.config.steps_node)
    if refusal is None:
        return NodeText(node_info, node_info.version, _UNEXPLAINED, True)
    text = text_of(refusal, explain.bounds_of(placing, node_info, pod_class, refusal))
    eviction_may_help = refusal.reason in EVICTION_MAY_HELP
    return NodeText(node_info, node_info.version, text, eviction_may_help)


def text_of(refusal: Refusal, bounds: Collection[str] = ()) -> str:
    """Return a refusal in words without its node's name, for example
    `node(s) had no NUMA zone with 8 free cpu (best: 6 in zone 1; undecided: device picks)`.
    """
    best = ""
    if refusal.best_zone is not None:
        amount = format_amount(refusal.resource, max(0, refusal.best))
        best = f"best: {amount} in zone {refusal.best_zone}"
    return with_remarks(headline(refusal), best, bounds)


def _bring_up_to_date(placing: ColumnarPlacing, pod_class: PodClass) -> None:
    evaluator = placing.evaluator
    evaluator.evaluate_all_if_new(pod_class)
    unsure = evaluator.cache.unsure(pod_class.row)
    if len(unsure) >= BULK_FROM:
        evaluator.evaluate_unsure(pod_class, OPTIMISTIC)
        unsure = evaluator.cache.unsure(pod_class.row)
    for slot in unsure[:EXACT_LIMIT].tolist():
        evaluator.rank(pod_class, evaluator.node_at(slot))
    _protect_pending_pods(placing, pod_class, EXACT_LIMIT - len(unsure))


def _protect_pending_pods(placing: ColumnarPlacing, pod_class: PodClass, most: int) -> None:
    """Evaluate up to `most` nodes with pending admissions one by one: the bulk evaluation only
    knows that the pod fits, not whether it takes the place of a pending pod.
    """
    scores = placing.evaluator.cache.scores[pod_class.row]
    exact = placing.evaluator.cache.exact[pod_class.row]
    unsure = (
        node_info
        for name in placing.unconfirmed()
        if (node_info := placing.node(name)) is not None
        and node_info.pending
        and scores[node_info.slot] != RULED_OUT
        and not exact[node_info.slot]
    )
    for node_info in islice(unsure, max(0, most)):
        placing.evaluator.evaluate(pod_class, node_info)


def prioritized(placing: ColumnarPlacing, pod: Pod, names: Iterable[str]) -> dict[str, int]:
    """Score these nodes, 0 to 100, in the order of their ranks; 0 for unknown nodes and nodes that
    do not fit.
    """
    ranks: dict[str, int] = {}
    for judged_pod, part_names in by_given_resources(pod, names, placing.view):
        ranks |= _ranked(placing, unconstrained(judged_pod), part_names)
    return in_bands(ranks)


def _ranked(placing: ColumnarPlacing, judged_pod: Pod, names: Sequence[str]) -> dict[str, int]:
    pod_class = placing.evaluator.pod_class(judged_pod)
    if pod_class.problem:
        return dict.fromkeys(names, RULED_OUT)
    _bring_up_to_date(placing, pod_class)
    ranks = np.append(placing.evaluator.cache.scores[pod_class.row], RULED_OUT)
    return dict(zip(names, ranks[_slots(placing, names)].tolist(), strict=True))


def in_bands(ranks: Mapping[str, int]) -> dict[str, int]:
    """Return scores from 0 to 100 in bands: the lower the spread of a node, and the nearer its
    devices, the higher its band. The widest spreads share the lowest of `BANDS`. Nodes that do not
    fit score 0.
    """
    values = sorted({band_of(rank) for rank in ranks.values() if rank > RULED_OUT})
    bands = min(BANDS, len(values))
    scores = {}
    for rank in set(ranks.values()):
        scores[rank] = 0
        if rank > RULED_OUT:
            below = bands - 1 - min(values.index(band_of(rank)), bands - 1)
            scores[rank] = (100 * below + min(100, score_of(rank))) // bands
    return {name: scores[rank] for name, rank in ranks.items()}


def preempted(
    placing: ColumnarPlacing, pods: Mapping[str, LedgerPod], pod: Pod, offers: Mapping[str, Offer]
) -> dict[str, Offer]:
    """Return, for each node on which evictions give the pod its zones, the fewest victims: of those
    that kube-scheduler offers, and more if they free no zone."""
    kept = {}
    for judged_pod, names in by_given_resources(pod, offers, placing.view):
        bare = unconstrained(judged_pod)
        pod_class = placing.evaluator.pod_class(bare)
        unusable = _unusable(placing, pod, pod_class)
        for name in names:
            node_info, offer = placing.node(name), offers[name]
            if node_info is None or name in unusable:
                continue
            needed = _needed_for_constraints(pod, offer, pods)
            victims = minimal_victims(
                bare, pod_class, node_info, offer.uids, needed, pods, placing.config
            )
            if victims is not None:
                kept[name] = Offer(victims, min(offer.violations, len(victims)))
    return kept


def _needed_for_constraints(
    pod: Pod, offer: Offer, pods: Mapping[str, LedgerPod]
) -> frozenset[str]:
    """Offered victims that kube-scheduler may need for constraints, which are not judged here: host
    ports, affinity, spread, volumes. Without such rules only amounts and zones count."""
    if pod.constraints.kept:
        return frozenset(offer.uids)
    return frozenset(
        uid for uid in offer.uids if (entry := pods.get(uid)) and entry.pod.constraints.kept
    )


def placed_on(placing: ColumnarPlacing, pod: Pod, node: str) -> Placed | str:
    """Place the pod on exactly this node as the log is now, or return why not."""
    node_info, evaluator = placing.node(node), placing.evaluator
    if node_info is None:
        return f"{node}: {NOT_SEEN}"
    judged_pod = without_given_resources(pod, node_info, placing.view)
    pod_class = evaluator.pod_class(unconstrained(judged_pod))
    unusable = _unusable(placing, pod, pod_class).get(node)
    if unusable is not None:
        return f"{node}: {unusable}"
    if pod_class.problem:
        return f"{node}: {pod_class.problem}"
    booked = select_node.booked_node(placing, pod, pod_class, lambda info: info.name == node)
    if booked is not None:
        return select_node.placed_in(placing, pod_class, booked)
    rank = evaluator.evaluate_harder(pod_class, node_info)
    if rank == RULED_OUT:
        evaluator.cache.note_score(pod_class.row, node_info.slot, RULED_OUT)
        return f"{node}: {_node_text(placing, node_info, pod_class).text}"
    # One candidate: kube-scheduler chose the node.
    return select_node.placed_on(placing, pod_class, node_info, rank, candidates=1)


# Extended resources that DRA drivers give are not judged: kube-scheduler has done so before it asks
# an extender, and the kubelet leaves them out of admission and alignment. The constraint
# `given_by_drivers` decides which resources these are on a node.


def without_given_resources(pod: Pod, node_info: NodeInfo, view: ClusterView) -> Pod:
    """Return the pod without requests for resources that drivers give on this node."""
    return _without(pod, by_others(given(pod, view), node_info))


def by_given_resources(
    pod: Pod, names: Iterable[str], view: ClusterView
) -> list[tuple[Pod, list[str]]]:
    """Group nodes by the resources that drivers give there, with the pod as it is judged there; on
    unknown nodes with all requests.
    """
    given_names = given(pod, view)
    if not given_names:
        return [(pod, list(names))]
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        node_info = view.nodes.get(name)
        resources = () if node_info is None else by_others(given_names, node_info)
        groups.setdefault(resources, []).append(name)
    return [(_without(pod, resources), group) for resources, group in groups.items()]


def _without(pod: Pod, resources: tuple[str, ...]) -> Pod:
    if not resources:
        return pod
    containers = tuple(_container_without(resources, container) for container in pod.containers)
    return msgspec.structs.replace(pod, containers=containers)


def _container_without(resources: tuple[str, ...], container: Container) -> Container:
    requests = {n: amount for n, amount in container.requests.items() if n not in resources}
    limits = {n: amount for n, amount in container.limits.items() if n not in resources}
    return msgspec.structs.replace(container, requests=requests, limits=limits)
