"""Decide gangs: place all missing pods of one, each with the former ones assumed, or none.

The trial is pure but for the placing, so that `topolog replay explain` repeats it. A gang with
layers is tried in one domain after the other: the nodes with one value of each label. Of domains
with room for all, the fullest comes first, so that large ones stay free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from services.scheduler.explain.placing import Placing
from services.scheduler.reserve.gangs import GangQueue, Unit, yields
from services.scheduler.reserve.proposals import Proposal, whole
from services.scheduler.snapshot.result import Placed, Unplaceable
from shared.domain.effective import effective_request
from shared.domain.pod import Pod
from shared.domain.resources import Amounts
from shared.ledger.state import Ledger, LedgerNode, LedgerPod, ZoneAmounts

# No node has this label.
NOWHERE = "topolog.io/other-domain"

Select = Callable[[LedgerPod], Placed | Unplaceable | None]
Explain = Callable[[LedgerPod], Unplaceable]
Reserve = Callable[[Pod, Placed, ZoneAmounts, int], Proposal]
Verdict = Callable[[LedgerPod, Unplaceable, int], list[Proposal]]


class Assumed(NamedTuple):
    """A pod, its node, and its charge there."""

    pod: Pod
    placed: Placed
    zones: ZoneAmounts


class Trial(NamedTuple):
    """What a gang gets in one domain, and its first pod without a node if that is too little. The
    pod is as it was tried, confined to the domain."""

    domain: dict[str, str]
    assumed: list[Assumed]
    short: LedgerPod | None


def try_in(domain: dict[str, str], placing: Placing, unit: Unit, select: Select) -> Trial:
    """Assume pods of the gang in the domain, one after the other, until enough have a node."""
    assumed, short = list[Assumed](), None
    for entry in unit.pods:
        confined = _confined(entry, domain)
        choice = select(confined)
        if isinstance(choice, Placed):
            assumed.append(Assumed(entry.pod, choice, placing.assume(choice, entry.pod)))
        else:
            short = short or confined
        if len(assumed) == unit.missing:
            return Trial(domain, assumed, None)
    return Trial(domain, assumed, short or _confined(unit.pods[0], domain))


def _confined(entry: LedgerPod, domain: dict[str, str]) -> LedgerPod:
    if not domain:
        return entry
    return msgspec.structs.replace(entry, pod=confined_to(domain, entry.pod))


def confined_to(domain: Mapping[str, str], pod: Pod) -> Pod:
    """Return the pod with these labels of its node required, in addition to its own."""
    selector = pod.constraints.node_selector
    if any(selector.get(key, value) != value for key, value in domain.items()):
        domain = {**domain, NOWHERE: "true"}
    constraints = msgspec.structs.replace(pod.constraints, node_selector={**selector, **domain})
    return msgspec.structs.replace(pod, constraints=constraints)


def domains_of(unit: Unit, ledger: Ledger, layers: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the domains to try: with all preferred layers, then with fewer, the narrowest dropped
    first. `layers` has label keys by layer. A gang with pods on nodes stays in their required
    domain, and prefers theirs.
    """
    rules = unit.gang.rules
    if not rules.has_layers:
        return [{}]
    required, preferred = (
        tuple(layers.get(layer, layer) for layer in named)
        for named in (rules.required, rules.preferred)
    )
    nodes = {name: node for name, node in ledger.nodes.items() if node.observed is not None}
    request = effective_request(unit.pods[0].pod)
    return [
        domain
        for depth in range(len(preferred), -1, -1)
        for domain in _domains((*required, *preferred[:depth]), len(required), nodes, unit, request)
    ]


def _domains(
    keys: tuple[str, ...],
    required: int,
    nodes: Mapping[str, LedgerNode],
    unit: Unit,
    request: Amounts,
) -> list[dict[str, str]]:
    places, members = dict[tuple[str, ...], int](), dict[tuple[str, ...], int]()
    for name, node in nodes.items():
        assert node.observed is not None
        values = tuple([node.observed.labels.get(key, "") for key in keys])
        if all(values):
            places[values] = places.get(values, 0) + _places(node, request)
            members[values] = members.get(values, 0) + unit.nodes.count(name)
    homes = {values[:required] for values, count in members.items() if count}
    allowed = [values for values in places if not homes or values[:required] in homes]
    lacks = {values: places[values] < unit.missing for values in allowed}
    allowed.sort(key=lambda values: (-members[values], lacks[values], places[values], values))
    return [dict(zip(keys, values, strict=True)) for values in allowed]


def _places(node: LedgerNode, request: Amounts) -> int:
    """Return how many pods with this request the node's amounts have room for."""
    assert node.observed is not None
    free = node.observed.allocatable
    rooms = [
        (free.get(name, 0) - node.requested.get(name, 0)) // amount
        for name, amount in request.items()
        if amount > 0
    ]
    return max(min(rooms, default=1), 0)


def refusal(unit: Unit, trial: Trial | None, why: Unplaceable | None) -> Unplaceable:
    """Return why the gang waits, given why its next pod does after the others of the trial."""
    if trial is None or why is None:
        layers = ", ".join(unit.gang.rules.required)
        return Unplaceable(f"gang {unit.name}: no node has labels for the layer(s) {layers}")
    where = "".join(f", in {key} {value}" for key, value in trial.domain.items())
    if unit.is_extra:
        message = f"gang {unit.name}: this pod must be with the others{where}: "
    else:
        fitting = len(trial.assumed) + unit.minimum - unit.missing
        message = (
            f"gang {unit.name}: {fitting} of {unit.minimum} pods fit{where}; for the next one: "
        )
    return Unplaceable(message + why.message, counts=why.counts, detail=why.detail)


class GangDecisions:
    """Decisions about the gangs of a `GangQueue`, by the rules of the core for single pods.
    `assumed` are the placements of this turn, which the ledger does not have."""

    def __init__(
        self,
        gangs: GangQueue,
        placing: Placing,
        select: Select,
        explain: Explain,
        reserve: Reserve,
        verdict: Verdict,
        layers: Mapping[str, str],
    ) -> None:
        self._gangs, self._queue, self._placing = gangs, gangs.queue, placing
        self._ledger = gangs.folded.ledger
        self._select, self._explain = select, explain
        self._reserve, self._verdict, self._layers = reserve, verdict, layers
        self.assumed: list[tuple[Placed, Pod]] = []

    def settle(self, orders: Iterator[int], now_s: float) -> list[Proposal]:
        """Put changed gangs into the queue, and roll one back that is bound in part for too
        long."""
        proposals, waiting = self._gangs.settle(now_s)
        for entry, message in waiting:
            proposals += self._verdict(entry, Unplaceable(message), next(orders))
        yielding = self._gangs.to_roll_back(now_s)
        if yielding is not None:
            key, unit, waited_s = yielding
            why = Unplaceable(yields(unit.name))
            verdicts = [self._verdict(entry, why, next(orders)) for entry in unit.pods]
            proposals.append(self._gangs.rolled_back(key, unit, waited_s, verdicts))
        return proposals

    def _try(self, unit: Unit) -> Trial | None:
        """Return the first trial that places the gang. Otherwise return the one that places most of
        it, with its assumptions taken back; None without domains."""
        best: Trial | None = None
        for domain in domains_of(unit, self._ledger, self._layers):
            trial = try_in(domain, self._placing, unit, self._select)
            if trial.short is None:
                return trial
            self._undo(trial.assumed)
            if best is None or len(trial.assumed) > len(best.assumed):
                best = trial
        return best

    def decide(self, unit: Unit, orders: Iterator[int]) -> Proposal | None:
        """Reserve all missing pods of a gang in one commit; None if they do not fit."""
        trial = self._try(unit)
        if trial is None or trial.short is not None:
            return None
        self.assumed += [(member.placed, member.pod) for member in trial.assumed]
        return whole(
            [self._reserve(*member, next(orders)) for member in trial.assumed], trial.domain
        )

    def explain(self, unit: Unit, orders: Iterator[int]) -> list[Proposal]:
        """Say why the gang waits; its first pod has the reason. Wake it if it fits by now."""
        trial = self._try(unit)
        first, *others = unit.pods
        if trial is not None and trial.short is None:
            self._undo(trial.assumed)
            self._queue.wake(first.pod.uid)
            return []
        why = self._why(unit, trial)
        proposals = self._verdict(first, refusal(unit, trial, why), next(orders))
        for entry in others:
            proposals += self._verdict(entry, Unplaceable(unit.see_first()), next(orders))
        return proposals

    def _why(self, unit: Unit, trial: Trial | None) -> Unplaceable | None:
        """Explain the pod that is short, with the others of the trial assumed."""
        if trial is None or trial.short is None:
            return None
        again = try_in(trial.domain, self._placing, unit, self._select)
        why = self._explain(again.short or trial.short)
        self._undo(again.assumed)
        return why

    def _undo(self, assumed: list[Assumed]) -> None:
        """Take back what a trial assumed: its nodes get the earlier placements of the turn only."""
        if not assumed or self._placing.columns is None:
            return
        nodes = {member.placed.node for member in assumed}
        for member in assumed:
            self._placing.columns.view.placed_pods.remove(member.pod.uid)
        for name in sorted(nodes):
            self._placing.put_node(self._ledger.nodes[name])
        for placed, pod in self.assumed:
            if placed.node in nodes:
                self._placing.assume(placed, pod)
