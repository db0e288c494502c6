"""The loss of an appended event is noticed even if the log has grown beyond its position since."""

from __future__ import annotations

import pytest

from shared.eventlog.port import Appended, Commit, Conflict
from shared.events.envelope import Envelope
from shared.runtime.acknowledged import Acknowledged
from shared.runtime.consumer import Refold


def commit(name: str) -> Commit:
    return Commit(name, "scheduler", 1, 0, ())


def page(*commits: str, later: int = 0) -> list[tuple[Envelope, None]]:
    """Return envelopes from `after` + 1 on, one for each commit."""
    return [
        (
            Envelope(
                later + position, "pod/a", position, "PodEnded", 1, b"", 0, "scheduler", 1, name
            ),
            None,
        )
        for position, name in enumerate(commits, 1)
    ]


def acknowledged(folded_to: int = 0) -> Acknowledged:
    acknowledged_log = Acknowledged()
    acknowledged_log.keep(commit("own"), Appended(2, 3, {}), folded_to)
    return acknowledged_log


def test_another_commit_in_the_place_of_ones_own_is_another_history() -> None:
    with pytest.raises(Refold, match="other_history"):
        acknowledged().check(page("a", "b", "c"))  # type: ignore[arg-type]


def test_ones_own_commit_in_its_place_is_as_promised_also_page_by_page() -> None:
    made = acknowledged()
    made.check(page("a"))  # type: ignore[arg-type]
    made.check(page("own", "own", "d", later=1))  # type: ignore[arg-type]
    made.check(page("x", "y", "z"))  # type: ignore[arg-type]


def test_nothing_is_promised_of_what_was_refused_passed_or_given_up() -> None:
    for made in (Acknowledged(), acknowledged(folded_to=3)):
        made.keep(commit("no"), Conflict("pod/a", 0, 1), 0)
        made.check(page("a", "b", "c"))  # type: ignore[arg-type]
    given_up = acknowledged()
    given_up.clear()
    given_up.check(page("a", "b", "c"))  # type: ignore[arg-type]


def test_a_commit_right_after_the_fold_is_remembered() -> None:
    """The log was set back and grew by another commit at the very next position."""
    acknowledged_log = Acknowledged()
    acknowledged_log.keep(commit("own"), Appended(3, 3, {}), folded_to=2)
    with pytest.raises(Refold):
        acknowledged_log.check(page("another", later=2))  # type: ignore[arg-type]
