"""Create the logins of services and readers, with passwords in files, or reuse these files."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from services.upkeep.errors import UpkeepRefused
from shared.eventlog.errors import LoginTooWeak, LogNotMigrated, LogUnavailable
from shared.eventlog.postgres_connection import LOST_CONNECTION, unavailable
from shared.eventlog.postgres_logins import LOGINS, make_login

OWNER = (
    "--database-url postgresql://OWNER:PASSWORD@HOST/DATABASE of the log; "
    "the owner needs the right to create roles"
)


async def make_logins(url: str, folder: Path) -> dict[str, Path]:
    """Create the logins with the passwords in `folder/LOGIN.password`; return the files. To rotate
    a password, write its file and run the command again. Raises UpkeepRefused."""
    files = {login: folder / f"{login}.password" for login in LOGINS}
    try:
        for login, file in files.items():
            await make_login(url, login, _password(file))
    except LOST_CONNECTION as error:
        raise UpkeepRefused(str(unavailable(url, error)).partition("; ")[0], OWNER) from error
    except (LoginTooWeak, LogNotMigrated, LogUnavailable) as error:
        raise UpkeepRefused(str(error).partition("; ")[0], OWNER) from error
    return files


def _password(file: Path) -> str:
    """Return the password in the file; create the file, readable by its owner only, if needed."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if file.exists():
            password = file.read_text().strip()
            if len(password) < 8:
                raise UpkeepRefused(
                    f"the password in {file} has {len(password)} characters",
                    "write at least 8, or remove the file",
                )
            return password
        password = secrets.token_urlsafe(24)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as output:
            output.write(password + "\n")
        return password
    except (OSError, UnicodeDecodeError) as error:
        raise UpkeepRefused(
            f"{file} cannot be used: {error}", "name another folder with --password-dir"
        ) from error
