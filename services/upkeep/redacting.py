"""Redaction: personal text of a pod that ended is masked everywhere in the log; positions, versions
and hash chain stay.

1. The pod's name is replaced with a name derived from its uid, the same in every event, so that all
   events fold as before. Values of its labels and annotations are removed.
2. Reports list pods by name only, so all pods that ever had the name are redacted together; a
   single one is refused.
3. An event records the original hash of each row. It is written first, so an interruption leaves no
   unexplained change, and the same command finishes the work.
4. Files of pruned events are written again. Other copies (bus, backups, exports) are not reached.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from services.replay.names import require_pod, uids_of
from services.replay.reading import envelopes, ledger_at
from services.upkeep.errors import UpkeepRefused
from services.upkeep.out_file import replacing
from shared.eventlog.archive_files import STATE, ArchiveFiles, file_name
from shared.eventlog.archive_place import place_of
from shared.eventlog.history_file import Header, Writer, checked
from shared.eventlog.port import Commit, Draft, EventLog
from shared.eventlog.postgres_care import mask, masked_event
from shared.eventlog.postgres_pruning import prunable
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
    """The number of masked rows, and the new name of these pods."""

    pod: str
    uids: list[str]
    name: str
    rows: int


async def redact(
    log: EventLog, pod: str, by: str, reason: str, now_us: int, mask: Mask
) -> list[Redacted]:
    """Redact every pod called `pod` (uid, name or namespace/name). `mask` writes payloads. Raises
    UpkeepRefused, FilterError."""
    head = await log.head()
    requested = await require_pod(log, pod)
    namesakes = await _namesakes(log, requested)
    for key, uids in namesakes.items():
        _require_all(key, uids, requested)
    for uid in requested:
        await _require_ended(log, uid)
    await _require_forgotten(log, namesakes)
    return [
        await _redact(log, head, key, uids, by, reason, now_us, mask)
        for key, uids in namesakes.items()
    ]


async def _namesakes(log: EventLog, requested: list[str]) -> dict[str, list[str]]:
    """Return the uids of all pods that ever had a name of these pods, by `namespace/name`."""
    keys: dict[str, None] = {}
    for uid in requested:
        async for _, event in readable_events_of(log, streams.pod(uid)):
            if isinstance(event, PodObserved):
                keys[event.pod.key] = None
    return {key: await uids_of(log, key) for key in keys}


def _require_all(key: str, uids: list[str], requested: list[str]) -> None:
    missing = [uid for uid in uids if uid not in requested]
    if missing:
        shown = ", ".join(missing[:NAMED]) + (
            f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        )
        raise UpkeepRefused(
            f"other pods had the name {key}, too (pod {shown}), and reports list pods by name only",
            f"redact them together once all have ended: topolog log redact {key} --reason ...",
        )


async def _require_ended(log: EventLog, uid: str) -> None:
    """Raise UpkeepRefused while the pod lives, or before the relay has passed its end."""
    ended = 0
    async for envelope, event in readable_events_of(log, streams.pod(uid)):
        ended = envelope.position if isinstance(event, PodEnded) else ended
    if not ended:
        raise UpkeepRefused(
            f"pod {uid} has not ended",
            "run the command again when it has; folds need the names of live pods",
        )
    relayed = await log.load_checkpoint(RELAY)
    if relayed and relayed < ended:
        raise UpkeepRefused(
            f"the relay is at position {relayed}, and the pod ended at {ended}",
            "run the command again a little later",
        )


async def _require_forgotten(log: EventLog, keys: Collection[str]) -> None:
    # The ledger identifies pods that reports may still list by name.
    ledger = await ledger_at(log)
    for key in keys:
        for node in ledger.nodes.values():
            if key in node.ended or key in (node.listed or {}):
                raise UpkeepRefused(
                    f"node {node.name}'s reports may still list {key}",
                    "run the command again after its next reports, which follow the next change",
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
    """Redact up to `head`, before which no other pod had the name; later pods keep it."""
    name = "redacted-" + sha256(uids[0].encode()).hexdigest()[:12]
    namespace, _, pod_name = key.partition("/")
    masking = Masking(uids, namespace, pod_name, name)
    recorded, positions, digests = (
        await redactions(log),
        list[int](),
        {uid: dict[int, str]() for uid in uids},
    )
    async for envelope in envelopes(log, 0, head):
        payload = masking.masked(envelope.stream, envelope.payload)
        if payload is not None and payload != envelope.payload:
            positions.append(envelope.position)
            if envelope.position not in recorded:
                digests[masking.uid_of(envelope.stream)][envelope.position] = sha256(
                    envelope.payload
                ).hexdigest()
    for uid, all_rows in digests.items():
        for start in range(0, len(all_rows), ROWS_A_FACT):
            rows = dict(list(all_rows.items())[start : start + ROWS_A_FACT])
            event = FactsRedacted(rows, uid, by, reason)
            commit_id = f"redact/{uid}/{min(rows)}/{len(rows)}"
            await log.append([Commit(commit_id, ROLE, 0, now_us, (Draft(streams.LOG, event),))])
    rows_masked = await mask(positions, masking.masked) if positions else 0
    return Redacted(f"{namespace}/{name}", uids, name, rows_masked)


async def mask_everywhere(
    url: str,
    log: EventLog,
    positions: Collection[int],
    masked: Callable[[str, bytes], bytes | None],
    *,
    archive: str = "",
) -> int:
    """Mask these positions in the database and in the files of pruned events, which are where they
    were written or in `archive`."""
    pruned = await prunable(url)
    done = await mask(url, [p for p in positions if p > pruned.pruned_to], masked)
    if not pruned.pruned_to:
        return done
    recorded, place = await redactions(log), place_of(archive or pruned.archive)
    try:
        # Checkpoints hold text, too.
        for name in place.names(again=True):
            if name.startswith(STATE):
                place.remove(name)
        for first, last in ArchiveFiles(place, "").named(again=True):
            covered = {p for p in positions if first <= p <= min(last, pruned.pruned_to)}
            if covered:
                digests = {p: digest for p, digest in recorded.items() if first <= p <= last}
                name = file_name(first, last)
                original = place.path(name)
                with place.writing(name) as file:
                    _mask_file(original, file, covered, masked, digests)
                done += len(covered)
    except OSError as error:
        raise UpkeepRefused(
            f"the archive {place} cannot be used: {error.strerror}", "run the command again"
        ) from error
    return done


def _mask_file(
    original: Path,
    file: Path,
    positions: Collection[int],
    masked: Callable[[str, bytes], bytes | None],
    digests: dict[int, str],
) -> None:
    with replacing(file) as out:
        writer: Writer | None = None
        for item in checked(original):
            if isinstance(item, Header):
                writer = Writer(out, msgspec.structs.replace(item, redacted=digests))
            elif writer is not None:
                writer.add(
                    [
                        masked_event(event, masked) if event.position in positions else event
                        for event in item.envelopes
                    ]
                )
        if writer is not None:
            writer.end()


class Masking:
    """The redaction of payloads for all pods of one name. Pure."""

    def __init__(self, uids: Sequence[str], namespace: str, name: str, replacement: str) -> None:
        self._own_streams, self._first = {streams.pod(uid): uid for uid in uids}, uids[0]
        self._namespace, self._name, self._replacement = namespace, name, replacement
        key = f"{namespace}/{name}"
        self._key = re.compile(rf"(?<![\w./-]){re.escape(key)}(?![\w.-])")
        self._own = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")

    def uid_of(self, stream: str) -> str:
        """Return the uid to record for an event: that of its stream, or the first."""
        return self._own_streams.get(stream, self._first)

    def masked(self, stream: str, payload: bytes) -> bytes | None:
        """Return the masked payload; None if it is not JSON."""
        if stream not in self._own_streams and self._name.encode() not in payload:
            return payload
        try:
            value = msgspec.json.decode(payload)
        except (msgspec.MsgspecError, ValueError):
            return None
        masked = (
            self._own_event(value)
            if stream in self._own_streams
            else self._walked(value, self._key, self._of_key)
        )
        return msgspec.json.encode(masked) if masked != value else payload

    def _own_event(self, value: Any) -> Any:
        """Mask an event of a pod's own stream: label and annotation values, and its name."""
        if isinstance(value, dict) and isinstance(value.get("pod"), dict):
            pod = dict(value["pod"])
            for field in ("labels", "annotations"):
                if field in pod:
                    pod[field] = dict.fromkeys(pod[field], "redacted")
            value = value | {"pod": pod}
        return self._walked(value, self._own, lambda _: self._replacement)

    def _of_key(self, _: re.Match[str]) -> str:
        return f"{self._namespace}/{self._replacement}"

    def _walked(
        self, value: Any, text: re.Pattern[str], instead: Callable[[re.Match[str]], str]
    ) -> Any:
        if isinstance(value, str):
            return text.sub(instead, value)
        if isinstance(value, list):
            return [self._walked(item, text, instead) for item in value]
        if isinstance(value, dict):
            walked = {
                text.sub(instead, key): self._walked(item, text, instead)
                for key, item in value.items()
            }
            if (walked.get("namespace"), walked.get("pod")) == (self._namespace, self._name):
                walked["pod"] = self._replacement
            return walked
        return value
