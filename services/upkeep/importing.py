"""`topolog log import`: an empty database becomes the log of an exported history, on a new timeline. All of it, or nothing.

A full log that still stood on the timeline of the one it was copied from would be followed as if it were that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from services.upkeep.errors import UpkeepRefused
from services.upkeep.timelines import opening
from shared.eventlog.errors import LogNotMigrated, LogUnavailable
from shared.eventlog.history_file import Block, Header, HistoryFileError, checked, header_of
from shared.eventlog.migrate import upgrade_or_tell
from shared.eventlog.port import Commit, LogIdentity
from shared.eventlog.postgres_care import NotEmpty, take_in
from shared.events.envelope import Envelope
from shared.runtime.crash import crash_point

ANOTHER_DATABASE = "createdb NAME, and --database-url postgresql://OWNER@HOST/NAME"


class Imported(msgspec.Struct, frozen=True):
    """Whose history the database holds now, up to where, and which timeline goes on from there."""

    log_id: str
    last: int
    timeline: int


async def import_history(url: str, file: Path, now_us: int, progress: Callable[[int], None] = lambda _: None) -> Imported:
    """Migrate the database, fill it and begin a timeline, or leave it empty. Raises UpkeepRefused, LogBusy, LoginTooWeak."""

    def begun(identity: LogIdentity) -> Commit:
        crash_point("import.filled")
        return opening(identity, now_us)

    try:
        header = header_of(file)
        if header.first != 1:
            raise UpkeepRefused(
                f"{file} begins at position {header.first}", "import a whole history: topolog log export --out FILE"
            )
        await upgrade_or_tell(url)
        identity = await take_in(url, header, _blocks(file, progress), begun)
    except HistoryFileError as error:
        raise UpkeepRefused(str(error), "import another copy of it") from error
    except NotEmpty as error:
        if error.log_id == header.log_id:
            raise UpkeepRefused(f"{error}, of this very history", "topolog log status; there is nothing to import") from error
        raise UpkeepRefused(str(error), f"{ANOTHER_DATABASE}; or --data-dir with a new folder") from error
    except (LogUnavailable, LogNotMigrated) as error:
        raise UpkeepRefused(str(error).partition("; ")[0], ANOTHER_DATABASE) from error
    return Imported(identity.log_id, header.last, identity.timeline)


def _blocks(file: Path, progress: Callable[[int], None]) -> Iterator[Sequence[Envelope]]:
    for item in checked(file):
        if not isinstance(item, Header):
            assert isinstance(item, Block)
            yield item.envelopes
            progress(item.envelopes[-1].position)
