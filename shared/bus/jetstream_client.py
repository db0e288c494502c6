"""The nats client as it is used here: who it is and whom it believes is read from files at every
connection, so that replacing the files rotates them, and so is an address that is itself a file of
a URL; a server without TLS hears nothing where TLS was asked for.

nats-py encrypts when the server asks for it, and tells the password in the clear to one that does
not. Must not know streams.
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


def _worth_telling(record: logging.LogRecord) -> bool:
    """nats-py encrypts a plain stream in place, which makes asyncio warn at the end of every
    connection: of nothing.
    """
    return "eof_received" not in str(record.msg)


logging.getLogger("asyncio").addFilter(_worth_telling)


class Insistent(Client):
    """A client of the servers of a URL; that URL says by which files
    (`shared.bus.jetstream_tls.FILES`).
    """

    def __init__(self, address: Address) -> None:
        super().__init__()
        self._address = address
        self.servers_told: tuple[str, ...] = ()
        """HOST:PORT of every server of its cluster, as the server said last; empty without a cluster."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """The first word of a server, at every connection."""
        url = text_of(self._address) if initial_connection else ""
        if wanted(url):
            if not info.get("tls_required"):
                raise NatsError(
                    "the server offers no TLS, which TOPOLOG_NATS_URL asks for; "
                    "give it a certificate, or write nats:// without ca="
                )
            self.options["tls"] = context(url)
        self.servers_told = tuple(info.get("connect_urls") or ())
        await super()._process_info(info, initial_connection)

    def _connect_command(self) -> bytes:
        """Who this is, in answer to the server's nonce."""
        url = text_of(self._address)
        if file := named(url, SEED):
            from shared.bus import nkeys

            seed = _login(file).seed
            self._public_nkey = nkeys.public(seed)
            self._signature_cb = lambda nonce: nkeys.signature(seed, nonce)
        elif file := named(url, TOKEN):
            self.options["token"], self._auth_configured = _token(file)[0], True
        elif found := split_credentials(url)[1]:
            self.options |= {"user": None, "password": None, "token": None, **found}
            self._auth_configured = True
        return bytes(super()._connect_command())


def split_credentials(url: str) -> tuple[list[str], dict[str, str]]:
    """Server URLs without userinfo, and the user and password that the first URL with any names.
    Raises BusUnavailable for a URL that cannot be read as it was meant."""
    if trouble := bus_trouble(url):
        raise BusUnavailable(f"the URL of NATS {trouble}; check TOPOLOG_NATS_URL")
    servers: list[str] = []
    credentials: dict[str, str] = {}
    for one in url.split(","):
        parts = urlsplit(one.strip() if "://" in one else f"nats://{one.strip()}")
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
    """Where answers to this client come. Raises NatsError for a seed or token that cannot be read."""
    if token := named(url, TOKEN):
        return subjects.exporters_inbox(_token(token)[1])
    file = named(url, SEED)
    if not file:
        return subjects.inbox_prefix(user)
    from shared.bus import nkeys

    login = _login(file)
    return subjects.exporters_inbox(login.name or nkeys.public(login.seed))


def _token(file: str) -> tuple[str, str]:
    """The text of a pod's token, which its kubelet replaces now and then, and the node that it
    names.
    """
    try:
        with open(file, "rb") as opened:
            text = opened.read(pod_tokens.MAX_BYTES + 1).decode("ascii").strip()
        return text, pod_tokens.claims(text).node
    except (OSError, ValueError) as error:
        raise NatsError(
            f"{file}, which TOPOLOG_NATS_URL names by token=, cannot be used ({plain(error)})"
        ) from None


def _login(file: str) -> Any:
    """What is in a file of a seed. Imported here: only who has a seed pays for the library."""
    from shared.bus import nkeys

    try:
        return nkeys.read(Path(file))
    except (OSError, nkeys.KeyInvalid) as error:
        raise NatsError(
            f"{file}, which TOPOLOG_NATS_URL names by seed=, cannot be used ({plain(error)})"
        ) from None
