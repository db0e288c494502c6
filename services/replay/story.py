"""The story of one pod, told from its facts: queued, each change of verdict, reserved where and
why, bound, admitted, proven.

Pure: envelopes, facts and proofs in, lines out. A line keeps its position and time, so that
everything can be looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from services.replay import words
from services.replay.filters import clock
from services.replay.near_miss import near_miss
from services.replay.words import by_container
from shared.domain.resources import Amounts
from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events import scheduling_events as scheduling
from shared.events.catalog import Fact
from shared.events.envelope import Envelope

SCHEDULER_NAME = "topolog"
Zones = dict[str, tuple[int, ...]]
NO_NAMES: Mapping[str, str] = {}
NO_NOTES: Mapping[int, Sequence[str]] = {}


class Proof(msgspec.Struct, frozen=True):
    """The first report on `node` that shows the pod whole: its position, time and version,
    container -> zones.
    """

    position: int
    time_us: int
    node: str
    report_version: int
    zones: Zones


class Line(msgspec.Struct, frozen=True):
    """One step of the story. `detail` are further lines, indented for people."""

    position: int
    time: str
    title: str
    detail: tuple[str, ...] = ()
    fact: dict[str, Any] = {}


def tell(
    history: Iterable[tuple[Envelope, Fact]],
    uid: str,
    names: Mapping[str, str] = NO_NAMES,
    notes: Mapping[int, Sequence[str]] = NO_NOTES,
    proofs: Iterable[Proof] = (),
) -> list[Line]:
    """The lines for the pod `uid`, in order of position. `names` is the key of other pods by uid,
    `notes` what is to be added to the fact at a position, `proofs` when reports showed the pod
    whole."""
    lines: list[Line] = []
    predicted: dict[str, dict[str, tuple[int, ...]]] = {}
    for envelope, fact in history:
        if fact.about.pod != uid:
            continue
        if isinstance(fact, scheduling.PodReserved):
            predicted[fact.node] = fact.predicted
        detail = (*_detail(fact, names), *notes.get(envelope.position, ()))
        lines.append(
            Line(
                envelope.position,
                clock(envelope.time_us),
                _title(fact, names),
                detail,
                msgspec.to_builtins(fact),
            )
        )
    lines += [_proven(proof, predicted.get(proof.node, {})) for proof in proofs]
    return sorted(lines, key=lambda line: line.position)


def verdict_on(
    predicted: Mapping[str, tuple[int, ...]], zones: Mapping[str, tuple[int, ...]]
) -> str:
    """`as predicted`, what was predicted instead, or that nothing was."""
    if not predicted:
        return "nothing was predicted"
    shown = {name: predicted[name] for name in zones if name in predicted}
    if "" in predicted:
        shown = dict.fromkeys(zones, predicted[""])
    return "as predicted" if shown == dict(zones) else f"predicted was {by_container(predicted)}"


def _proven(proof: Proof, predicted: dict[str, tuple[int, ...]]) -> Line:
    zones = {
        "zones": {name: list(ids) for name, ids in proof.zones.items()},
        "node": proof.node,
        "report": proof.report_version,
    }
    title = f"proven on {by_container(proof.zones)} of {proof.node}, {verdict_on(predicted, proof.zones)}"
    detail = (f"by report {proof.report_version} of the node; the charge in other zones ends",)
    return Line(proof.position, clock(proof.time_us), title, detail, {"type": "Proof", **zones})


def _title(fact: Fact, names: Mapping[str, str]) -> str:
    """The sentence of the fact, with the node where the story needs it."""
    title = _TITLES.get(type(fact))
    return title(fact) if title is not None else words.told(fact, names).text


_TITLES: dict[type[Fact], Callable[[Any], str]] = {
    cluster.PodRunning: lambda fact: f"admitted and running on {fact.node}",
    scheduling.PodReserved: lambda fact: f"reserved on {fact.node}" + (
        f", predicted on {by_container(fact.predicted)}" if fact.predicted else ""
    ),
    scheduling.NodeCharged: lambda fact: f"charged to {fact.node}",
    scheduling.ReservationWithdrawn: lambda fact: f"reservation on {fact.node} withdrawn: {fact.cause.replace('_', ' ')}",
    scheduling.PodNominated: lambda fact: f"nominated to {fact.node}, evicting {len(fact.victims)} pod(s)",
    scheduling.NodeClaimed: lambda fact: f"claim stands on {fact.node}",
    scheduling.NominationWithdrawn: lambda fact: f"nomination to {fact.node} withdrawn: {fact.cause.replace('_', ' ')}",
    binding.BindIntended: lambda fact: f"binding to {fact.node} intended",
    binding.PodBound: lambda fact: f"bound to {fact.node}" + (" (found bound)" if fact.found else ""),
    binding.BindRefused: lambda fact: f"binding to {fact.node} refused: {fact.cause.replace('_', ' ')}",
    binding.BindUncertain: lambda fact: f"no clear answer to the binding to {fact.node}; it is sent again",
}  # fmt: skip


def _detail(fact: Fact, names: Mapping[str, str]) -> list[str]:
    if isinstance(fact, scheduling.PodVerdictChanged):
        return _verdict(fact, names)
    if isinstance(fact, scheduling.PodNominated):
        return [f"evicts {names.get(uid, uid)}" for uid in fact.victims] + zones_text(fact.zones)
    teller = _DETAILS.get(type(fact))
    return [text for text in teller(fact) if text] if teller is not None else []


def zones_text(zones: dict[int, Amounts]) -> list[str]:
    """A line a zone."""
    return [
        f"zone {zone}: {words.amounts_text(amounts)}" for zone, amounts in sorted(zones.items())
    ]


def _verdict(fact: scheduling.PodVerdictChanged, names: Mapping[str, str]) -> list[str]:
    counts = [
        f"{count} node(s): {reason}"
        for reason, count in sorted(fact.counts.items(), key=lambda kv: (-kv[1], kv[0]))
    ]
    return [*counts, *(line for refusal in fact.detail for line in near_miss(refusal, names))]


def _observed(fact: cluster.PodObserved) -> list[str]:
    detail = [f"priority {fact.pod.priority}"] if fact.pod.priority else []
    other = fact.pod.scheduler_name
    if other != SCHEDULER_NAME and fact.node:
        detail.append(
            f"its schedulerName is {other}: Topolog did not place it, and charges its node for it"
        )
        detail.append(
            f"to have Topolog place it, make it anew with spec.schedulerName: {SCHEDULER_NAME}"
        )
    return detail


def _reserved(fact: scheduling.PodReserved) -> list[str]:
    return [
        f"best of {fact.candidates} node(s), score {fact.score}, decided on position {fact.based_on}",
        f"used report version {fact.report_version} of the node",
    ]


def _charged(fact: scheduling.NodeCharged) -> list[str]:
    trusted = [f"held to the predicted {by_container(fact.narrowed)}"] if fact.narrowed else []
    return [*zones_text(fact.zones), *trusted]


_DETAILS: dict[type[Fact], Callable[[Any], list[str]]] = {
    cluster.PodObserved: _observed,
    scheduling.PodReserved: _reserved,
    scheduling.NodeCharged: _charged,
    binding.PodBound: lambda fact: [f"after {fact.attempts} call(s)"],
    binding.BindRefused: lambda fact: [fact.message],
    binding.BindUncertain: lambda fact: [fact.message],
}
