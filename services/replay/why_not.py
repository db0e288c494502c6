"""`topolog replay why-not`: why a pod did not go to a node at a moment, and what would have helped.
Pure but for reading.

The scheduler's rooms give the answer, on the state of that moment: this module decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from services.replay.deciding_state import followed_at, placing_at
from services.replay.filters import FilterError, clock
from services.replay.names import Names, require_node, require_pod
from services.replay.near_miss import near_miss
from services.replay.positions import position_of
from services.replay.recomputing import Decision, mates
from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.explain.undecided import of_pod
from services.scheduler.explain.wording import UNDECIDED
from services.scheduler.queue.shard import Shard, shard_of
from services.scheduler.score.predicted_zones import rank_words
from services.scheduler.score.ranks import RULED_OUT, score_of
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from services.scheduler.state.state import SchedulerState
from shared.domain.pod import Pod
from shared.domain.refusal import Refusal
from shared.eventlog.port import EventLog
from shared.eventlog.whole_stream import readable_events_of
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.envelope import Envelope
from shared.events.quarantine import QuarantinedStreams
from shared.events.scheduling_events import PodReserved
from shared.ledger.state import LedgerPod


class WhyNot(msgspec.Struct, frozen=True):
    """`refusal` is empty if nothing prevented the placement; `answer` then says what was better, or
    that the pod is there. `instead` is the node that the pod would go to, "" for none. Scores are
    0..100, -1 for none. `when` says which moment the answer is for, "" for the requested one.
    """

    pod: str
    uid: str
    node: str
    position: int
    time: str
    answer: str
    lines: list[str]
    refusal: dict[str, Any] = {}
    instead: str = ""
    score: int = -1
    instead_score: int = -1
    when: str = ""


async def why_not(log: EventLog, pod: str, node: str, moment: str, cycle: CycleConfig) -> WhyNot:
    """Answer for `moment`; "" is now, and for a pod that ended the state it was placed on.

    Raises FilterError for a pod, node or moment that the log does not have.
    """
    uid = (await require_pod(log, pod))[-1]
    await require_node(log, node)
    history = [entry async for entry in readable_events_of(log, streams.pod(uid))]
    decisions = [(envelope, event) for envelope, event in history if isinstance(event, Decision)]
    batch: tuple[PodReserved, ...] = ()
    first, last = _lifetime(history, await log.head())
    if moment:
        position, when = await position_of(log, moment, "--at", "--at head"), ""
        _require_alive(pod, first, last, position)
    elif any(isinstance(event, PodEnded) for _, event in history):
        position, when = _before_it_was_placed(history, first, last)
        decided = [decision for decision in decisions if decision[1].based_on == position]
        batch = await mates(log, *decided[-1]) if decided else ()
    else:
        position, when = last, "now"
    followed, quarantined = await followed_at(log, position)
    placing, share = placing_at(followed, cycle, quarantined, batch), _share(decisions, position)
    placing.share(None if share.alone else share.has)
    answer = _judged(followed, placing, quarantined, _observed(history, uid), node, share)
    time = clock((await log.read(position - 1, 1))[0].time_us)
    names = Names(log)
    if answer.refusal:
        await names.find(
            uid for zone in answer.refusal.get("zones", ()) for uid in zone.get("holders", ())
        )
    lines = near_miss(answer.refusal, names.known) if answer.refusal else answer.lines
    return msgspec.structs.replace(answer, position=position, time=time, when=when, lines=lines)


def _share(decisions: Sequence[tuple[Envelope, Decision]], position: int) -> Shard:
    """Return which scheduler of several was responsible for the pod: that of its last decision by
    the position, or of its first one after.
    """
    by_then = [decision for decision in decisions if decision[1].based_on <= position]
    nearest = by_then[-1:] or decisions[:1]
    return shard_of(nearest[0][1].config, nearest[0][0].role) if nearest else Shard()


def _lifetime(history: list[tuple[Envelope, Event]], head: int) -> tuple[int, int]:
    """Return the first and the last position at which the log has the pod as live."""
    first = min((envelope.position for envelope, _ in history), default=head)
    ended = [envelope.position for envelope, event in history if isinstance(event, PodEnded)]
    return first, ended[-1] - 1 if ended else head


def _before_it_was_placed(
    history: list[tuple[Envelope, Event]], first: int, last: int
) -> tuple[int, str]:
    """Return the state that the pod was placed on, and its name; else the last one it lived in."""
    for envelope, event in reversed(history):
        if isinstance(event, PodReserved):
            return event.based_on, "the state of its last decision; the pod has ended"
        if isinstance(event, PodObserved) and event.node and envelope.position > 1:
            return envelope.position - 1, "just before it was placed; the pod has ended"
    return last, "just before its end"


def _observed(history: list[tuple[Envelope, Event]], uid: str) -> Pod:
    for _, event in reversed(history):
        if isinstance(event, PodObserved):
            return event.pod
    raise FilterError(f"pod {uid} was never observed", "topolog replay log --pod " + uid)


def _require_alive(pod: str, first: int, last: int, position: int) -> None:
    if not first <= position <= last:
        raise FilterError(
            f"pod {pod!r} is not in the log at position {position}",
            f"--at a position from {first} to {last}",
        )


def _judged(
    followed: SchedulerState,
    placing: ColumnarPlacing,
    quarantined: QuarantinedStreams,
    observed: Pod,
    node: str,
    share: Shard,
) -> WhyNot:
    entry = followed.ledger.pods.get(observed.uid) or LedgerPod(observed)
    answer = WhyNot(entry.pod.key, observed.uid, node, 0, "", "", [])
    if entry.node == node:
        return msgspec.structs.replace(answer, answer=f"it is there: {entry.stage} on {node}")
    problem = entry.problem or quarantined.streams.get(streams.pod(observed.uid), "")
    if problem:
        return msgspec.structs.replace(answer, answer=f"the pod goes nowhere: {problem}")
    unread = quarantined.streams.get(streams.node(node), "") or quarantined.streams.get(
        streams.report(node), ""
    )
    if unread:
        return msgspec.structs.replace(answer, answer=f"no pod goes to {node}: {unread}")
    refusal = placing.verdict(entry.pod, node)
    if refusal is not None:
        return msgspec.structs.replace(
            answer, answer=_headline(refusal), refusal=msgspec.to_builtins(refusal)
        )
    if within := of_pod(placing, entry.pod, node):
        answer = msgspec.structs.replace(answer, lines=[f"{UNDECIDED}{', '.join(within)}"])
    pod_class, node_info = placing.evaluator.pod_class(entry.pod), placing.node(node)
    placing.evaluator.evaluate_all_if_new(pod_class)
    rank = placing.evaluator.rank(pod_class, node_info) if node_info is not None else RULED_OUT
    score = max(-1, score_of(rank))
    chosen = placing.place(entry.pod)
    if not isinstance(chosen, Placed) or chosen.node == node:
        return msgspec.structs.replace(
            answer,
            answer="the node passes the filter, and the pod would go there",
            score=score,
            instead=node,
        )
    instead = placing.node(chosen.node)
    best = placing.evaluator.rank(pod_class, instead) if instead is not None else rank
    text = (
        f"the node passes the filter: {node} has score {score}{rank_words(rank)}, but "
        f"{chosen.node} had {chosen.score}{rank_words(best)}"
    )
    if share.has(chosen.node) and not share.has(node):
        text += f", and is tried first by {share.own} of {len(share.members)} schedulers"
    elif rank == best:
        text += ", and ties are broken by a hash of the pod's uid"
    fields = {"answer": text, "score": score, "instead": chosen.node, "instead_score": chosen.score}
    return msgspec.structs.replace(answer, **fields)


def _headline(refusal: Refusal) -> str:
    return f"{refusal.node} refuses it: {refusal.reason}"
