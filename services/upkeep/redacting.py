"""Redaction: personal text of a pod that ended is masked wherever the log holds it; positions,
versions and hash chain stay.

The pod's name becomes another one that is made from its uid, the same in every fact, so that all
facts fold as before; values of its labels and annotations go. Reports list pods by name alone, so
all that ever had one name get the other together: one of them by itself is refused. What each row
was is kept by its hash in a fact about the redaction, written first: an interruption leaves nothing
unexplained, and the same command again finishes it. Copies elsewhere (bus, backups, exports) are
not reached.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from services.replay.names import require_pod, uids_of
from services.replay.reading import envelopes, ledger_at
from services.upkeep.errors import UpkeepRefused
from shared.eventlog.port import Commit, Draft, EventLog
from shared.eventlog.redactions import redactions
from shared.eventlog.whole_stream import readable_events_of
from shared.events import streams
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.log_events import FactsRedacted

ROLE = "operator"
ROWS_A_FACT = 500
NAMED = 3
RELAY = "relay"

Mask = Callable[[Collection[int], Callable[[str, bytes], bytes | None]], Awaitable[int]]


class Redacted(msgspec.Struct, frozen=True):
    """What was masked: how many rows, and the name that stands for these pods now."""

    pod: str
    uids: list[str]
    name: str
    rows: int


async def redact(
    log: EventLog, pod: str, by: str, reason: str, now_us: int, mask: Mask
) -> list[Redacted]:
    """Redact every pod called `pod` (uid, name or namespace/name). `mask` writes payloads. Raises
    UpkeepRefused, FilterError.
    """
    head = await log.head()
    asked = await require_pod(log, pod)
    alike = await _alike(log, asked)
    for key, uids in alike.items():
        _require_all(key, uids, asked)
    for uid in asked:
        await _require_ended(log, uid)
    await _require_forgotten(log, alike)
    return [
        await _redact(log, head, key, uids, by, reason, now_us, mask) for key, uids in alike.items()
    ]


async def _alike(log: EventLog, asked: list[str]) -> dict[str, list[str]]:
    """Namespace/name -> all uids that ever had it, of each that one of these has."""
    keys: dict[str, None] = {}
    for uid in asked:
        async for _, event in readable_events_of(log, streams.pod(uid)):
            if isinstance(event, PodObserved):
                keys[event.pod.key] = None
    return {key: await uids_of(log, key) for key in keys}


def _require_all(key: str, uids: list[str], asked: list[str]) -> None:
    others = [uid for uid in uids if uid not in asked]
    if others:
        shown = ", ".join(others[:NAMED]) + (
            f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
        )
        raise UpkeepRefused(
            f"others have the name {key} too (pod {shown}), and reports list pods by name alone",
            f"all of them at once, when all have ended: topolog log redact {key} --reason ...",
        )


async def _require_ended(log: EventLog, uid: str) -> None:
    """Raises UpkeepRefused while the pod lives, or while the bus has not got its end."""
    ended = 0
    async for envelope, event in readable_events_of(log, streams.pod(uid)):
        ended = envelope.position if isinstance(event, PodEnded) else ended
    if not ended:
        raise UpkeepRefused(
            f"pod {uid} has not ended",
            "the same once it has; folds need the names of pods that live",
        )
    relayed = await log.load_checkpoint(RELAY)
    if relayed and relayed < ended:
        raise UpkeepRefused(
            f"the bus stands at position {relayed}, and the pod ended at {ended}",
            "the same a little later",
        )


async def _require_forgotten(log: EventLog, keys: Collection[str]) -> None:
    """What the ledger still remembers of a pod, it remembers by name."""
    ledger = await ledger_at(log)
    for key in keys:
        for node in ledger.nodes.values():
            if key in node.ended or key in (node.listed or {}):
                raise UpkeepRefused(
                    f"node {node.name}'s reports may still list {key}",
                    "the same after its next reports, which come with the next change on it",
                )


async def _redact(
    log: EventLog,
    head: int,
    key: str,
    uids: list[str],
    by: str,
    reason: str,
    now_us: int,
    mask: Mask,
) -> Redacted:
    """Up to `head`, where no other pod had the name; who comes later with it keeps it."""
    name = "redacted-" + sha256(uids[0].encode()).hexdigest()[:12]
    namespace, _, called = key.partition("/")
    masking = Masking(uids, namespace, called, name)
    known, wanted, old = await redactions(log), list[int](), {uid: dict[int, str]() for uid in uids}
    async for envelope in envelopes(log, 0, head):
        payload = masking.masked(envelope.stream, envelope.payload)
        if payload is not None and payload != envelope.payload:
            wanted.append(envelope.position)
            if envelope.position not in known:
                old[masking.whose(envelope.stream)][envelope.position] = sha256(
                    envelope.payload
                ).hexdigest()
    for uid, all_rows in old.items():
        for start in range(0, len(all_rows), ROWS_A_FACT):
            rows = dict(list(all_rows.items())[start : start + ROWS_A_FACT])
            word = FactsRedacted(rows, uid, by, reason)
            commit_id = f"redact/{uid}/{min(rows)}/{len(rows)}"
            await log.append([Commit(commit_id, ROLE, 0, now_us, (Draft(streams.LOG, word),))])
    rows_masked = await mask(wanted, masking.masked) if wanted else 0
    return Redacted(f"{namespace}/{name}", uids, name, rows_masked)


class Masking:
    """What the redaction of all pods of one name makes of payloads. Pure."""

    def __init__(self, uids: Sequence[str], namespace: str, name: str, instead: str) -> None:
        self._own_streams, self._first = {streams.pod(uid): uid for uid in uids}, uids[0]
        self._namespace, self._name, self._instead = namespace, name, instead
        key = f"{namespace}/{name}"
        self._key = re.compile(rf"(?<![\w./-]){re.escape(key)}(?![\w.-])")
        self._own = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")

    def whose(self, stream: str) -> str:
        """The uid that a fact is told to be redacted for: the stream's own, or the first."""
        return self._own_streams.get(stream, self._first)

    def masked(self, stream: str, payload: bytes) -> bytes | None:
        """The payload without the text; None for what is no JSON."""
        if stream not in self._own_streams and self._name.encode() not in payload:
            return payload
        try:
            value = msgspec.json.decode(payload)
        except (msgspec.MsgspecError, ValueError):
            return None
        found = (
            self._own_event(value)
            if stream in self._own_streams
            else self._walked(value, self._key, self._of_key)
        )
        return msgspec.json.encode(found) if found != value else payload

    def _own_event(self, value: Any) -> Any:
        """A fact of a pod's own stream: its labels and annotations go, its name everywhere."""
        if isinstance(value, dict) and isinstance(value.get("pod"), dict):
            pod = dict(value["pod"])
            for field in ("labels", "annotations"):
                if field in pod:
                    pod[field] = dict.fromkeys(pod[field], "redacted")
            value = value | {"pod": pod}
        return self._walked(value, self._own, lambda _: self._instead)

    def _of_key(self, _: re.Match[str]) -> str:
        return f"{self._namespace}/{self._instead}"

    def _walked(
        self, value: Any, text: re.Pattern[str], instead: Callable[[re.Match[str]], str]
    ) -> Any:
        if isinstance(value, str):
            return text.sub(instead, value)
        if isinstance(value, list):
            return [self._walked(each, text, instead) for each in value]
        if isinstance(value, dict):
            walked = {
                text.sub(instead, key): self._walked(each, text, instead)
                for key, each in value.items()
            }
            if (walked.get("namespace"), walked.get("pod")) == (self._namespace, self._name):
                walked["pod"] = self._instead
            return walked
        return value
