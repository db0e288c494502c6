"""The queries that read events from Postgres one page at a time, bounded in number and in payload
bytes.

Postgres sums the lengths only, so payloads beyond the page are not even read. A page is one row of
arrays, one array per column, which a driver decodes in half the time of a row per event. For a few
events plain rows are cheaper, because Postgres neither sums nor collects them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.events.envelope import Envelope

COLUMNS = ", ".join(Envelope.__struct_fields__)
_AHEAD = (
    "sum(octet_length(payload)) OVER (ORDER BY {by} ROWS UNBOUNDED PRECEDING)"
    " - octet_length(payload) AS ahead"
)


def _bounded(rows: str, by: str, limit_bytes: str) -> str:
    """Return the query for the first of these rows, up to the one reaching the limit."""
    counted = f"SELECT {COLUMNS}, {_AHEAD.format(by=by)} FROM {rows}"
    arrays = ", ".join(
        f"array_agg({column} ORDER BY {by})" for column in Envelope.__struct_fields__
    )
    return f"SELECT {arrays} FROM ({counted}) counted WHERE ahead < {limit_bytes}"


def page_in(row: Sequence[Any]) -> list[Envelope]:
    """Return the events of the row that these queries return. Postgres returns NULL instead of
    empty arrays."""
    return list(map(Envelope, *row)) if row[0] is not None else []


def short_page_in(rows: Sequence[Sequence[Any]], after: int, until: int) -> list[Envelope] | None:
    """Return the events from the rows of READ_SHORT, from position `after` to the first hole; None
    if they do not reach position `until`."""
    page = [Envelope(*row) for position, row in enumerate(rows, after + 1) if row[0] == position]
    return page if page and page[-1].position >= until else None


# After position $1, at most $2 events, up to the one reaching $3 bytes. The upper bound is
# sound because positions have no holes, and it lets Postgres read only one partition.
READ = _bounded("fact WHERE position > $1 AND position <= $1 + $2", "position", "$3")

# A short page: the same as rows, without events from $3 bytes on. If the rows are those up to a
# position that is known to exist, none is missing before it.
SHORT_PAGE = 64
READ_SHORT = (
    f"SELECT {COLUMNS} FROM fact WHERE position > $1 AND position <= $1 + $2"
    " AND octet_length(payload) < $3 ORDER BY position"
)

# Of stream $1 after version $2, at most $3 events, up to the one reaching $4 bytes.
READ_STREAM = _bounded(
    f"(SELECT {COLUMNS} FROM fact WHERE stream = $1 AND version > $2"
    " ORDER BY version LIMIT $3) listed",
    "version",
    "$4",
)

# At positions $1, up to the one reaching $2 bytes.
READ_THESE = _bounded("fact WHERE position = ANY($1::bigint[])", "position", "$2")
