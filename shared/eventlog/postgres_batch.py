"""Convert a batch of commits to the parallel arrays of `topolog_append`, and its arrays back to
outcomes. A single commit of one event has a function without arrays.

Pure: it knows the functions' signatures (migrations 0012, 0013 and 0015), not connections.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec

from shared.eventlog.limits import check_commit, check_payload
from shared.eventlog.port import (
    ANY_VERSION,
    Appended,
    Commit,
    Conflict,
    Duplicate,
    Fenced,
    Outcome,
    Place,
)
from shared.events import streams as names
from shared.events.catalog import CATALOG
from shared.events.codec import encode_on, type_of

APPEND = """
SELECT * FROM topolog_append(
    $1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::text[],
    $8::bigint[], $9::bytea[], $10::int[], $11::int[],
    $12::text[], $13::bigint[], $14::text[], $15::int[], $16::bytea[], $17::bool)
"""
_APPEND_ONE = """
SELECT * FROM topolog_append(
    $1::text, $2::text, $3::bigint, $4::bigint, $5::text, $6::bigint, $7::text, $8::bigint,
    $9::bytea, $10::text, $11::bigint, $12::text, $13::int, $14::bytea, $15::bool)
"""
# The same for processes that share a flush: the first answers with the number of a request if
# another process has the turn, and the second waits for the answer to that request (0015).
APPEND_OR_QUEUE = APPEND.replace("topolog_append", "topolog_append_or_queue")
QUEUED = "SELECT * FROM topolog_append_queued($1)"
_NOWHERE = Place()


class Encoded(msgspec.Struct, frozen=True):
    """A checked and encoded commit, ready for a batch."""

    commit: Commit
    payloads: tuple[bytes, ...]
    size_bytes: int


def encode_commit(commit: Commit) -> Encoded:
    """Check and encode a commit. Raises CommitInvalid."""
    check_commit(commit)
    payloads = tuple(encode_on(draft.stream, draft.event) for draft in commit.drafts)
    for draft, payload in zip(commit.drafts, payloads, strict=True):
        check_payload(commit, draft.stream, payload)
    return Encoded(commit, payloads, sum(map(len, payloads)))


def _expectations(commit: Commit) -> list[int]:
    """Return the expectation of each draft: only the first draft of a stream carries one."""
    seen: set[str] = set()
    expected = []
    for draft in commit.drafts:
        expected.append(ANY_VERSION if draft.stream in seen else draft.expected)
        seen.add(draft.stream)
    return expected


def statement(batch: Sequence[Encoded], notify: bool) -> tuple[str, list[Any]]:
    """Return the query that appends the batch, and its arguments. `notify` wakes the listeners."""
    columns = arguments(batch, notify)
    *commits, follows, last_draft = columns[:11]
    if last_draft != [1] or follows != [0]:
        return APPEND, columns
    return _APPEND_ONE, [*(column[0] for column in (*commits, *columns[11:-1])), notify]


def arguments(batch: Sequence[Encoded], notify: bool = True) -> list[Any]:
    """Return the arguments of APPEND, in order."""
    commits = [encoded.commit for encoded in batch]
    drafts = [draft for commit in commits for draft in commit.drafts]
    types = [type_of(draft.event) for draft in drafts]
    places = [commit.seen or _NOWHERE for commit in commits]
    return [
        [commit.commit_id for commit in commits],
        [commit.role for commit in commits],
        [commit.epoch for commit in commits],
        [commit.time_us for commit in commits],
        [commit.correlation for commit in commits],
        [commit.causation for commit in commits],
        [commit.trace for commit in commits],
        [place.position for place in places],
        [place.chain for place in places],
        _follows(commits),
        list(accumulate(len(commit.drafts) for commit in commits)),
        [draft.stream for draft in drafts],
        [expected for commit in commits for expected in _expectations(commit)],
        types,
        [CATALOG[name].schema for name in types],
        [payload for encoded in batch for payload in encoded.payloads],
        notify,
    ]


def _follows(commits: Sequence[Commit]) -> list[int]:
    """Return for each commit the 1-based index of the commit that it follows (the last one of that
    id before it); 0 for none, -1 if it is not in the batch, because large calls are split."""
    index: dict[str, int] = {}
    indexes = []
    for number, commit in enumerate(commits, 1):
        indexes.append(index.get(commit.follows, -1) if commit.follows else 0)
        index[commit.commit_id] = number
    return indexes


def outcomes(batch: Sequence[Encoded], row: Any) -> list[Outcome]:
    """Return the outcome of each commit, from the row that APPEND returned."""
    starts = accumulate((len(encoded.payloads) for encoded in batch), initial=1)
    return [
        _outcome(encoded.commit, index, start, row)
        for index, (encoded, start) in enumerate(zip(batch, starts, strict=False))
    ]


def _outcome(commit: Commit, index: int, start: int, row: Any) -> Outcome:
    code = row["outcome"][index]
    if code == 0:
        versions = row["versions"][start - 1 : start - 1 + len(commit.drafts)]
        return Appended(
            row["firsts"][index],
            row["lasts"][index],
            {draft.stream: version for draft, version in zip(commit.drafts, versions, strict=True)},
        )
    if code == 1:
        return Duplicate(row["firsts"][index], row["lasts"][index])
    if code == 2 and row["blamed"][index] == 0:
        return Conflict(
            names.LOG, commit.seen.position if commit.seen is not None else 0, row["actual"][index]
        )
    if code == 2:
        draft = commit.drafts[row["blamed"][index] - start]
        return Conflict(draft.stream, draft.expected, row["actual"][index])
    return Fenced(commit.role, commit.epoch, row["actual"][index])
