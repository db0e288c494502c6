"""Postgres as a child: create its database cluster once; declare its start, readiness and stop.

It is reached by its unix socket only: the folder is 0700, so the socket can trust its users. Knows
nothing of the tables.
"""

import hashlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import msgspec

from services.embedded.binaries import PostgresBinaries, find_postgres
from services.embedded.child import ChildSpec, Identity, PostmasterReady, RestartPolicy
from services.embedded.data_dir import DataDir
from services.embedded.errors import DataFolderError, ServerBinaryError
from services.embedded.identity import choose_identity, give_to
from services.embedded.postmaster import clear_leftovers
from services.embedded.spawn import run_tool
from shared.telemetry.reasons import plain

PORT = 5432
DATABASE = "topolog"
OWNER = "postgres"
CHILD_NAME = "postgres"
_LONGEST_SOCKET_NAME = ".s.PGSQL.65535"
_SOCKET_PATH_LIMIT_BYTES = 107
_STOP_GRACE_S = 20.0
_HBA = "local all all trust\nhost all all all scram-sha-256\n"
_RESTART = RestartPolicy(first_delay_s=0.1, max_delay_s=0.5, start_attempts=25)


class PostgresSettings(msgspec.Struct, frozen=True):
    """`shared_buffers_mb` is in MiB. `durable=False` turns fsync and synchronous commit off, for
    tests only.

    `listen_addresses` opens TCP with `password` (scram-sha-256). If it is empty there is only the
    socket, whose name contains the `port`.
    """

    shared_buffers_mb: int = 256
    max_connections: int = 100
    durable: bool = True
    listen_addresses: str = ""
    password: str = ""
    port: int = PORT

    def options(self) -> dict[str, str]:
        """Return server options, as for `-c name=value`."""
        durable = "on" if self.durable else "off"
        return {
            "fsync": durable,
            "synchronous_commit": durable,
            "full_page_writes": durable,
            "shared_buffers": f"{self.shared_buffers_mb}MB",
            "max_connections": str(self.max_connections),
            "wal_level": "minimal",
            "max_wal_senders": "0",
            "jit": "off",
            "listen_addresses": self.listen_addresses,
            "timezone": "UTC",
            "log_timezone": "UTC",
        }


DEFAULT_SETTINGS = PostgresSettings()


class EmbeddedPostgres:
    """The database of one data folder. `prepare` creates it (slow, once); `spec` declares the
    server process.
    """

    def __init__(self, data_dir: DataDir, settings: PostgresSettings = DEFAULT_SETTINGS) -> None:
        self._data_dir = data_dir
        self._settings = settings
        self._cluster = data_dir.path / "postgres"
        self._binaries: PostgresBinaries | None = None
        self._identity: Identity | None = None
        self.socket_dir = socket_dir_for(data_dir.path)

    def url(self, database: str = DATABASE, user: str = OWNER) -> str:
        """Return `postgresql+asyncpg://<user>@/<database>?host=<socket folder>&port=5432`.

        SQLAlchemy accepts it as it is, asyncpg without `+asyncpg`. The port only names the socket
        file.
        """
        where = f"host={quote(str(self.socket_dir))}&port={self._settings.port}"
        return f"postgresql+asyncpg://{user}@/{quote(database, safe='')}?{where}"

    def prepare(self) -> None:
        """Find the binaries, choose the identity, check the version, create the cluster if missing.
        Blocks for seconds.

        Raises ServerBinaryError, DataFolderError.
        """
        self._binaries = find_postgres()
        self._data_dir.claim_postgres(self._binaries.major)
        self._identity = choose_identity(self._binaries, self._data_dir.path, self._cluster)
        _make_socket_dir(self.socket_dir)
        (self.socket_dir / "pg_hba.conf").write_text(_HBA, encoding="ascii")
        give_to(self._identity, self.socket_dir)
        if (self._cluster / "PG_VERSION").exists():
            give_to(self._identity, self._cluster)
            _close(self._cluster)
        else:
            self._make_cluster(self._binaries, self._identity)

    def spec(self) -> ChildSpec:
        """Return the server as a child. Call it after `prepare`."""
        if self._binaries is None or self._identity is None:
            raise RuntimeError("prepare comes first")
        options = self._settings.options() | {
            "hba_file": str(self.socket_dir / "pg_hba.conf"),
            "port": str(self._settings.port),
            "unix_socket_directories": str(self.socket_dir),
            "unix_socket_permissions": "0700",
        }
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return ChildSpec(
            name=CHILD_NAME,
            argv=(self._binaries.tool("postgres"), "-D", str(self._cluster), *flags),
            ready=PostmasterReady(self._cluster / "postmaster.pid"),
            log_path=self._data_dir.logs / "postgres.log",
            stop_signal=signal.SIGINT,
            parent_death_signal=signal.SIGINT,
            stop_grace_s=_STOP_GRACE_S,
            identity=self._identity,
            restart=_RESTART,
            prepare=self._before_start,
            cwd=Path("/"),
        )

    def run_sql(self, sql: str, database: str = "postgres") -> str:
        """Run SQL in the running server with psql and return the output. Raises DataFolderError
        with Postgres' message.
        """
        if self._binaries is None or self._identity is None:
            raise RuntimeError("prepare comes first")
        where = (
            "-h",
            str(self.socket_dir),
            "-p",
            str(self._settings.port),
            "-U",
            "postgres",
            "-d",
            database,
        )
        argv = (
            self._binaries.tool("psql"),
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            *where,
        )
        try:
            return run_tool(argv, self._identity, text=sql)
        except (OSError, subprocess.SubprocessError) as error:
            message = (getattr(error, "output", None) or str(error)).strip()
            raise DataFolderError(
                f"Postgres in {self._data_dir.path} refused a statement: {message}",
                f"Read {self._data_dir.logs / 'postgres.log'}",
            ) from error

    def create_database(self, name: str = DATABASE) -> None:
        """Create a database unless it exists."""
        if (
            self.run_sql(f"select 1 from pg_database where datname = {_literal(name)};").strip()
            != "1"
        ):
            self.run_sql(f"create database {_quoted(name)};")

    def apply_password(self) -> None:
        """Set the password of the settings for the superuser, for TCP."""
        self.run_sql(
            f"set log_statement = 'none'; "
            f"alter role postgres password {_literal(self._settings.password)};"
        )

    def clean_up(self) -> None:
        """Remove a socket folder outside the data folder. Call it after the stop."""
        if self._data_dir.path not in self.socket_dir.parents:
            _remove_tree(self.socket_dir)

    async def _before_start(self) -> Mapping[str, str]:
        return await clear_leftovers(self._cluster)

    def _make_cluster(self, binaries: PostgresBinaries, identity: Identity) -> None:
        """Create the cluster under another name and rename it, so that an interruption leaves no
        incomplete cluster.
        """
        draft = self._data_dir.path / "postgres.new"
        _remove_tree(draft)
        draft.mkdir(mode=0o700)
        give_to(identity, draft)
        how = (
            "-U",
            "postgres",
            "--encoding=UTF8",
            "--no-locale",
            "--auth-local=trust",
            "--auth-host=reject",
        )
        try:
            run_tool((binaries.tool("initdb"), "-D", str(draft), *how), identity)
        except (OSError, subprocess.SubprocessError) as error:
            message = (getattr(error, "output", None) or str(error)).strip()
            raise ServerBinaryError(
                f"initdb could not create a database in {draft}: {message}",
                "Check free space and permissions there, or choose another folder with --data-dir",
            ) from error
        draft.rename(self._cluster)


def socket_dir_for(data_dir: Path) -> Path:
    """Return the socket folder of a data folder: inside it if the path is short enough, else in
    /tmp with its hash.
    """
    inside = data_dir / "run"
    if len(
        os.fsencode(inside / _LONGEST_SOCKET_NAME)
    ) <= _SOCKET_PATH_LIMIT_BYTES and "," not in str(inside):
        return inside
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    return Path("/tmp") / f"topolog-{os.geteuid()}-{digest}"


def _make_socket_dir(path: Path) -> None:
    """Refuse a folder that another user created first, because every user can write to /tmp."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if path.is_symlink() or (os.geteuid() != 0 and status.st_uid != os.geteuid()):
        raise DataFolderError(
            f"the socket folder {path} belongs to another user",
            "Remove it, or choose another folder with --data-dir",
        )
    path.chmod(0o700)


def _close(cluster: Path) -> None:
    """Remove group permissions, which Postgres refuses. A kubelet sets them at each mount of a
    volume with `fsGroup`.
    """
    try:
        if cluster.stat().st_mode & 0o027:
            cluster.chmod(0o700)
    except OSError as error:
        raise DataFolderError(
            f"the folder {cluster} cannot be closed to its group ({plain(error)})",
            f"chmod 0700 {cluster}",
        ) from error


def _remove_tree(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
