"""The questions by which facts are read from Postgres a page at a time: bounded in number, and in
bytes of payloads.

The bytes are added up where the facts lie, by their lengths alone: what is not sent is not even
looked up. A page comes as one row of as many arrays as a fact has columns, which a driver reads in
half the time of a row for each fact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shared.events.envelope import Envelope

COLUMNS = ", ".join(Envelope.__struct_fields__)
_AHEAD = "sum(octet_length(payload)) OVER (ORDER BY {by} ROWS UNBOUNDED PRECEDING) - octet_length(payload) AS ahead"


def _bounded(rows: str, by: str, limit_bytes: str) -> str:
    """The first of these rows, none after the one that reaches so many bytes."""
    counted = f"SELECT {COLUMNS}, {_AHEAD.format(by=by)} FROM {rows}"
    arrays = ", ".join(
        f"array_agg({column} ORDER BY {by})" for column in Envelope.__struct_fields__
    )
    return f"SELECT {arrays} FROM ({counted}) counted WHERE ahead < {limit_bytes}"


def page_in(row: Sequence[Any]) -> list[Envelope]:
    """The facts of the one row that any of these questions is answered by; of none Postgres makes
    no arrays.
    """
    return list(map(Envelope, *row)) if row[0] is not None else []


# The upper bound is sound because positions have no holes, and it lets Postgres look into one
# partition only.
READ = _bounded("fact WHERE position > $1 AND position <= $1 + $2", "position", "$3")
"""After a position ($1), at most $2 of them, none after the one that reaches $3 bytes."""

READ_STREAM = _bounded(
    f"(SELECT {COLUMNS} FROM fact WHERE stream = $1 AND version > $2 ORDER BY version LIMIT $3) listed",
    "version",
    "$4",
)
"""Of a stream ($1) after a version ($2), at most $3 of them, none after the one that reaches $4 bytes."""

READ_THESE = _bounded("fact WHERE position = ANY($1::bigint[])", "position", "$2")
"""At these positions ($1), none after the one that reaches $2 bytes."""
