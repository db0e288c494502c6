"""The logins of services and readers, with passwords in files: made where there are none, taken
again where there are.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from services.upkeep.errors import UpkeepRefused
from shared.eventlog.errors import LoginTooWeak, LogNotMigrated, LogUnavailable
from shared.eventlog.postgres_connection import LOST_CONNECTION, unavailable
from shared.eventlog.postgres_logins import LOGINS, make_login

OWNER = "--database-url postgresql://OWNER:PASSWORD@HOST/DATABASE of the log, whose owner may create roles"


async def make_logins(url: str, folder: Path) -> dict[str, Path]:
    """Each login's password stands in `folder/LOGIN.password`; returns the files. Another password
    in a file, and the command again, rotates it. Raises UpkeepRefused."""
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
    """The password in the file, which is made, for its owner's eyes, where it is not there."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if file.exists():
            found = file.read_text().strip()
            if len(found) < 8:
                raise UpkeepRefused(
                    f"the password in {file} has {len(found)} characters",
                    "write at least 8, or remove the file",
                )
            return found
        made = secrets.token_urlsafe(24)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(made + "\n")
        return made
    except (OSError, UnicodeDecodeError) as error:
        raise UpkeepRefused(
            f"{file} cannot be used: {error}", "name another folder with --password-dir"
        ) from error
