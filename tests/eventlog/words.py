"""Small words for tests of the log: commits by number, and what a log holds."""

from __future__ import annotations

from shared.eventlog.port import ANY_VERSION, Appended, Commit, Draft, EventLog, Place
from shared.events.cluster_events import PodRunning


def draft(stream: str, expected: int = ANY_VERSION, mark: str = "n") -> Draft:
    """Return a small event for `stream`."""
    return Draft(stream, PodRunning("u", mark), expected)


def commit(
    commit_id: str, *drafts: Draft, role: str = "r", epoch: int = 0, follows: str = ""
) -> Commit:
    """Return a commit of these drafts (default: one on stream `s`)."""
    return Commit(commit_id, role, epoch, 1, drafts or (draft("s"),), follows=follows)


async def given(log: EventLog, *streams: str) -> None:
    """Append one event to each of `streams`, in order."""
    outcomes = await log.append(
        [commit(f"given {i} {stream}", draft(stream)) for i, stream in enumerate(streams)]
    )
    assert all(isinstance(outcome, Appended) for outcome in outcomes)


async def places(log: EventLog) -> list[tuple[int, str, int]]:
    """Return (position, stream, version) of every event."""
    result: list[tuple[int, str, int]] = []
    while page := await log.read(len(result), 10_000):
        result += [(event.position, event.stream, event.version) for event in page]
    return result


def seen(commit_id: str, where: Place) -> Commit:
    """Return a commit that was decided at a place."""
    return Commit(commit_id, "r", 0, 1, (draft("s"),), seen=where)


async def place(log: EventLog, position: int) -> Place:
    """Return the place of a position in the log's history."""
    return Place(position, (await log.read(position - 1, 1))[0].chain) if position else Place()
