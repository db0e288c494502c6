"""Redaction: personal text of a pod that ended is masked wherever the log holds it; positions, versions and hash chain stay.

The pod's name becomes another one that is made from its uid, the same in every fact, so that all facts fold as before; values of
its labels and annotations go. What each row was is kept by its hash in a fact about the redaction, written first: an interruption
leaves nothing unexplained, and the same command again finishes it. Copies elsewhere (bus, backups, exports) are not reached.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection
from hashlib import sha256
from typing import Any

import msgspec

from services.replay.names import require_pod
from services.replay.reading import envelopes, ledger_at
from services.upkeep.errors import UpkeepRefused
from shared.eventlog.port import Commit, Draft, EventLog
from shared.eventlog.redactions import redactions
from shared.eventlog.whole_stream import readable_facts_of
from shared.events import streams
from shared.events.cluster_facts import PodEnded, PodObserved
from shared.events.log_facts import FactsRedacted

ROLE = "operator"
ROWS_A_FACT = 500
RELAY = "relay"

Mask = Callable[[Collection[int], Callable[[str, bytes], bytes | None]], Awaitable[int]]


class Redacted(msgspec.Struct, frozen=True):
    """What was masked: how many rows, and the name that stands for the pod now."""

    pod: str
    uid: str
    name: str
    rows: int


async def redact(log: EventLog, pod: str, by: str, reason: str, now_us: int, mask: Mask) -> list[Redacted]:
    """Redact every pod called `pod` (uid, name or namespace/name). `mask` writes payloads. Raises UpkeepRefused, FilterError."""
    uids = await require_pod(log, pod)
    people = [await _ended(log, uid) for uid in uids]
    await _require_forgotten(log, people)
    return [await _redact(log, each, by, reason, now_us, mask) for each in people]


async def _ended(log: EventLog, uid: str) -> PodObserved:
    """The pod as it was seen last. Raises UpkeepRefused while it lives, or while the bus has not got its end."""
    seen, ended = None, 0
    async for envelope, fact in readable_facts_of(log, streams.pod(uid)):
        seen = fact if isinstance(fact, PodObserved) else seen
        ended = envelope.position if isinstance(fact, PodEnded) else ended
    if seen is None or not ended:
        raise UpkeepRefused(f"pod {uid} has not ended", "the same once it has; folds need the names of pods that live")
    relayed = await log.load_checkpoint(RELAY)
    if relayed and relayed < ended:
        raise UpkeepRefused(f"the bus stands at position {relayed}, and the pod ended at {ended}", "the same a little later")
    return seen


async def _require_forgotten(log: EventLog, people: list[PodObserved]) -> None:
    """What the ledger still remembers of a pod, it remembers by name."""
    ledger = await ledger_at(log)
    for seen in people:
        for node in ledger.nodes.values():
            if seen.pod.key in node.ended or seen.pod.key in (node.listed or {}):
                raise UpkeepRefused(
                    f"node {node.name}'s reports may still list {seen.pod.key}",
                    "the same after its next reports, which come with the next change on it",
                )


async def _redact(log: EventLog, seen: PodObserved, by: str, reason: str, now_us: int, mask: Mask) -> Redacted:
    uid, name = seen.pod.uid, "redacted-" + sha256(seen.pod.uid.encode()).hexdigest()[:12]
    masking = Masking(uid, seen.pod.namespace, seen.pod.name, name)
    known, wanted, old = await redactions(log), list[int](), dict[int, str]()
    async for envelope in envelopes(log):
        payload = masking.masked(envelope.stream, envelope.payload)
        if payload is not None and payload != envelope.payload:
            wanted.append(envelope.position)
            if envelope.position not in known:
                old[envelope.position] = sha256(envelope.payload).hexdigest()
    for start in range(0, len(old), ROWS_A_FACT):
        rows = dict(list(old.items())[start : start + ROWS_A_FACT])
        word = FactsRedacted(rows, uid, by, reason)
        commit_id = f"redact/{uid}/{min(rows)}/{len(rows)}"
        await log.append([Commit(commit_id, ROLE, 0, now_us, (Draft(streams.LOG, word),))])
    return Redacted(f"{seen.pod.namespace}/{name}", uid, name, await mask(wanted, masking.masked) if wanted else 0)


class Masking:
    """What one pod's redaction makes of payloads. Pure."""

    def __init__(self, uid: str, namespace: str, name: str, instead: str) -> None:
        self._stream, self._namespace, self._name, self._instead = streams.pod(uid), namespace, name, instead
        key = f"{namespace}/{name}"
        self._key = re.compile(rf"(?<![\w./-]){re.escape(key)}(?![\w.-])")
        self._own = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")

    def masked(self, stream: str, payload: bytes) -> bytes | None:
        """The payload without the text; None for what is no JSON."""
        if stream != self._stream and self._name.encode() not in payload:
            return payload
        try:
            value = msgspec.json.decode(payload)
        except (msgspec.MsgspecError, ValueError):
            return None
        found = self._own_fact(value) if stream == self._stream else self._walked(value, self._key, self._of_key)
        return msgspec.json.encode(found) if found != value else payload

    def _own_fact(self, value: Any) -> Any:
        """A fact of the pod's own stream: its labels and annotations go, its name everywhere."""
        if isinstance(value, dict) and isinstance(value.get("pod"), dict):
            pod = dict(value["pod"])
            for field in ("labels", "annotations"):
                if field in pod:
                    pod[field] = dict.fromkeys(pod[field], "redacted")
            value = value | {"pod": pod}
        return self._walked(value, self._own, lambda _: self._instead)

    def _of_key(self, _: re.Match[str]) -> str:
        return f"{self._namespace}/{self._instead}"

    def _walked(self, value: Any, text: re.Pattern[str], instead: Callable[[re.Match[str]], str]) -> Any:
        if isinstance(value, str):
            return text.sub(instead, value)
        if isinstance(value, list):
            return [self._walked(each, text, instead) for each in value]
        if isinstance(value, dict):
            walked = {text.sub(instead, key): self._walked(each, text, instead) for key, each in value.items()}
            if (walked.get("namespace"), walked.get("pod")) == (self._namespace, self._name):
                walked["pod"] = self._instead
            return walked
        return value
