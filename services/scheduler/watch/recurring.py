"""Facts that are told again as they were: what ended by false lists, or in a cluster that was set
back, and is there once more.

A commit id names the object and its version, so that two observers of one change tell one fact. The
log then takes what recurs for something told before. The teller had folded that, and finds it to be
news all the same. Must not know what facts say.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shared.eventlog.port import Commit, Duplicate, Outcome, Place


def again(commits: Sequence[Commit], outcomes: Sequence[Outcome], seen: Place) -> list[Commit]:
    """The commits as they are to be sent once more, empty where nothing recurs. `seen` is where the
    fold was when these were found to be news."""
    if not any(_recurs(outcome, seen) for outcome in outcomes):
        return []
    return [
        _once_more(each, seen) if _recurs(one, seen) else each
        for each, one in zip(commits, outcomes, strict=True)
    ]


def _recurs(outcome: Outcome, seen: Place) -> bool:
    return isinstance(outcome, Duplicate) and outcome.last <= seen.position


def _once_more(commit: Commit, seen: Place) -> Commit:
    return msgspec.structs.replace(commit, commit_id=f"{commit.commit_id}@{seen.position}")
