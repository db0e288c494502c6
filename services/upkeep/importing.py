"""`topolog log import`: an empty database becomes the log of an exported history, on a new timeline. All of it, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from services.upkeep.errors import UpkeepRefused
from shared.eventlog.history_file import Block, Header, HistoryFileError, checked, header_of
from shared.eventlog.migrate import upgrade
from shared.eventlog.postgres_care import NotEmpty, take_in
from shared.events.envelope import Envelope


class Imported(msgspec.Struct, frozen=True):
    """Whose history the database holds now, and up to where."""

    log_id: str
    last: int


async def import_history(url: str, file: Path, progress: Callable[[int], None] = lambda _: None) -> Imported:
    """Migrate the database and fill it, or leave it empty. Raises UpkeepRefused."""
    try:
        header = header_of(file)
        if header.first != 1:
            raise UpkeepRefused(
                f"{file} begins at position {header.first}", "import a whole history: topolog log export --out FILE"
            )
        await upgrade(url)
        last = await take_in(url, header, _blocks(file, progress))
    except HistoryFileError as error:
        raise UpkeepRefused(str(error), "import another copy of it") from error
    except NotEmpty as error:
        raise UpkeepRefused(str(error), "name an empty database with --database-url") from error
    return Imported(header.log_id, last)


def _blocks(file: Path, progress: Callable[[int], None]) -> Iterator[Sequence[Envelope]]:
    for item in checked(file):
        if not isinstance(item, Header):
            assert isinstance(item, Block)
            yield item.envelopes
            progress(item.envelopes[-1].position)
