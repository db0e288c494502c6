"""Check the commits that one scheduler decided together, at each append (ARCHITECTURE.md, S12).
Each is decided on top of those before it: it may be appended only if they are, and it must not lose
its place to them. Must not know how decisions are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from weakref import WeakKeyDictionary

from shared.eventlog.port import Appended, Commit, Conflict, Outcome
from shared.events import streams
from tests.simulation.fibers import Ask, Fiber
from tests.simulation.log import SimLog

ROLE = "scheduler/"


class Batches:
    """`_together` is the turn of a loop -> its commits that were appended. Role, epoch and read
    positions identify no turn: a log that was set back gives the same epoch again.
    """

    def __init__(self) -> None:
        self._together: WeakKeyDictionary[Fiber, set[str]] = WeakKeyDictionary()

    def misplaced(self, log: SimLog, ask: Ask, outcomes: Sequence[Outcome]) -> Iterator[str]:
        """Return the violations of S12."""
        assert ask.asker is not None
        both: list[tuple[Commit, Outcome]] = list(zip(ask.args[0], outcomes, strict=True))
        standing = {commit.commit_id for commit, outcome in both if isinstance(outcome, Appended)}
        together = self._together.setdefault(ask.asker, set())
        together |= standing
        for commit, outcome in both:
            alone = bool(commit.follows) and commit.follows not in standing
            if alone and isinstance(outcome, Appended):
                yield (
                    f"S12: {commit.commit_id} stands, and {commit.follows}, which it was "
                    "decided with, does not"
                )
            elif (
                not alone
                and isinstance(outcome, Conflict)
                and outcome.stream != streams.LOG
                and commit.role.startswith(ROLE)
            ):
                rivals = _moved_by(log, commit)
                if rivals and together.issuperset(rivals):
                    yield (
                        f"S12: {commit.commit_id} lost its place to {rivals[-1]} of its own "
                        "scheduler"
                    )


def _moved_by(log: SimLog, commit: Commit) -> list[str]:
    """Return the commits on its streams after the position on which it was decided."""
    on, seen = (
        {draft.stream for draft in commit.drafts},
        commit.seen.position if commit.seen is not None else 0,
    )
    return [envelope.commit_id for envelope in log.read_now(seen) if envelope.stream in on]
