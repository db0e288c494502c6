"""`topolog log import`: an empty database becomes the log of an exported history, on a new
timeline. All of it, or nothing.

A full log that still stood on the timeline of the one it was copied from would be followed as if it
were that one. What was redacted after the history's end stands in the file's header alone: the new
timeline begins with saying so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from services.upkeep.arriving import ANOTHER_COPY, Arriving, Problem
from services.upkeep.errors import UpkeepRefused
from shared.eventlog.errors import LogNotMigrated, LogUnavailable
from shared.eventlog.history_file import Block, HistoryFileError, checked, header_of
from shared.eventlog.migrate import upgrade_or_tell
from shared.eventlog.opening import OPERATOR, opening
from shared.eventlog.port import Commit, Draft, LogIdentity
from shared.eventlog.postgres_care import NotEmpty, take_in
from shared.eventlog.redactions import told_by
from shared.events import streams
from shared.events.envelope import Envelope
from shared.events.log_events import FactsRedacted
from shared.runtime.crash import crash_point

ANOTHER_DATABASE = "createdb NAME, and --database-url postgresql://OWNER@HOST/NAME"
ROWS_A_FACT = 500
BY, WHY = "topolog log import", "redacted after the end of the imported history"


class Imported(msgspec.Struct, frozen=True):
    """Whose history the database holds now, up to where, and which timeline goes on from there."""

    log_id: str
    last: int
    timeline: int


async def import_history(
    url: str, file: Path, now_us: int, progress: Callable[[int], None] = lambda _: None
) -> Imported:
    """Migrate the database, fill it and begin a timeline, or leave it empty. Raises UpkeepRefused,
    LogBusy, LoginTooWeak.
    """
    untold: dict[int, str] = {}

    def begun(identity: LogIdentity) -> list[Commit]:
        crash_point("import.filled")
        return [opening(identity, now_us), *_redactions(identity, untold, now_us)]

    try:
        header = header_of(file)
        if header.first != 1:
            raise UpkeepRefused(
                f"{file} begins at position {header.first}",
                "import a whole history: topolog log export --out FILE",
            )
        untold |= header.redacted
        await upgrade_or_tell(url)
        identity = await take_in(url, header, _blocks(file, untold, progress), begun)
    except HistoryFileError as error:
        raise UpkeepRefused(str(error), ANOTHER_COPY) from error
    except NotEmpty as error:
        if error.log_id == header.log_id:
            raise UpkeepRefused(
                f"{error}, of this very history", "topolog log status; there is nothing to import"
            ) from error
        raise UpkeepRefused(
            str(error), f"{ANOTHER_DATABASE}; or --data-dir with a new folder"
        ) from error
    except (LogUnavailable, LogNotMigrated) as error:
        raise UpkeepRefused(str(error).partition("; ")[0], ANOTHER_DATABASE) from error
    return Imported(identity.log_id, header.last, identity.timeline)


def _blocks(
    file: Path, untold: dict[int, str], progress: Callable[[int], None]
) -> Iterator[Sequence[Envelope]]:
    """The file's blocks; what a fact among them says of redactions goes from `untold`. Raises
    UpkeepRefused.
    """
    arriving = Arriving()
    for item in checked(file):
        if isinstance(item, Block):
            _require_none(arriving.see(item.envelopes), file)
            yield item.envelopes
            for position in told_by(item.envelopes):
                untold.pop(position, None)
            progress(item.envelopes[-1].position)
    _require_none(arriving.finish(), file)


def _require_none(problem: Problem | None, file: Path) -> None:
    if problem is not None:
        raise UpkeepRefused(
            f"{file} cannot become a log: at position {problem.position}, {problem.what}",
            problem.remedy,
        )


def _redactions(identity: LogIdentity, untold: dict[int, str], now_us: int) -> Iterator[Commit]:
    rows = iter(sorted(untold.items()))
    while part := dict(islice(rows, ROWS_A_FACT)):
        commit_id = f"redact/{identity.log_id}/{identity.timeline}/{min(part)}"
        yield Commit(
            commit_id, OPERATOR, 0, now_us, (Draft(streams.LOG, FactsRedacted(part, "", BY, WHY)),)
        )
