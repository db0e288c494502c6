"""The logins of writers and readers of the log, created by the owner as members of the roles of the
migrations.

Passwords are sent to the server as SCRAM verifiers, so that they never appear in its log. Creating
a login again with another password rotates it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import b64encode
from typing import Any

import asyncpg
import msgspec

from shared.eventlog.errors import LoginTooStrong, LoginTooWeak, LogNotMigrated
from shared.eventlog.postgres_connection import PRUNER, READER, WRITER, connect
from shared.telemetry import logs, names

SERVICE, VIEWER, KEEPER = "topolog_service", "topolog_viewer", "topolog_keeper"
# Login -> the role of which it is a member.
LOGINS = {SERVICE: WRITER, VIEWER: READER, KEEPER: PRUNER}

_ITERATIONS = 4096


class Rights(msgspec.Struct, frozen=True):
    """What the user of a connection may do, by itself or by any role that it may assume. `changes`:
    it may update or delete rows of events."""

    user: str
    superuser: bool
    owner: bool
    changes: bool
    appends: bool

    @property
    def rank(self) -> str:
        """Return as what the user may change events, "" if it may not."""
        if self.superuser:
            return "a superuser of the database"
        if self.owner:
            return "the owner of the log"
        return "a writer of every table" if self.changes else ""

    @property
    def problem(self) -> str:
        """Return why a service should not use this login, with the remedy; "" if it may."""
        if not self.rank:
            return ""
        remedy = f"run: topolog database roles --password-dir DIR, and use {SERVICE}"
        return f"the service logs in as {self.user}, {self.rank}, which may change events; {remedy}"


_RIGHTS = """
SELECT session_user::text, bool_or(r.rolsuper), bool_or(r.oid = fact.relowner),
       bool_or(has_table_privilege(r.oid, fact.oid, 'UPDATE, DELETE, TRUNCATE')),
       bool_or(EXISTS (
           SELECT FROM pg_proc p
           WHERE p.proname = 'topolog_append' AND has_function_privilege(r.oid, p.oid, 'EXECUTE')
       ))
FROM pg_class fact, pg_roles r
WHERE fact.oid = 'public.fact'::regclass AND pg_has_role(session_user, r.oid, 'MEMBER')
"""


async def rights_of(connection: Any) -> Rights:
    return Rights(*await connection.fetchrow(_RIGHTS))


async def require_limited_login(connection: Any, production: bool) -> None:
    """Warn about a login that may change events; in production raise LoginTooStrong. Raises
    LoginTooWeak for a reader's login.
    """
    rights = await rights_of(connection)
    if not rights.appends:
        raise LoginTooWeak(
            f"the service logs in as {rights.user}, which may not append; give it {SERVICE} "
            "(topolog database roles --password-dir DIR)"
        )
    if rights.problem and production:
        raise LoginTooStrong(f"{rights.problem}; or unset TOPOLOG_PRODUCTION")
    if rights.problem:
        logs.get("log").warning(names.LOGIN_TOO_STRONG, problem=rights.problem)


# Settings that must be on so that an acknowledged commit survives a crash of the server or, for the
# last two, of its machine.
_DURABILITY = ("synchronous_commit", "fsync", "full_page_writes")


async def not_durable(connection: Any) -> tuple[str, ...]:
    """Return the settings, as this login's sessions see them, by which a crash may lose
    acknowledged events."""
    rows = await connection.fetch(
        "SELECT name FROM pg_settings WHERE name = ANY($1::text[]) AND setting = 'off'",
        list(_DURABILITY),
    )
    return tuple(sorted(row["name"] for row in rows))


async def warn_if_not_durable(connection: Any) -> None:
    """Log a warning if the server acknowledges commits that a crash may lose."""
    if settings := await not_durable(connection):
        logs.get("log").warning(names.LOG_NOT_DURABLE, off=list(settings))


async def make_login(url: str, login: str, password: str) -> bool:
    """Create `login` or set its password; return True if it is new. `url` is the owner's, which
    needs the right to create roles. Logins belong to the whole server, so a database without a log
    is refused. Raises LogNotMigrated, LoginTooWeak, or what asyncpg raises."""
    connection = await connect(url)
    try:
        role = LOGINS[login]
        if not await connection.fetchval("SELECT to_regclass('public.stream_head') IS NOT NULL"):
            raise LogNotMigrated(
                "the database holds no log; name the log's database, or migrate it first"
            )
        if not await connection.fetchval(
            "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1)", role
        ):
            raise LogNotMigrated(
                f"the database has no role {role}; migrate it as a user that may create roles"
            )
        exists = await connection.fetchval(
            "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1)", login
        )
        verb = "ALTER" if exists else "CREATE"
        template = f"SELECT format('{verb} ROLE %I LOGIN PASSWORD %L', $1::text, $2::text)"
        statement = await connection.fetchval(template, login, scram(password))
        async with connection.transaction():
            await connection.execute(statement)
            await connection.execute(f"GRANT {role} TO {login}")
        return not exists
    except asyncpg.InsufficientPrivilegeError as error:
        raise LoginTooWeak(
            f"this login may not create roles ({error}); give the owner's login"
        ) from error
    finally:
        await connection.close()


def scram(password: str, salt: bytes | None = None) -> str:
    """Return the verifier that Postgres stores for a password (SCRAM-SHA-256, RFC 5803)."""
    salt = os.urandom(16) if salt is None else salt
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS)
    client = hmac.digest(salted, b"Client Key", "sha256")
    stored, server = hashlib.sha256(client).digest(), hmac.digest(salted, b"Server Key", "sha256")
    return f"SCRAM-SHA-256${_ITERATIONS}:{_text(salt)}${_text(stored)}:{_text(server)}"


def _text(data: bytes) -> str:
    return b64encode(data).decode()
