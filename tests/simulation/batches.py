"""What becomes of commits that one scheduler decided together, judged at each append (ARCHITECTURE.md, S12).

Each is decided with those before it in mind: it may stand only where they do, and it must not lose its place to them. Must not
know what is decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shared.eventlog.port import Appended, Commit, Conflict, Outcome
from shared.events import streams
from shared.events.envelope import Envelope
from tests.simulation.log import SimLog

ROLE = "scheduler/"


def misplaced(log: SimLog, commits: Sequence[Commit], outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What breaks S12."""
    standing = {commit.commit_id for commit, outcome in zip(commits, outcomes, strict=True) if isinstance(outcome, Appended)}
    for commit, outcome in zip(commits, outcomes, strict=True):
        alone = bool(commit.follows) and commit.follows not in standing
        if alone and isinstance(outcome, Appended):
            yield f"S12: {commit.commit_id} stands, and {commit.follows}, which it was decided with, does not"
        elif not alone and isinstance(outcome, Conflict) and outcome.stream != streams.LOG and commit.role.startswith(ROLE):
            rivals = _moved_by(log, commit)
            if rivals and all((each.role, each.epoch) == (commit.role, commit.epoch) for each in rivals):
                yield f"S12: {commit.commit_id} lost its place to {rivals[-1].commit_id} of its own scheduler"


def _moved_by(log: SimLog, commit: Commit) -> list[Envelope]:
    """Facts on the commit's streams that came after what it was decided on."""
    on, seen = {draft.stream for draft in commit.drafts}, commit.seen.position if commit.seen is not None else 0
    return [envelope for envelope in log.read_now(seen) if envelope.stream in on]
