"""The limits of the log, and the check of a commit against them."""

from __future__ import annotations

from shared.eventlog.errors import CommitInvalid
from shared.eventlog.port import ANY_VERSION, Commit, Draft

# Commits in one append statement: above this the latency of a batch grows faster than its rate.
MAX_BATCH_COMMITS = 500
MAX_BATCH_BYTES = 8 << 20
MAX_FACT_BYTES = 4 << 20
MAX_COMMIT_FACTS = 2000
MAX_QUEUED_JOBS = 1000
MAX_PAGE = 10_000
# A page ends with the event that reaches this many payload bytes. More than twice the largest
# event, so that a page of several events has more than one.
MAX_PAGE_BYTES = 16 << 20
MAX_SNAPSHOT_BYTES = 512 << 20
MAX_NAME = 512
# Newest marks kept for each release and projection; later releases are compared with them.
KEPT_MARKS = 5


def check_commit(commit: Commit) -> None:
    """Raise CommitInvalid for a commit that no log accepts, whatever its state."""
    problem = _problem(commit) or next(
        (text for text in map(_draft_problem, commit.drafts) if text), ""
    )
    if problem:
        raise CommitInvalid(
            f"commit {commit.commit_id[:MAX_NAME]!r} of role {commit.role!r}: {problem}"
        )


def _problem(commit: Commit) -> str:
    if not 0 < len(commit.commit_id) <= MAX_NAME or "\x00" in commit.commit_id:
        return f"commit_id must have 1 to {MAX_NAME} characters, none of them NUL"
    if not commit.role:
        return "role is empty; name the role that writes"
    if commit.epoch < 0:
        return f"epoch {commit.epoch} is negative; use 0 for a role without a lease"
    if not 0 < len(commit.drafts) <= MAX_COMMIT_FACTS:
        return f"{len(commit.drafts)} events; a commit has 1 to {MAX_COMMIT_FACTS}, split it"
    return ""


def _draft_problem(draft: Draft) -> str:
    if not 0 < len(draft.stream) <= MAX_NAME or "\x00" in draft.stream:
        return (
            f"stream {draft.stream[:80]!r} must have 1 to {MAX_NAME} characters, none of them NUL"
        )
    if draft.expected < ANY_VERSION:
        return f"expected {draft.expected} on {draft.stream}; use a version or ANY_VERSION"
    return ""


def check_payload(commit: Commit, stream: str, payload: bytes) -> None:
    """Raise CommitInvalid for an event larger than the limit."""
    if len(payload) > MAX_FACT_BYTES:
        raise CommitInvalid(
            f"commit {commit.commit_id!r}: the event on {stream} has {len(payload)} bytes; "
            f"the limit is {MAX_FACT_BYTES}, split it"
        )
