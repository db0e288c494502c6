"""Convert a batch of commits to the parallel arrays of `topolog_append`, and its arrays back to
outcomes.

Pure: it knows the function's signature (migrations/versions/0007_following.py), not connections.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from shared.eventlog.limits import check_commit, check_payload
from shared.eventlog.port import (
    ANY_VERSION,
    Appended,
    Commit,
    Conflict,
    Draft,
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
    $1::text[], $2::int[], $3::text[], $4::int[], $5::bigint[], $6::bigint[], $7::text[],
    $8::bigint[], $9::text[], $10::int[], $11::int[], $12::text[], $13::int[], $14::bigint[],
    $15::text[], $16::int[], $17::bytea[], $18::int[], $19::bigint[], $20::bytea[], $21::int[])
"""


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


def _roots(names: Sequence[str]) -> list[int]:
    """Return the 1-based index of the first occurrence of each name."""
    first: dict[str, int] = {}
    return [first.setdefault(name, index) for index, name in enumerate(names, 1)]


def _expectations(commit: Commit) -> list[int]:
    """Return the expectation of each draft: only the first draft of a stream carries one."""
    seen: set[str] = set()
    expected = []
    for draft in commit.drafts:
        expected.append(ANY_VERSION if draft.stream in seen else draft.expected)
        seen.add(draft.stream)
    return expected


def arguments(batch: Sequence[Encoded]) -> list[list[Any]]:
    """Return the arguments of APPEND, in order."""
    commits = [encoded.commit for encoded in batch]
    drafts: list[Draft] = [draft for commit in commits for draft in commit.drafts]
    owners = [index for index, commit in enumerate(commits, 1) for _ in commit.drafts]
    ids = [commit.commit_id for commit in commits]
    roles = [commit.role for commit in commits]
    streams = [draft.stream for draft in drafts]
    types = [type_of(draft.event) for draft in drafts]
    return [
        ids,
        _roots(ids),
        roles,
        _roots(roles),
        [commit.epoch for commit in commits],
        [commit.time_us for commit in commits],
        [commit.correlation for commit in commits],
        [commit.causation for commit in commits],
        [commit.trace for commit in commits],
        _first_drafts(commits),
        owners,
        streams,
        _roots(streams),
        [expected for commit in commits for expected in _expectations(commit)],
        types,
        [CATALOG[name].schema for name in types],
        [payload for encoded in batch for payload in encoded.payloads],
        *_places(commits),
        _follows(commits),
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


def _places(commits: Sequence[Commit]) -> tuple[list[int], list[int], list[bytes]]:
    """Return for each commit the 1-based index of the place that it was decided on (0: none), and
    the distinct places.
    """
    index: dict[Place, int] = {}
    place_of = [
        index.setdefault(commit.seen, len(index) + 1) if commit.seen is not None else 0
        for commit in commits
    ]
    return place_of, [place.position for place in index], [place.chain for place in index]


def _first_drafts(commits: Sequence[Commit]) -> list[int]:
    starts, start = [], 1
    for commit in commits:
        starts.append(start)
        start += len(commit.drafts)
    return starts


def outcomes(batch: Sequence[Encoded], row: Any) -> list[Outcome]:
    """Return the outcome of each commit, from the row that APPEND returned."""
    starts = _first_drafts([encoded.commit for encoded in batch])
    return [
        _outcome(encoded.commit, index, start, row)
        for index, (encoded, start) in enumerate(zip(batch, starts, strict=True))
    ]


def _outcome(commit: Commit, index: int, start: int, row: Any) -> Outcome:
    code = row["outcome"][index]
    if code == 0:
        appended = zip(commit.drafts, row["versions"][start - 1 :], strict=False)
        return Appended(
            row["firsts"][index],
            row["lasts"][index],
            {draft.stream: version for draft, version in appended},
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
