"""Which schema revision this release needs, and which one a database has. Must not migrate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shared.eventlog.errors import LogNotMigrated

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"


def newest_revision() -> str:
    """Return the newest revision: the number at the start of its file name."""
    return max(path.name.split("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*_*.py"))


def is_ours(revision: str) -> bool:
    """Return whether a revision is Topolog's, not that of another program that uses Alembic."""
    return len(revision) == 4 and revision.isdecimal()


def works(revision: str, works_from: str, newest: str) -> bool:
    """Return whether code with newest revision `newest` works on a schema of this revision: on its
    own, and on a newer schema that declares support (`migrations/versions/0006_marks.py`)."""
    return revision == newest or (revision > newest and "" < works_from <= newest)


def foreign_database(revision: str) -> LogNotMigrated:
    return LogNotMigrated(
        f"the database belongs to another program: its schema has revision {revision[:40]!r}; "
        "name the log's database"
    )


async def require_current(connection: Any) -> None:
    """Raise LogNotMigrated unless this code works on the revision that the asyncpg `connection`
    sees.
    """
    revision, works_from = await revisions(connection)
    if revision and not is_ours(revision):
        raise foreign_database(revision)
    if not works(revision, works_from, newest_revision()):
        remedy = (
            "run the newer release"
            if revision > newest_revision()
            else "run: topolog up, or alembic upgrade head"
        )
        raise LogNotMigrated(
            f"the log has revision {revision or 'none'}, this release needs {newest_revision()}; "
            f"{remedy}"
        )


async def revisions(connection: Any) -> tuple[str, str]:
    """Return the schema's revision and the oldest revision that works on it, "" for either if
    it is unknown.
    """
    # In revision 0001 the roles of the services may not read these tables.
    revision = await _read(connection, "alembic_version", "version_num")
    return revision, await _read(connection, "schema_works_from", "revision")


async def _read(connection: Any, table: str, column: str) -> str:
    """Return the only value of a table, "" if it does not exist or this login may not read it."""
    readable = await connection.fetchval(
        "SELECT has_table_privilege(to_regclass($1), 'SELECT')", f"public.{table}"
    )
    return str(await connection.fetchval(f"SELECT {column} FROM {table}") or "") if readable else ""
