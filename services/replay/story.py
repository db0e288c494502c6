"""The story of one pod, told from its facts: queued, each change of verdict, reserved where and why, bound, admitted or not.

Pure: envelopes and facts in, lines out. A line keeps its position and time, so that everything can be looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from services.replay.filters import clock
from services.replay.near_miss import near_miss
from shared.domain.effective import effective_request
from shared.domain.quantity import format_amount
from shared.domain.resources import Amounts
from shared.events import binding_facts as binding
from shared.events import cluster_facts as cluster
from shared.events import scheduling_facts as scheduling
from shared.events.catalog import Fact
from shared.events.envelope import Envelope

NO_NAMES: Mapping[str, str] = {}
NO_NOTES: Mapping[int, str] = {}
Told = tuple[str, list[str]]


class Line(msgspec.Struct, frozen=True):
    """One step of the story. `detail` are further lines, indented for people."""

    position: int
    time: str
    title: str
    detail: tuple[str, ...] = ()
    fact: dict[str, Any] = {}


def tell(
    history: Iterable[tuple[Envelope, Fact]], uid: str, names: Mapping[str, str] = NO_NAMES, notes: Mapping[int, str] = NO_NOTES
) -> list[Line]:
    """The lines for the pod `uid`, in order of position. `names` is the key of other pods by uid, `notes` what is to be added to
    the fact at a position."""
    lines = []
    for envelope, fact in history:
        if fact.about.pod != uid:
            continue
        title, detail = _told(fact, names)
        if not title:
            continue
        if envelope.position in notes:
            detail = [*detail, notes[envelope.position]]
        lines.append(Line(envelope.position, clock(envelope.time_us), title, tuple(detail), msgspec.to_builtins(fact)))
    return lines


def _told(fact: Fact, names: Mapping[str, str]) -> Told:
    if isinstance(fact, scheduling.PodVerdictChanged):
        return _verdict(fact, names)
    teller = _TELLERS.get(type(fact))
    return teller(fact) if teller else ("", [])


def amounts_text(amounts: Amounts) -> str:
    """`cpu 4, memory 2Gi`."""
    return ", ".join(f"{name} {format_amount(name, amount)}" for name, amount in sorted(amounts.items()) if amount)


def zones_text(zones: dict[int, Amounts]) -> list[str]:
    """A line a zone."""
    return [f"zone {zone}: {amounts_text(amounts)}" for zone, amounts in sorted(zones.items())]


def _observed(fact: cluster.PodObserved) -> Told:
    where = f"seen on {fact.node}" if fact.node else ("seen terminating" if fact.terminating else "queued")
    asks = amounts_text(effective_request(fact.pod))
    detail = [f"{fact.pod.qos}, asks for {asks or 'nothing'}, priority {fact.pod.priority}"]
    if fact.problem:
        detail.append(f"cannot be scheduled: {fact.problem}")
    return where, detail


def _verdict(fact: scheduling.PodVerdictChanged, names: Mapping[str, str]) -> Told:
    counts = [f"{count} node(s): {reason}" for reason, count in sorted(fact.counts.items(), key=lambda kv: (-kv[1], kv[0]))]
    near = [line for refusal in fact.detail for line in near_miss(refusal, names)]
    return f"waits: {fact.message}", [*counts, *near]


def _reserved(fact: scheduling.PodReserved) -> Told:
    predicted = _zones_by_name(fact.predicted)
    detail = [f"best of {fact.candidates} node(s), score {fact.score}, decided on position {fact.based_on}"]
    detail.append(f"used report version {fact.report_version} of the node")
    if predicted:
        detail.append(f"the kubelet model predicts {predicted}")
    return f"reserved on {fact.node}", detail


def _zones_by_name(zones: dict[str, tuple[int, ...]]) -> str:
    return "; ".join(f"{name or 'pod'} on zone {','.join(map(str, ids))}" for name, ids in sorted(zones.items()))


def _charged(fact: scheduling.NodeCharged) -> Told:
    trusted = [f"held to the predicted {_zones_by_name(fact.narrowed)}"] if fact.narrowed else []
    return f"charged to {fact.node}", [*zones_text(fact.zones), *trusted]


def _ended(fact: cluster.PodEnded) -> Told:
    if fact.cause == "rejected":
        return f"refused by the kubelet of {fact.node}: {fact.reason}", [fact.message] if fact.message else []
    return f"ended: {fact.cause}", [text for text in (fact.reason, fact.message) if text]


_TELLERS: dict[type[Fact], Callable[[Any], Told]] = {
    cluster.PodObserved: _observed,
    cluster.PodRunning: lambda fact: (f"admitted and running on {fact.node}", []),
    cluster.PodEnded: _ended,
    scheduling.PodReserved: _reserved,
    scheduling.NodeCharged: _charged,
    scheduling.ReservationWithdrawn: lambda fact: (f"reservation on {fact.node} withdrawn: {fact.cause}", []),
    scheduling.PodNominated: lambda fact: (
        f"nominated to {fact.node}, evicting {len(fact.victims)} pod(s)",
        [*fact.victims, *zones_text(fact.zones)],
    ),
    scheduling.NodeClaimed: lambda fact: (f"claim stands on {fact.node}", []),
    scheduling.NominationWithdrawn: lambda fact: (f"nomination to {fact.node} withdrawn: {fact.cause}", []),
    binding.BindIntended: lambda fact: (f"binding to {fact.node} intended", []),
    binding.PodBound: lambda fact: (
        f"bound to {fact.node}" + (" (found bound)" if fact.found else ""),
        [f"after {fact.attempts} call(s)"],
    ),
    binding.BindRefused: lambda fact: (f"binding to {fact.node} refused: {fact.cause}", [fact.message]),
    binding.BindUncertain: lambda fact: (f"binding to {fact.node} uncertain, will resend", [fact.message]),
    binding.EvictIntended: lambda fact: (f"eviction intended for {fact.preemptor}", []),
    binding.PodEvicted: lambda fact: (f"evicted for {fact.preemptor}", []),
    binding.EvictRefused: lambda fact: (f"eviction refused: {fact.message}", []),
}
