"""`topolog log import`: an empty database becomes the log of an exported history, on a new
timeline, completely or not at all.

Without a new timeline, readers of the original log would follow the copy as if it were the same.
Redactions after the end of the history are only in the file's header, so the new timeline begins
with events that record them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from services.upkeep.errors import UpkeepRefused
from services.upkeep.history_checks import ANOTHER_COPY, HistoryChecks, Problem
from shared.eventlog.errors import LogNotMigrated, LogUnavailable
from shared.eventlog.history_file import Block, HistoryFileError, checked, header_of
from shared.eventlog.migrate import upgrade_with_message
from shared.eventlog.opening import OPERATOR, opening
from shared.eventlog.port import Commit, Draft, LogIdentity
from shared.eventlog.postgres_care import NotEmpty, take_in
from shared.eventlog.redactions import redactions_in
from shared.events import streams
from shared.events.envelope import Envelope
from shared.events.log_events import FactsRedacted
from shared.runtime.crash import crash_point

ANOTHER_DATABASE = "createdb NAME, and --database-url postgresql://OWNER@HOST/NAME"
ROWS_A_FACT = 500
BY, WHY = "topolog log import", "redacted after the end of the imported history"


class Imported(msgspec.Struct, frozen=True):
    log_id: str
    last: int
    timeline: int


async def import_history(
    url: str, file: Path, now_us: int, progress: Callable[[int], None] = lambda _: None
) -> Imported:
    """Migrate the database, fill it and begin a timeline, or leave it empty. Raises UpkeepRefused,
    LogBusy, LoginTooWeak."""
    unrecorded: dict[int, str] = {}

    def first_commits(identity: LogIdentity) -> list[Commit]:
        crash_point("import.filled")
        return [opening(identity, now_us), *_redactions(identity, unrecorded, now_us)]

    try:
        header = header_of(file)
        if header.first != 1:
            raise UpkeepRefused(
                f"{file} begins at position {header.first}",
                "import a whole history: topolog log export --out FILE",
            )
        unrecorded |= header.redacted
        await upgrade_with_message(url)
        identity = await take_in(url, header, _blocks(file, unrecorded, progress), first_commits)
    except HistoryFileError as error:
        raise UpkeepRefused(str(error), ANOTHER_COPY) from error
    except NotEmpty as error:
        if error.log_id == header.log_id:
            raise UpkeepRefused(
                f"{error}, of the same history", "topolog log status; there is nothing to import"
            ) from error
        raise UpkeepRefused(
            str(error), f"{ANOTHER_DATABASE}; or --data-dir with a new folder"
        ) from error
    except (LogUnavailable, LogNotMigrated) as error:
        raise UpkeepRefused(str(error).partition("; ")[0], ANOTHER_DATABASE) from error
    return Imported(identity.log_id, header.last, identity.timeline)


def _blocks(
    file: Path, unrecorded: dict[int, str], progress: Callable[[int], None]
) -> Iterator[Sequence[Envelope]]:
    """Yield the file's blocks; a redaction that their events record is removed from `unrecorded`.
    Raises UpkeepRefused."""
    checks = HistoryChecks()
    for item in checked(file):
        if isinstance(item, Block):
            _require_none(checks.check(item.envelopes), file)
            yield item.envelopes
            for position in redactions_in(item.envelopes):
                unrecorded.pop(position, None)
            progress(item.envelopes[-1].position)
    _require_none(checks.finish(), file)


def _require_none(problem: Problem | None, file: Path) -> None:
    if problem is not None:
        raise UpkeepRefused(
            f"{file} cannot become a log: at position {problem.position}, {problem.what}",
            problem.remedy,
        )


def _redactions(identity: LogIdentity, unrecorded: dict[int, str], now_us: int) -> Iterator[Commit]:
    rows = iter(sorted(unrecorded.items()))
    while part := dict(islice(rows, ROWS_A_FACT)):
        commit_id = f"redact/{identity.log_id}/{identity.timeline}/{min(part)}"
        yield Commit(
            commit_id, OPERATOR, 0, now_us, (Draft(streams.LOG, FactsRedacted(part, "", BY, WHY)),)
        )
