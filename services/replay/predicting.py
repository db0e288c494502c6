"""`topolog replay predict`: where a pod would be placed now, and in which zones. Pure but for
reading.

The scheduler's rooms decide, on the state at the head of the log.
"""

from __future__ import annotations

import msgspec

from services.replay.deciding_state import followed_at, placing_at
from services.replay.filters import clock
from services.replay.names import require_pod
from services.replay.recomputing import Deciding, decided
from services.replay.words import by_container
from services.scheduler.snapshot.result import Placed
from shared.eventlog.port import EventLog
from shared.ledger.state import LedgerPod


class Prediction(msgspec.Struct, frozen=True):
    """`zones` is container -> zone ids, {} if none are predicted; `certain` says that no order of
    other pods and ends leads elsewhere. `node` is "" if the pod would wait, `score` -1 then and for
    a pod that was placed before.
    """

    pod: str
    uid: str
    position: int
    time: str
    answer: str
    node: str = ""
    zones: dict[str, tuple[int, ...]] = {}
    certain: bool = False
    score: int = -1


async def predict(log: EventLog, pod: str, deciding: Deciding) -> Prediction:
    """Return the answer for the newest pod of this name. Raises UnknownPod."""
    uid = (await require_pod(log, pod))[-1]
    position = await log.head()
    time = clock((await log.read(position - 1, 1))[0].time_us)
    followed, quarantined = await followed_at(log, position)
    entry = followed.ledger.pods.get(uid)
    if entry is None:
        return Prediction(pod, uid, position, time, "has ended; topolog replay explain tells more")
    answer = Prediction(entry.pod.key, uid, position, time, "")
    if entry.node:
        return _placed_before(answer, entry)
    if entry.pod.scheduler_name != deciding.scheduler_name:
        refusal = f"is not Topolog's: its scheduler is {entry.pod.scheduler_name}"
        return msgspec.structs.replace(answer, answer=refusal)
    if deciding.instead:
        return msgspec.structs.replace(answer, answer="is not predicted: an upstream cache decides")
    outcome = decided(placing_at(followed, deciding.cycle, quarantined), entry)
    if not isinstance(outcome, Placed):
        return msgspec.structs.replace(answer, answer=f"would wait: {outcome.message}")
    return msgspec.structs.replace(
        answer,
        answer=f"would go to {outcome.node}{_on(outcome.predicted, outcome.certain)}",
        node=outcome.node,
        zones=outcome.predicted,
        certain=outcome.certain,
        score=outcome.score,
    )


def _placed_before(answer: Prediction, entry: LedgerPod) -> Prediction:
    return msgspec.structs.replace(
        answer,
        answer=f"is on {entry.node} already ({entry.stage}){_on(entry.predicted, entry.certain)}",
        node=entry.node,
        zones=entry.predicted,
        certain=entry.certain,
    )


def _on(zones: dict[str, tuple[int, ...]], certain: bool) -> str:
    if not zones:
        return "; no zone is predicted"
    certainty = "for certain" if certain else "not for certain: other pods may change it"
    return f", predicted on {by_container(zones)} ({certainty})"
