"""NATS with JetStream as a child, on loopback, at an address that outlives restarts. Knows nothing
of subjects.
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
from shared.bus import callout
from shared.bus.port import StreamLimits
from shared.bus.subjects import ECHO, RECEIPTS, REPORT_SUBJECTS, inbox_prefix

CHILD_NAME = "nats"
_USER = "topolog"
_EXPORTER = "exporter"
_HANDSHAKE_S = 5
_MIB = 1 << 20
_STORE_BYTES = 4096 * _MIB
STREAMS_BYTES = StreamLimits().report_bytes + StreamLimits().event_bytes
"""What the two streams reserve, of what JetStream is given: by default a share of what is free on the disk just then."""

_RESTART = RestartPolicy(first_delay_s=0.05, max_delay_s=1.0, start_attempts=5)


class NatsAddress(msgspec.Struct, frozen=True):
    """What a data folder remembers of its server, so that clients reconnect to where they were."""

    port: int
    monitor_port: int
    password: str


class TlsFiles(msgspec.Struct, frozen=True):
    """A certificate and its key in PEM, and the authorities that clients need, "" where the system
    knows them. With `clients_too` a client must show a certificate of these authorities."""

    certificate: str
    key: str
    ca: str = ""
    clients_too: bool = False


class Callout(msgspec.Struct, frozen=True):
    """Somebody who is asked about every client that the server does not know: the public key that
    signs the answers, and the password with which the user `logins` comes to answer."""

    issuer: str
    password: str

    def __repr__(self) -> str:
        return f"Callout({self.issuer!r})"


class NatsSettings(msgspec.Struct, frozen=True):
    """What may be insisted on: ports, the full user's password, the interface (`host`;
    `monitor_host` where that differs).

    `exporter_password` adds a user `exporter` that may publish reports, ask whether their stream is
    there, and hear the answers to its own questions: nothing else, so that no node hears what
    another says. `credentials` is a folder of exporters' keys
    (`services.embedded.nats_credentials`), each for its own nodes; with one of them there is no
    user `exporter`. With `tls` every client must use TLS; with `tls_names` too, by a certificate
    for these names (and loopback) that is made in the data folder. With `callout` clients that are
    none of these users are let in by whom it names, and there is no user `exporter` either.
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
    """The NATS server of one data folder. `prepare` chooses ports and configuration; `spec`
    declares the process.

    A port of the settings is insisted on; a remembered one is left for another when somebody else
    took it.
    """

    def __init__(self, data_dir: DataDir, settings: NatsSettings = DEFAULT_SETTINGS) -> None:
        self._data_dir = data_dir
        self._settings = settings
        self._address: NatsAddress | None = None
        self.tls = settings.tls

    @property
    def url(self) -> str:
        """`nats://topolog:<password>@127.0.0.1:<port>`, or `tls://...?ca=<file>`. Call after
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
        """Choose the address and write the configuration, with the credentials that stand in their
        folder now.

        Raises PortInUseError, ServerBinaryError, DataFolderError (also where the disk is too small
        for the streams).
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
        """Other passwords, from the next `write_config` on. Call after `prepare`."""
        self._settings = msgspec.structs.replace(
            self._settings, password=password, exporter_password=exporter_password
        )
        self._address = msgspec.structs.replace(self._prepared(), password=password)

    def write_config(self) -> None:
        """Write the configuration; a server that runs takes it up at SIGHUP. Call after `prepare`.
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
        """The server as a child. Call after `prepare`."""
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
    """A nats-server configuration, written as JSON, which its grammar includes."""
    known: list[dict[str, object]] = [{"user": _USER, "password": address.password}]
    exporters = users(load(Path(settings.credentials))) if settings.credentials else []
    known += exporters
    if settings.exporter_password and not exporters and settings.callout is None:
        rights = {
            "publish": {"allow": [REPORT_SUBJECTS], "deny": [ECHO]},
            "subscribe": [f"{inbox_prefix(_EXPORTER)}.>", f"{RECEIPTS}*"],
        }
        known.append(
            {"user": _EXPORTER, "password": settings.exporter_password, "permissions": rights}
        )
    config: dict[str, object] = {
        "host": settings.host,
        "port": address.port,
        "http": f"{settings.monitor_host or settings.host}:{address.monitor_port}",
        "jetstream": {"store_dir": str(store_dir), "max_file_store": _STORE_BYTES},
        "authorization": {"users": known},
    }
    if settings.callout is not None:
        config["authorization"] = _with_callout(settings.callout, known)
    if settings.tls is not None:
        asked = {"ca_file": settings.tls.ca, "verify": True} if settings.tls.clients_too else {}
        config["tls"] = {
            "cert_file": settings.tls.certificate,
            "key_file": settings.tls.key,
            "timeout": _HANDSHAKE_S,
            **asked,
        }
    return msgspec.json.format(msgspec.json.encode(config), indent=2).decode() + "\n"


def _with_callout(asked: Callout, known: list[dict[str, object]]) -> dict[str, object]:
    """The users that the server judges itself, among them who is asked about the others, who may
    hear that and answer.
    """
    rights = {"subscribe": [callout.SUBJECT], "publish": {"deny": [">"]}, "allow_responses": True}
    users: list[dict[str, object]] = [
        *known,
        {"user": callout.USER, "password": asked.password, "permissions": rights},
    ]
    itself = [user.get("user") or user["nkey"] for user in users]
    return {
        "users": users,
        "timeout": _HANDSHAKE_S,
        "auth_callout": {"issuer": asked.issuer, "auth_users": itself},
    }


def _require_space(store_dir: Path) -> None:
    """The streams fit on the disk, with what they hold already. Raises DataFolderError."""
    held = (
        sum(file.stat().st_size for file in store_dir.rglob("*") if file.is_file())
        if store_dir.exists()
        else 0
    )
    free = shutil.disk_usage(store_dir.parent).free
    if free + held < STREAMS_BYTES:
        raise DataFolderError(
            f"the disk of {store_dir} has {free // _MIB} MiB free, and NATS' streams take up to {STREAMS_BYTES // _MIB} MiB",
            "Free some, or name a folder on another disk with --data-dir (containers: TOPOLOG_DATA_DIR)",
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
                f"port {port}, wanted for NATS, is in use on {HOST}",
                f"Stop what listens there (ss -ltnp 'sport = :{port}'), or choose another port",
            )
    password = wanted.password or (remembered.password if remembered else secrets.token_urlsafe(18))
    port = wanted.port or free_port(
        remembered.port if remembered else None, {wanted.monitor_port or 0}
    )
    monitor = wanted.monitor_port or free_port(
        remembered.monitor_port if remembered else None, {port}
    )
    return NatsAddress(port, monitor, password)
