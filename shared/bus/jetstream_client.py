"""The nats client as used here. Credentials and authorities are read from files at every
connection, so that replacing a file rotates them; the address itself may be a file, too. A server
without TLS receives no credentials if the URL asks for TLS.

nats-py encrypts if the server asks for it, and sends the password in clear text to a server that
does not. Must not know streams.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from nats.aio.client import Client
from nats.errors import Error as NatsError

from shared.bus import pod_tokens, subjects
from shared.bus.jetstream_tls import SEED, TOKEN, context, named, wanted
from shared.bus.port import BusUnavailable
from shared.domain.secret_url import Address, bus_trouble, text_of
from shared.telemetry.reasons import plain


def _is_relevant(record: logging.LogRecord) -> bool:
    """Drop asyncio's warning at the end of every TLS connection: nats-py upgrades a plain stream in
    place."""
    return "eof_received" not in str(record.msg)


logging.getLogger("asyncio").addFilter(_is_relevant)


class FileAuthClient(Client):
    """A client of the servers of a URL, which names the files to read
    (`shared.bus.jetstream_tls.FILES`).
    """

    def __init__(self, address: Address) -> None:
        super().__init__()
        self._address = address
        # HOST:PORT of every server of the cluster, as the server last reported; empty without one.
        self.cluster_addresses: tuple[str, ...] = ()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Check TLS at the server's first message of every connection."""
        url = text_of(self._address) if initial_connection else ""
        if wanted(url):
            if not info.get("tls_required"):
                raise NatsError(
                    "TOPOLOG_NATS_URL asks for TLS and the server offers none; "
                    "give the server a certificate, or use nats:// without ca="
                )
            self.options["tls"] = context(url)
        self.cluster_addresses = tuple(info.get("connect_urls") or ())
        await super()._process_info(info, initial_connection)

    def _connect_command(self) -> bytes:
        """Authenticate with the file's current content and the server's nonce."""
        url = text_of(self._address)
        if file := named(url, SEED):
            from shared.bus import nkeys

            seed = _login(file).seed
            self._public_nkey = nkeys.public(seed)
            self._signature_cb = lambda nonce: nkeys.signature(seed, nonce)
        elif file := named(url, TOKEN):
            self.options["token"], self._auth_configured = _token(file)[0], True
        elif credential_fields := split_credentials(url)[1]:
            self.options |= {"user": None, "password": None, "token": None, **credential_fields}
            self._auth_configured = True
        return bytes(super()._connect_command())


def split_credentials(url: str) -> tuple[list[str], dict[str, str]]:
    """Return server URLs without userinfo, and the credentials in the first URL that has any.
    Raises BusUnavailable for a malformed URL."""
    if trouble := bus_trouble(url):
        raise BusUnavailable(f"the URL of NATS {trouble}; check TOPOLOG_NATS_URL")
    servers: list[str] = []
    credentials: dict[str, str] = {}
    for server in url.split(","):
        parts = urlsplit(server.strip() if "://" in server else f"nats://{server.strip()}")
        servers.append(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl())
        if parts.username and parts.password is None:
            credentials = credentials or {"token": unquote(parts.username)}
        elif parts.username:
            credentials = credentials or {
                "user": unquote(parts.username),
                "password": unquote(parts.password or ""),
            }
    return servers, credentials


def inbox_prefix(url: str, user: str) -> str:
    """Return the inbox prefix of this client. Raises NatsError for an unreadable seed or token."""
    if token := named(url, TOKEN):
        return subjects.exporters_inbox(_token(token)[1])
    file = named(url, SEED)
    if not file:
        return subjects.inbox_prefix(user)
    from shared.bus import nkeys

    login = _login(file)
    return subjects.exporters_inbox(login.name or nkeys.public(login.seed))


def _token(file: str) -> tuple[str, str]:
    """Return the pod's token, which its kubelet rotates, and the node that it names."""
    try:
        with open(file, "rb") as opened:
            text = opened.read(pod_tokens.MAX_BYTES + 1).decode("ascii").strip()
        return text, pod_tokens.claims(text).node
    except (OSError, ValueError) as error:
        raise NatsError(
            f"{file}, which TOPOLOG_NATS_URL names by token=, cannot be used ({plain(error)})"
        ) from None


def _login(file: str) -> Any:
    # Imported here so that only clients with a seed load the library.
    from shared.bus import nkeys

    try:
        return nkeys.read(Path(file))
    except (OSError, nkeys.KeyInvalid) as error:
        raise NatsError(
            f"{file}, which TOPOLOG_NATS_URL names by seed=, cannot be used ({plain(error)})"
        ) from None
