"""Decide gangs: place all missing pods of one, each with the former ones assumed, or none.

The trial is pure but for the placing, so that `topolog replay explain` repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from services.scheduler.explain.placing import Placing
from services.scheduler.queue.queue import Queue
from services.scheduler.reserve.gangs import GangQueue, Unit
from services.scheduler.reserve.proposals import Proposal, whole
from services.scheduler.snapshot.result import Placed, Unplaceable
from shared.domain.pod import Pod
from shared.ledger.state import Ledger, LedgerPod, ZoneAmounts

Select = Callable[[LedgerPod], Placed | Unplaceable | None]
Explain = Callable[[LedgerPod], Unplaceable]
Reserve = Callable[[Pod, Placed, ZoneAmounts, int], Proposal]
Verdict = Callable[[LedgerPod, Unplaceable, int], list[Proposal]]


class Assumed(NamedTuple):
    """A pod, its node, and its charge there."""

    pod: Pod
    placed: Placed
    zones: ZoneAmounts


def try_gang(
    placing: Placing, unit: Unit, select: Select
) -> tuple[list[Assumed], LedgerPod | None]:
    """Assume pods of the gang one after the other until enough have a node. Return them, and the
    first pod without a node if they are too few.
    """
    assumed, short = list[Assumed](), None
    for entry in unit.pods:
        choice = select(entry)
        if isinstance(choice, Placed):
            assumed.append(Assumed(entry.pod, choice, placing.assume(choice, entry.pod)))
        else:
            short = short or entry
        if len(assumed) == unit.missing:
            return assumed, None
    return assumed, short


def refusal(unit: Unit, fitting: int, why: Unplaceable) -> Unplaceable:
    """Return why the gang waits, given why its next pod does after `fitting` others."""
    fitting += unit.minimum - unit.missing
    message = f"gang {unit.name}: {fitting} of {unit.minimum} pods fit; for the next one: "
    return Unplaceable(message + why.message, counts=why.counts, detail=why.detail)


class GangDecisions:
    """Decisions about the gangs of a `GangQueue`, by the rules of the core for single pods.
    `assumed` are the placements of this turn, which the ledger does not have."""

    def __init__(
        self,
        gangs: GangQueue,
        queue: Queue,
        ledger: Ledger,
        placing: Placing,
        select: Select,
        explain: Explain,
        reserve: Reserve,
        verdict: Verdict,
    ) -> None:
        self._gangs, self._queue, self._ledger, self._placing = gangs, queue, ledger, placing
        self._select, self._explain = select, explain
        self._reserve, self._verdict = reserve, verdict
        self.assumed: list[tuple[Placed, Pod]] = []

    def settle(self, orders: Iterator[int], now_s: float) -> list[Proposal]:
        """Put changed gangs into the queue."""
        proposals, waiting = self._gangs.settle(now_s)
        for entry, message in waiting:
            proposals += self._verdict(entry, Unplaceable(message), next(orders))
        return proposals

    def decide(self, unit: Unit, orders: Iterator[int]) -> Proposal | None:
        """Reserve all missing pods of a gang in one commit; None if they do not fit."""
        assumed, short = try_gang(self._placing, unit, self._select)
        if short is not None or len(assumed) < unit.missing:
            self._undo(assumed)
            return None
        self.assumed += [(member.placed, member.pod) for member in assumed]
        return whole([self._reserve(*member, next(orders)) for member in assumed])

    def explain(self, unit: Unit, orders: Iterator[int]) -> list[Proposal]:
        """Say why the gang waits; its first pod has the reason. Wake it if it fits by now."""
        assumed, short = try_gang(self._placing, unit, self._select)
        why = self._explain(short) if short is not None else None
        self._undo(assumed)
        first, *others = unit.pods
        if why is None:
            self._queue.wake(first.pod.uid)
            return []
        proposals = self._verdict(first, refusal(unit, len(assumed), why), next(orders))
        for entry in others:
            proposals += self._verdict(entry, Unplaceable(unit.see_first()), next(orders))
        return proposals

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
