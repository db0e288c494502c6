"""Every state that the kubelet of a node may be in by the ledger, and the pods on their way to it.

1. A confirmed pod holds what the report lists for it. What its init containers may still hold is
   followed in every way (`open_holdings`).

2. An unconfirmed pod that was confirmed before, in this boot, may still hold the same, or
   nothing. Any other unconfirmed pod is a pending admission.

3. What the report lists for a pod that ended is free. If there are pending admissions, they may
   have come before or after each end since the report: then the ended pods are part of the
   answer, and `shared.hints.ends` follows every order.

4. A pod that ended only by absence from a list holds what the report lists for it.

5. The claims of nominated pods may be held or not: no kubelet knows them.

6. A report without placements has amounts by zone. They are the state of CPUs and devices, and
   which groups of zones share memory follows from the pods that a fingerprint confirmed, in one way
   or in several (`unlisted_blocks`). Not followed are pods that ended since, except under
   single-numa-node, and devices of which zones offer more than the node does. If the history since
   the node was empty is known, it decides instead (`since_empty`).

7. Not followed are ends of which too little is known if a pending pod may have come before them, a
   report that was read during an admission unless what the pod gets next is known
   (`partial_listings`), and init containers on processors with many threads per core, if the report
   has no layout. The answer is then `TooManyStates`, and the pod to place waits for the next
   report, which must be sure to come: none comes of a node that is empty as before. Nor is a node
   followed whose reports never list memory (`Report.unlisted`): only amounts decide there.

Must not know the pod to place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from shared.domain.device_zones import between_zones
from shared.domain.policies import SINGLE_NUMA_NODE
from shared.domain.report import Placement, Report, ZonedAmount
from shared.domain.resources import CPU, is_device, is_memory
from shared.hints.admission import KubeletModel, NodeState
from shared.hints.admission_orders import PendingAdmission
from shared.hints.cpu import SPREAD, WHOLE_CORES, by_socket
from shared.hints.devices import UNHEALTHY
from shared.hints.memory import SEVERAL_GROUPS
from shared.hints.observing import ObservedNode, observe
from shared.hints.orders import EndedPod, relevant
from shared.hints.provider import RequestedAmounts
from shared.hints.request import promised, request_of
from shared.hints.splits import TooManyChoicesError
from shared.kubelet.cpu_options import FULL_PCPUS_ONLY
from shared.ledger.charge import WHOLE_POD
from shared.ledger.confirmation import is_included, residual
from shared.ledger.device_views import with_device_views
from shared.ledger.kubelet_rules import is_other_version
from shared.ledger.open_holdings import (
    ENDED,
    MOST_STATES,
    Held,
    Ways,
    freed_or_not,
    held_or_not,
    kept_by_inits,
    negative,
)
from shared.ledger.partial_listings import is_partial, report_without, rest_of
from shared.ledger.since_empty import is_empty, states_since_empty
from shared.ledger.state import (
    NOT_SENT_YET,
    Charge,
    Ended,
    Freed,
    LedgerNode,
    Life,
    ZoneAmounts,
)
from shared.ledger.unhealthy import given_back
from shared.ledger.unlisted_blocks import ways_on
from shared.ledger.view import is_contradicted

# Why a state is open, besides the reasons of `open_holdings` and of the hint providers.
EARLIER = "pods no longer listed, end not observed"
NO_PLACEMENTS = "no placements in the report"
UNLISTED = "memory not listed"
PARTIALLY_LISTED = "a report made during an admission"
OTHER_KUBELET = "another kubelet version"

# Processors with more threads per core than `shared.hints.cpu` assumes without a layout.
ARCHITECTURE = "kubernetes.io/arch"
MANY_THREADS = frozenset({"ppc64le"})


class KubeletStates(NamedTuple):
    """`bases` are the states before any of the pending admissions. `ended_pods` ended since the
    report was made, although pending pods may have come before; empty if none is pending.
    `bounds` has the reasons if the state is open, and is empty if it is known exactly."""

    model: KubeletModel
    bases: tuple[NodeState, ...]
    pending: tuple[PendingAdmission, ...]
    bounds: frozenset[str]
    ended_pods: tuple[EndedPod, ...] = ()


class TooManyStates(NamedTuple):
    """More states than are followed; `bounds` has the reasons."""

    bounds: frozenset[str]


def kubelet_states(
    node: LedgerNode,
    report: Report,
    charges: Iterable[Charge],
    claims: Mapping[str, ZoneAmounts],
    policy: str,
    scope: str,
    inits: bool,
    devices: RequestedAmounts = (),
) -> KubeletStates | TooManyStates:
    """Return the node under this policy and scope, for a new pod with or without init containers
    that requests these amounts of doubtful devices (`in_doubt`)."""
    charges = list(charges)
    reading = _read(node, report, charges, policy, scope)
    if isinstance(reading, TooManyStates):
        return reading
    report = reading.report
    if _lacks_layout(node, report, charges, inits):
        return TooManyStates(frozenset({SPREAD}))
    completed = _completed(node, report, list(filter(reading.must_follow, charges)), policy)
    if completed is None:
        return TooManyStates(frozenset({PARTIALLY_LISTED}))
    report = completed.report
    report, init_placements = _sort_hidden(report, charges, _placements_of_ended(node, charges))
    bounds: set[str] = set()
    try:
        pending, open_holdings = _holdings(node, completed.others, claims, report, bounds)
    except TooManyChoicesError:
        return TooManyStates(frozenset(bounds))
    ended_pods = _ended_pods(node, charges, pending, report, completed.ended)
    if pending and ended_pods != []:
        bounds.add(ENDED)
    if pending and (ended_pods is None or not _come_after(node.freed, pending)):
        return TooManyStates(frozenset({*bounds, ENDED}))
    ended_pods = ended_pods or []
    requests = [*(pod.request for pod in pending), *(pod.request for pod in ended_pods)]
    inits = inits or any(pod.request.inits for pod in ended_pods if pod.request is not None)
    fine = inits or bool(init_placements) or _ids_matter(report, charges, policy)
    if completed.report is not completed.read and fine:
        return TooManyStates(frozenset({*bounds, PARTIALLY_LISTED}))
    listings = reading.listings
    observed = reading.history or _observed(report, listings, init_placements, policy, scope, fine)
    if observed is None:
        return TooManyStates(frozenset({*bounds, SEVERAL_GROUPS}) if report.zones else frozenset())
    if pending and by_socket(report) and WHOLE_CORES in observed.bounds:
        return TooManyStates(frozenset({*bounds, WHOLE_CORES}))  # the zones of a socket are unknown
    bounds.update(observed.bounds, [OTHER_KUBELET] if is_other_version(node) else [])
    freed = [] if pending else _freed(node, charges)
    bases = _bases(observed.model, observed.bases, freed, open_holdings)
    if bases is None:
        return TooManyStates(frozenset(bounds))
    managers = observed.model.managers
    bases, unhealthy = with_device_views(
        node, report, policy, managers, bases, requests, devices, MOST_STATES
    )
    bounds.update([UNHEALTHY] if unhealthy else [])
    if bases is None:
        return TooManyStates(frozenset(bounds))
    ends = tuple(ended_pods) if pending else ()
    return KubeletStates(observed.model, bases, tuple(pending), frozenset(bounds), ends)


class _Reading(NamedTuple):
    """The report as far as it is exact, what it lists in every way, and the states that the node's
    history leaves; None without one."""

    report: Report
    listings: list[list[Placement]]
    history: ObservedNode | None = None

    def must_follow(self, charge: Charge) -> bool:
        """Return False if the history has what the pod holds."""
        return self.history is None or not charge.confirmed


def _read(
    node: LedgerNode, report: Report, charges: Sequence[Charge], policy: str, scope: str
) -> _Reading | TooManyStates:
    if report.unlisted:
        return TooManyStates(frozenset({UNLISTED}))
    listings: list[list[Placement]] | None
    if node.listed is not None or is_empty(report):
        listed = (node.listed or {}).values()
        listings = [[placement for placements in listed for placement in placements]]
    else:
        listings = _unlisted(node, report, policy)
        report = msgspec.structs.replace(report, cpus=None, devices=None, checkpoints=(), hidden=())
    history = None
    is_followed = node.since_empty is not None and not _share_devices(node, report)
    if is_followed and not _lacks_layout(node, report, (), inits=True):
        shown = _observed(report, listings or (), (), policy, scope, True)
        bases = shown.bases if shown is not None else ()
        history = states_since_empty(node, report, charges, bases, policy, scope)
    if listings is None and history is None:
        return TooManyStates(frozenset({NO_PLACEMENTS}))
    return _Reading(report, listings or [], history)


def _lacks_layout(node: LedgerNode, report: Report, charges: Sequence[Charge], inits: bool) -> bool:
    """Return True if init containers come to a processor with many threads per core, and the report
    does not show which CPUs share a core."""
    labels = node.observed.labels if node.observed is not None else {}
    if report.cpus is not None or labels.get(ARCHITECTURE) not in MANY_THREADS:
        return False
    pending = [part for charge in charges if not charge.confirmed for part in charge.demand]
    return inits or any(part.kind == "init" for part in pending)


class _Completed(NamedTuple):
    """The report as it was `read`, and as it was once the pods that it lists partially had the
    rest; the charges of all `others`, and by name the rest of pods that `ended` since."""

    read: Report
    report: Report
    others: list[Charge]
    ended: dict[str, ZoneAmounts]


def _completed(
    node: LedgerNode, report: Report, charges: Sequence[Charge], policy: str
) -> _Completed | None:
    """Return None if what a partially listed pod gets next is not known."""
    listed = node.listed or {}
    partial = [charge for charge in charges if is_partial(charge, listed.get(charge.key, ()))]
    uids = {charge.uid for charge in partial}
    others = [charge for charge in charges if charge.uid not in uids]
    rests = [rest_of(charge.demand, listed[charge.key], policy) for charge in partial]
    known_rests = [rest for rest in rests if rest is not None]
    if len(known_rests) < len(rests) or any(hidden.pod_uid in uids for hidden in report.hidden):
        return None
    ended = _rests_of_ended(node, charges, policy) if any(map(_is_pending, others)) else {}
    reduced = report_without(report, [*known_rests, *ended.values()])
    return _Completed(report, reduced, others, ended) if reduced is not None else None


def order_of_ends_unknown(node: LedgerNode) -> bool:
    """Return True if pending pods may have been admitted before or after the end of some pod."""
    listed = node.listed or {}
    return len(node.ended) > 1 or any(
        key not in listed or _listed_partially(node, key, ended)
        for key, ended in node.ended.items()
    )


def _holdings(
    node: LedgerNode,
    charges: Iterable[Charge],
    claims: Mapping[str, ZoneAmounts],
    report: Report,
    bounds: set[str],
) -> tuple[list[PendingAdmission], list[Ways]]:
    """Return the pending admissions and every open holding. Raises TooManyChoicesError."""
    pending, open_holdings = _charged(charges, node.listed or {}, report, bounds)
    freed = freed_or_not(node.freed, bounds)
    return pending, [*freed, *open_holdings, *held_or_not(claims.values(), report)]


def _charged(
    charges: Iterable[Charge],
    listed: Mapping[str, tuple[Placement, ...]],
    report: Report,
    bounds: set[str],
) -> tuple[list[PendingAdmission], list[Ways]]:
    """Return the pending admissions, and what other pods may hold besides what the report shows.
    Raises TooManyChoicesError."""
    pending: list[PendingAdmission] = []
    open_holdings: list[Ways] = []
    for charge in charges:
        if charge.confirmed or not charge.demand:
            zones = charge.zones
            if is_included(charge, listed.get(charge.key, ()), report):
                zones = _not_in_checkpoints(zones, report)
            open_holdings += kept_by_inits(zones, report, bounds)
        elif charge.confirmed_zones:
            open_holdings += held_or_not([charge.confirmed_zones], report)
            bounds.add(EARLIER)
        else:
            request = promised(request_of(charge.demand), charge.one_zone)
            pending.append(
                PendingAdmission(request, charge.sent_at, charge.runs_at, charge.started_s)
            )
    return pending, open_holdings


def _unlisted(node: LedgerNode, report: Report, policy: str) -> list[list[Placement]] | None:
    """Return what the report may count without listing it, in every way that matters; None if that
    is not known."""
    if _share_devices(node, report):
        return None
    if policy == SINGLE_NUMA_NODE:
        return [[]]
    ways = ways_on(node, policy)
    return [[Placement("", "", "", way)] for way in ways] if ways is not None else None


def _share_devices(node: LedgerNode, report: Report) -> bool:
    """Return True if some devices lie in several zones: then zones offer more of them together than
    the node."""
    if between_zones(report):
        return True
    offered = node.observed.allocatable if node.observed is not None else {}
    sums = Counter[str]()
    for zone in report.zones:
        for name, amounts in zone.resources.items():
            sums[name] += amounts.allocatable if is_device(name) else 0
    return any(amount > offered.get(name, amount) for name, amount in sums.items())


def _observed(
    report: Report,
    listings: Sequence[Sequence[Placement]],
    inits: Sequence[Placement],
    policy: str,
    scope: str,
    fine: bool,
) -> ObservedNode | None:
    """Return the states that the report allows with any of these listings; None for a node without
    zones, or for too many states."""
    try:
        nodes = [observe(report, [*listing, *inits], policy, scope, fine) for listing in listings]
    except TooManyChoicesError:
        return None
    models = [node for node in nodes if node is not None]
    bases = dict.fromkeys([base for node in models for base in node.bases])
    if not bases or len(bases) > MOST_STATES:
        return None
    bounds = frozenset[str]().union(*[node.bounds for node in models])
    return ObservedNode(models[0].model, tuple(bases), bounds)


def _ids_matter(report: Report, charges: Sequence[Charge], policy: str) -> bool:
    """Under single-numa-node the CPUs of a zone are a number, except if whole cores are requested
    or init containers leave some."""
    if policy != SINGLE_NUMA_NODE or report.options.get(FULL_PCPUS_ONLY) == "true":
        return True
    pending = [charge for charge in charges if not charge.confirmed]
    return any(part.kind == "init" for charge in pending for part in charge.demand)


def _sort_hidden(
    report: Report, charges: Sequence[Charge], ended: Sequence[Placement]
) -> tuple[Report, list[Placement]]:
    """Sort what checkpoints show by uid without a listing, and return the report and further
    placements.

    Of a confirmed pod, what its init containers hold counts, and their memory waits for the pod to
    run; the rest is in the listing. Entries equal to the listing of an `ended` pod are part of that
    listing, and its end gives them back. All other entries are stale."""
    if all(hidden.pod for hidden in report.hidden):
        return report, []
    confirmed = {charge.uid: charge for charge in charges if charge.confirmed}
    listed = Counter((p.container, p.held) for p in ended if not p.pod_uid)
    kept, placements = [], []
    for hidden in report.hidden:
        charge = confirmed.get(hidden.pod_uid)
        if not hidden.pod and charge is None and listed[hidden.container, hidden.held]:
            listed[hidden.container, hidden.held] -= 1
        elif hidden.pod or charge is None:
            kept.append(hidden)
        elif any(part.kind == "init" and part.name == hidden.container for part in charge.demand):
            memory = tuple([item for item in hidden.held if is_memory(item.resource)])
            others = tuple([item for item in hidden.held if not is_memory(item.resource)])
            kept.append(msgspec.structs.replace(hidden, pod=charge.key, held=memory))
            placements.append(msgspec.structs.replace(hidden, held=others))
    return msgspec.structs.replace(report, hidden=tuple(kept)), placements


def _not_in_checkpoints(zones: ZoneAmounts, report: Report) -> ZoneAmounts:
    """Return the amounts of a confirmed pod that no checkpoint shows; the states have the rest."""
    if not zones or report.cpus is None or report.devices is None:
        return zones
    rest = {}
    for zone, amounts in zones.items():
        hidden = {n: a for n, a in amounts.items() if _checkpoint_of(n) not in report.checkpoints}
        if hidden:
            rest[zone] = hidden
    return rest


def _checkpoint_of(name: str) -> str:
    if name == CPU:
        return "cpu"
    return "memory" if is_memory(name) else "devices"


def _listed_and_ended(node: LedgerNode, charges: Sequence[Charge]) -> list[str]:
    """Return the names that the report lists although their pods ended and no live pod has them."""
    live = {charge.key for charge in charges if charge.alias is None}
    return [
        key
        for key in sorted(node.ended)
        if key not in live and key in (node.listed or {}) and not is_contradicted(node, key)
    ]


def _placements_of_ended(node: LedgerNode, charges: Sequence[Charge]) -> list[Placement]:
    listed, names = node.listed or {}, _listed_and_ended(node, charges)
    return [placement for key in names for placement in listed[key]]


def _freed(node: LedgerNode, charges: Sequence[Charge]) -> Held:
    freed: Held = ()
    for key in _listed_and_ended(node, charges):
        freed += _freed_by(node, key)
    return freed


def _freed_by(node: LedgerNode, key: str) -> Held:
    placements = given_back((node.listed or {}).get(key, ()), node.report)
    return tuple([item for placement in placements for item in placement.held])


def _ended_pods(
    node: LedgerNode,
    charges: Sequence[Charge],
    pending: Sequence[PendingAdmission],
    report: Report,
    rests: Mapping[str, ZoneAmounts],
) -> list[EndedPod] | None:
    """Return the ended pods that the report may still count, or that may have come since; None if
    that is not known.

    A report that arrived after an end may have been made before it. If it was read while the
    kubelet admitted a pod, it lists the pod without all that it took: if with nothing yet, the pod
    came since; if with a part, it took one of `rests` as well, or its state is not known.

    Pods that no event reserves yet come after all ends, also after those of unlisted pods of which
    nothing else is known."""
    listed, ended_pods = set(_listed_and_ended(node, charges)), list[EndedPod]()
    all_are_new = all(pod.sent_at == NOT_SENT_YET for pod in pending)
    for key, ended in sorted(node.ended.items()):
        if is_contradicted(node, key):  # it holds what the report lists
            continue
        life = _listed_life(ended, node.report_position) if key in listed else None
        if key in listed and _listed_partially(node, key, ended):
            holds = any(placement.held for placement in (node.listed or {})[key])
            if (holds and key not in rests) or ended.lives is None:
                return None
            if not holds:
                listed.discard(key)
                life = None
        if key in listed:
            if pending and _may_have_kept(life, (node.listed or {})[key], report):
                return None
            if life is None and ended.lives is not None:
                return None
            ended_at, finished_s = (life.ended_at, life.finished_s) if life is not None else (0, 0)
            freed = _freed_by(node, key) + _items(rests.get(key, {}))
            ended_pods.append(EndedPod(freed, ended=ended_at, finished_s=finished_s))
        elif ended.lives is None and (ended.is_supposed or not all_are_new):
            return None
        others = [earlier for earlier in ended.lives or () if earlier is not life]
        ended_pods += [_came_and_went(earlier, node.report_position) for earlier in others]
    return relevant(pending, ended_pods)


def _come_after(freed: Sequence[Freed], pending: Sequence[PendingAdmission]) -> bool:
    """Return True if all pending pods were sent after these ends."""
    ended_at = max((end.position for end in freed), default=0)
    return not freed or all(pod.sent_at > ended_at for pod in pending)


def _rests_of_ended(
    node: LedgerNode, charges: Sequence[Charge], policy: str
) -> dict[str, ZoneAmounts]:
    """Return by name what pods were about to get that the report lists partially and that ended
    since, as far as that is known."""
    rests: dict[str, ZoneAmounts] = {}
    for key in _listed_and_ended(node, charges):
        placements, ended = (node.listed or {})[key], node.ended[key]
        life = _listed_life(ended, node.report_position)
        if life is None or not _listed_partially(node, key, ended) or _hidden_of(node.report):
            continue
        rest = rest_of(life.demand, placements, policy)
        if rest is not None:
            rests[key] = rest
    return rests


def _hidden_of(report: Report | None) -> bool:
    return report is not None and bool(report.hidden)


def _items(zones: ZoneAmounts) -> Held:
    return tuple(
        ZonedAmount(name, (zone,), amount)
        for zone, amounts in zones.items()
        for name, amount in amounts.items()
    )


def _is_pending(charge: Charge) -> bool:
    return bool(charge.demand) and not charge.confirmed and not charge.confirmed_zones


def _may_have_kept(life: Life | None, listed: Sequence[Placement], report: Report) -> bool:
    """Return True if init containers of a listed pod that ended may have held, until the end,
    something that the listing does not show."""
    if life is None:
        return True
    # Its possible zones are not known any more, and without a listing by uid not its uid either.
    # Anywhere, container by container, is the most.
    everywhere = tuple(zone.id for zone in report.zones)
    possible = {WHOLE_POD: everywhere, **{part.name: everywhere for part in life.demand}}
    uid = next((placement.pod_uid for placement in listed if placement.pod_uid), "unknown")
    charge = Charge(uid, "", 0, life.demand, possible, runs_at=life.runs_at)
    return bool(residual(charge, listed, report))


def _listed_partially(node: LedgerNode, key: str, ended: Ended) -> bool:
    """Return True if the report was read while the kubelet admitted the pod that it lists under
    this name, and that ended since."""
    if ended.complete:
        return False
    life = _listed_life(ended, node.report_position)
    return not _is_whole((node.listed or {})[key], life)


def _is_whole(listed: Sequence[Placement], life: Life | None) -> bool:
    """Return True if every running container has its whole request."""
    sums = Counter[tuple[str, str]]()
    for placement in listed:
        for item in placement.held:
            sums[placement.container, item.resource] += item.amount
    running = [part for part in life.demand if part.kind != "init"] if life is not None else []
    for part in running:
        for name, amount in part.amounts.items():
            if sums[part.name, name] < amount:
                return False
    return bool(running)


def _listed_life(ended: Ended, report_position: int) -> Life | None:
    """Return the pod of the name that the report lists, if known: it was sent earlier, and is the
    only one, or the last one if the report confirmed that."""
    lives = ended.lives or ()
    early = [life for life in lives if life.sent_at < report_position]
    if len(early) == 1 or (ended.complete and early and early[-1] is lives[-1]):
        return early[-1]
    return None


def _came_and_went(life: Life, report_position: int) -> EndedPod:
    since = report_position < life.sent_at and life.runs_at > 0
    request, positions = request_of(life.demand), (life.sent_at, life.runs_at, life.ended_at)
    return EndedPod((), request, *positions, since, life.started_s, life.finished_s)


def _bases(
    model: KubeletModel,
    bases: Iterable[NodeState],
    freed: Sequence[ZonedAmount],
    open_holdings: Sequence[Ways],
) -> tuple[NodeState, ...] | None:
    """Return every state to which the combinations of the open holdings lead; None for too many.
    Ends come first in `open_holdings`: no zone gets back more than it can have."""
    if freed:
        bases = [model.released(states, freed) for states in bases]
    reached = dict.fromkeys(bases)
    for open_ways in open_holdings:
        reached = dict.fromkeys(
            [_changed(model, states, way) for states in reached for way in open_ways]
        )
        if len(reached) > MOST_STATES:
            return None
    return tuple(reached)


def _changed(model: KubeletModel, states: NodeState, way: Held) -> NodeState:
    taken = tuple([item for item in way if item.amount > 0])
    freed = negative(tuple([item for item in way if item.amount < 0]))
    if freed:
        states = model.released(states, freed)
    return model.with_held(states, taken) if taken else states
