"""NATS with JetStream as a child on loopback, at an address that is kept over restarts. Knows
nothing of subjects.
"""

import secrets
import shutil
import signal
from pathlib import Path
from urllib.parse import quote

import msgspec

from services.embedded.binaries import find_nats_server
from services.embedded.child import ChildSpec, HttpReady, RestartPolicy
from services.embedded.data_dir import DataDir
from services.embedded.errors import DataFolderError, PortInUseError
from services.embedded.files import write
from services.embedded.nats_credentials import load, users
from services.embedded.ports import HOST, free_port, port_is_free
from shared.bus.port import StreamLimits
from shared.bus.subjects import (
    CALLOUT,
    CALLOUT_USER,
    ECHO,
    RECEIPTS,
    REPORT_SUBJECTS,
    inbox_prefix,
)

CHILD_NAME = "nats"
_USER = "topolog"
_EXPORTER = "exporter"
_HANDSHAKE_S = 5
_MIB = 1 << 20
_STORE_BYTES = 4096 * _MIB
# The two streams reserve this much of the space that JetStream is given, which is by default a
# share of the free disk space.
STREAMS_BYTES = StreamLimits().report_bytes + StreamLimits().event_bytes

_RESTART = RestartPolicy(first_delay_s=0.05, max_delay_s=1.0, start_attempts=5)


class NatsAddress(msgspec.Struct, frozen=True):
    """The address that a data folder keeps, so that clients can reconnect."""

    port: int
    monitor_port: int
    password: str


class TlsFiles(msgspec.Struct, frozen=True):
    """A certificate and its key in PEM, and the authorities for clients ("": those of the system).
    With `clients_too` a client must present a certificate of these authorities.
    """

    certificate: str
    key: str
    ca: str = ""
    clients_too: bool = False


class Callout(msgspec.Struct, frozen=True):
    """The auth callout for clients that are not in the configuration: the public key that signs the
    answers, and the password of the user `logins`, which answers.
    """

    issuer: str
    password: str

    def __repr__(self) -> str:
        return f"Callout({self.issuer!r})"


class NatsSettings(msgspec.Struct, frozen=True):
    """Fixed ports, the services' password, the interface (`host`, and `monitor_host` if it
    differs).

    `exporter_password` adds a user `exporter` that can publish reports, ask whether their stream
    exists, and receive the answers; it cannot read other reports. `credentials` is a folder of
    exporter keys (`services.embedded.nats_credentials`), each for its own nodes; if it has a key,
    there is no user `exporter`. With `tls` every client must use TLS; with `tls_names` too, with a
    certificate for these names (and loopback) that is created in the data folder. With `callout`,
    other clients are decided by the callout, and there is no user `exporter` either.
    """

    port: int | None = None
    monitor_port: int | None = None
    password: str | None = None
    host: str = HOST
    monitor_host: str = ""
    exporter_password: str = ""
    credentials: str = ""
    tls: TlsFiles | None = None
    tls_names: tuple[str, ...] = ()
    callout: Callout | None = None


DEFAULT_SETTINGS = NatsSettings()


class EmbeddedNats:
    """The NATS server of one data folder. `prepare` chooses ports and writes the configuration;
    `spec` declares the process.

    A port of the settings is required; a remembered port is replaced if it is in use.
    """

    def __init__(self, data_dir: DataDir, settings: NatsSettings = DEFAULT_SETTINGS) -> None:
        self._data_dir = data_dir
        self._settings = settings
        self._address: NatsAddress | None = None
        self.tls = settings.tls

    @property
    def url(self) -> str:
        """`nats://topolog:<password>@127.0.0.1:<port>`, or `tls://...?ca=<file>`. Call it after
        `prepare`.
        """
        address = self._prepared()
        plain = f"{_USER}:{quote(address.password, safe='')}@{HOST}:{address.port}"
        if self.tls is None:
            return f"nats://{plain}"
        return f"tls://{plain}" + (f"?ca={quote(self.tls.ca)}" if self.tls.ca else "")

    @property
    def monitor_url(self) -> str:
        """Base of the monitoring pages (`/healthz`, `/varz`, `/jsz`)."""
        return f"http://{HOST}:{self._prepared().monitor_port}"

    def prepare(self) -> None:
        """Choose the address and write the configuration with the current credentials.

        Raises PortInUseError, ServerBinaryError, DataFolderError (also if the disk is too small for
        the streams).
        """
        folder = self._data_dir.folder("nats")
        _require_space(folder / "jetstream")
        self._address = _choose_address(_remembered(folder / "address.json"), self._settings)
        write(folder / "address.json", msgspec.json.encode(self._address), 0o600)
        if self._settings.tls_names and self._settings.tls is None:
            from services.embedded.certificates import ensure

            made = ensure(folder / "tls", [*self._settings.tls_names, "localhost", HOST])
            self.tls = TlsFiles(str(made.certificate), str(made.key), str(made.ca))
        self.write_config()

    def take_passwords(self, password: str, exporter_password: str) -> None:
        """Use other passwords from the next `write_config` on. Call it after `prepare`."""
        self._settings = msgspec.structs.replace(
            self._settings, password=password, exporter_password=exporter_password
        )
        self._address = msgspec.structs.replace(self._prepared(), password=password)

    def write_config(self) -> None:
        """Write the configuration, which a running server reads at SIGHUP. Call it after `prepare`.
        Raises DataFolderError.
        """
        folder = self._data_dir.folder("nats")
        settings = msgspec.structs.replace(self._settings, tls=self.tls)
        write(
            folder / "nats.conf",
            render_config(self._prepared(), folder / "jetstream", settings).encode(),
            0o600,
        )

    def spec(self) -> ChildSpec:
        """Return the server as a child. Call it after `prepare`."""
        return ChildSpec(
            name=CHILD_NAME,
            argv=(find_nats_server(), "-c", str(self._data_dir.folder("nats") / "nats.conf")),
            ready=HttpReady(f"{self.monitor_url}/healthz"),
            log_path=self._data_dir.logs / "nats.log",
            parent_death_signal=signal.SIGTERM,
            restart=_RESTART,
        )

    def _prepared(self) -> NatsAddress:
        if self._address is None:
            raise RuntimeError("prepare comes first")
        return self._address


def render_config(
    address: NatsAddress, store_dir: Path, settings: NatsSettings = DEFAULT_SETTINGS
) -> str:
    """Return a nats-server configuration as JSON, which its grammar includes."""
    accounts: list[dict[str, object]] = [{"user": _USER, "password": address.password}]
    exporters = users(load(Path(settings.credentials))) if settings.credentials else []
    accounts += exporters
    if settings.exporter_password and not exporters and settings.callout is None:
        rights = {
            "publish": {"allow": [REPORT_SUBJECTS], "deny": [ECHO]},
            "subscribe": [f"{inbox_prefix(_EXPORTER)}.>", f"{RECEIPTS}*"],
        }
        accounts.append(
            {"user": _EXPORTER, "password": settings.exporter_password, "permissions": rights}
        )
    config: dict[str, object] = {
        "host": settings.host,
        "port": address.port,
        "http": f"{settings.monitor_host or settings.host}:{address.monitor_port}",
        "jetstream": {"store_dir": str(store_dir), "max_file_store": _STORE_BYTES},
        "authorization": {"users": accounts},
    }
    if settings.callout is not None:
        config["authorization"] = _with_callout(settings.callout, accounts)
    if settings.tls is not None:
        asked = {"ca_file": settings.tls.ca, "verify": True} if settings.tls.clients_too else {}
        config["tls"] = {
            "cert_file": settings.tls.certificate,
            "key_file": settings.tls.key,
            "timeout": _HANDSHAKE_S,
            **asked,
        }
    return msgspec.json.format(msgspec.json.encode(config), indent=2).decode() + "\n"


def _with_callout(settings: Callout, accounts: list[dict[str, object]]) -> dict[str, object]:
    """Return the users that the server checks itself. The user of the callout can receive its
    requests and answer them, and nothing else.
    """
    rights = {"subscribe": [CALLOUT], "publish": {"deny": [">"]}, "allow_responses": True}
    users: list[dict[str, object]] = [
        *accounts,
        {"user": CALLOUT_USER, "password": settings.password, "permissions": rights},
    ]
    itself = [user.get("user") or user["nkey"] for user in users]
    return {
        "users": users,
        "timeout": _HANDSHAKE_S,
        "auth_callout": {"issuer": settings.issuer, "auth_users": itself},
    }


def _require_space(store_dir: Path) -> None:
    """Check that the disk has room for the streams, counting their present size. Raises
    DataFolderError.
    """
    used = 0
    if store_dir.exists():
        used = sum(file.stat().st_size for file in store_dir.rglob("*") if file.is_file())
    free = shutil.disk_usage(store_dir.parent).free
    if free + used < STREAMS_BYTES:
        raise DataFolderError(
            f"the disk of {store_dir} has {free // _MIB} MiB free, "
            f"and NATS' streams need up to {STREAMS_BYTES // _MIB} MiB",
            "Free some space, or choose a folder on another disk with --data-dir "
            "(containers: TOPOLOG_DATA_DIR)",
        )


def _remembered(path: Path) -> NatsAddress | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=NatsAddress)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise DataFolderError(
            f"the file {path} is not readable ({error})", f"Remove it: rm {path}"
        ) from error


def _choose_address(remembered: NatsAddress | None, wanted: NatsSettings) -> NatsAddress:
    for port in (wanted.port, wanted.monitor_port):
        if port is not None and not port_is_free(HOST, port):
            raise PortInUseError(
                f"port {port}, which NATS needs, is in use on {HOST}",
                f"Stop the program on it (ss -ltnp 'sport = :{port}'), or choose another port",
            )
    password = wanted.password or (remembered.password if remembered else secrets.token_urlsafe(18))
    port = wanted.port or free_port(
        remembered.port if remembered else None, {wanted.monitor_port or 0}
    )
    monitor = wanted.monitor_port or free_port(
        remembered.monitor_port if remembered else None, {port}
    )
    return NatsAddress(port, monitor, password)
