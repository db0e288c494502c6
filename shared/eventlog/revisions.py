"""Which revision of the schema this release needs, and which one a database has. Must not know how
to migrate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shared.eventlog.errors import LogNotMigrated

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"


def newest_revision() -> str:
    """The id of the newest revision: the number that its file name begins with."""
    return max(path.name.split("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*_*.py"))


def is_ours(found: str) -> bool:
    """Whether a revision is one of Topolog's, of whatever release, and not of another program that
    Alembic migrates too.
    """
    return len(found) == 4 and found.isdecimal()


def works(found: str, works_from: str, newest: str) -> bool:
    """Whether code whose newest revision is `newest` works on a schema of revision `found`: on its
    own, and on a newer one that says that it works from that code on
    (`migrations/versions/0006_marks.py`)."""
    return found == newest or (found > newest and "" < works_from <= newest)


def foreign(found: str) -> LogNotMigrated:
    """What a database is told as that another program keeps."""
    return LogNotMigrated(
        f"the database is another program's: its schema has revision {found[:40]!r}; name the log's own database"
    )


async def require_current(connection: Any) -> None:
    """Raise LogNotMigrated unless the asyncpg `connection` sees the newest revision, or a newer one
    that this code works on.
    """
    found, works_from = await revisions(connection)
    if found and not is_ours(found):
        raise foreign(found)
    if not works(found, works_from, newest_revision()):
        remedy = (
            "run the newer release"
            if found > newest_revision()
            else "run: topolog up, or alembic upgrade head"
        )
        raise LogNotMigrated(
            f"the log has revision {found or 'none'}, this release needs {newest_revision()}; {remedy}"
        )


async def revisions(connection: Any) -> tuple[str, str]:
    """The schema's revision, and the oldest one whose code works on it, as an asyncpg `connection`
    sees them; "" for neither.
    """
    # Of revision 0001 the roles of the services saw nothing.
    found = await _read(connection, "alembic_version", "version_num")
    return found, await _read(connection, "schema_works_from", "revision")


async def _read(connection: Any, table: str, column: str) -> str:
    """The one value of a table; "" where there is none, or where this login may not look."""
    seen = await connection.fetchval(
        "SELECT has_table_privilege(to_regclass($1), 'SELECT')", f"public.{table}"
    )
    return str(await connection.fetchval(f"SELECT {column} FROM {table}") or "") if seen else ""
