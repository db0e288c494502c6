"""NATS' auth callout: the server asks who a client is, and is told what it may do, or that it may
not come in.

Words of the protocol as values, and the client that hears the questions. Must not know by what a
client is judged. Source: docs.nats.io, auth callout; nats-io/jwt v2 (authorization_request,
authorization_response, user).
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from shared.bus.nkeys import Issuer
from shared.bus.pod_tokens import decoded, encoded

SUBJECT = "$SYS.REQ.USER.AUTH"
USER = "logins"
AT_ONCE = 16
"""Questions that are judged at the same time; more wait, and the server waits for none longer than its own limit."""
MAX_WAITING = 1024
_HEADER = encoded(b'{"typ":"JWT","alg":"ed25519-nkey"}')
_VERSION = 2


class Asked(msgspec.Struct, frozen=True):
    """Who wants to come in: the key that the server made up for this connection, the server, and
    the token that was shown.
    """

    user_key: str
    server: str
    token: str

    def __repr__(self) -> str:
        return f"Asked({self.user_key!r})"


class Grant(msgspec.Struct, frozen=True):
    """What a client may do, under which name, and until when (seconds since 1970)."""

    name: str
    publish: Sequence[str]
    subscribe: Sequence[str]
    until_s: int


class _Server(msgspec.Struct):
    id: str


class _Options(msgspec.Struct):
    auth_token: str = ""


class _Request(msgspec.Struct):
    user_nkey: str
    server_id: _Server
    connect_opts: _Options = msgspec.field(default_factory=_Options)


class _Question(msgspec.Struct):
    nats: _Request


def asked(data: bytes) -> Asked:
    """A server's question. Raises ValueError."""
    parts = data.decode("ascii", errors="replace").split(".")
    if len(parts) != 3:
        raise ValueError("no question of a NATS server")
    try:
        found = msgspec.json.decode(decoded(parts[1]), type=_Question).nats
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ValueError(f"no question of a NATS server: {error}") from None
    return Asked(found.user_nkey, found.server_id.id, found.connect_opts.auth_token)


def granted(issuer: Issuer, who: Asked, grant: Grant, account: str, now_s: int) -> bytes:
    """The answer that lets a client in, to the account of that name."""
    rights = {"pub": {"allow": list(grant.publish)}, "sub": {"allow": list(grant.subscribe)}}
    limits = {"subs": -1, "data": -1, "payload": -1, "type": "user", "version": _VERSION}
    user = {
        "sub": who.user_key,
        "aud": account,
        "name": grant.name,
        "exp": grant.until_s,
        "nats": {**rights, **limits},
    }
    return _answer(issuer, who, {"jwt": _signed(issuer, user, now_s)}, now_s)


def denied(issuer: Issuer, who: Asked, reason: str, now_s: int) -> bytes:
    """The answer that leaves a client outside; the reason stands in the server's log."""
    return _answer(issuer, who, {"error": reason[:200]}, now_s)


def _answer(issuer: Issuer, who: Asked, told: dict[str, str], now_s: int) -> bytes:
    body = {
        "sub": who.user_key,
        "aud": who.server,
        "nats": {**told, "type": "authorization_response", "version": _VERSION},
    }
    return _signed(issuer, body, now_s).encode()


def _signed(issuer: Issuer, body: Mapping[str, object], now_s: int) -> str:
    whole = {**body, "iss": issuer.public, "iat": now_s, "jti": secrets.token_hex(16)}
    text = f"{_HEADER}.{encoded(msgspec.json.encode(whole))}"
    return f"{text}.{encoded(issuer.sign(text.encode()))}"


Judge = Callable[[Asked], Awaitable[bytes]]


async def answer_for_ever(
    url: str,
    password: str,
    judge: Judge,
    said: Callable[[str], None],
    tls: ssl.SSLContext | None = None,
) -> None:
    """Hear the questions of the server at `url` and answer them; ends by cancellation. A question
    that is none is left alone.
    """
    running: set[asyncio.Task[None]] = set()
    places = asyncio.Semaphore(AT_ONCE)

    async def answer(message: Msg) -> None:
        async with places:
            try:
                await message.respond(await judge(asked(message.data)))
            except ValueError as error:
                said(str(error))

    async def hear(message: Msg) -> None:
        if len(running) < MAX_WAITING:
            task = asyncio.create_task(answer(message))
            running.add(task)
            task.add_done_callback(running.discard)

    async def trouble(error: Exception) -> None:
        said(f"{type(error).__name__}: {error}")

    client = Client()
    await client.connect(
        url, user=USER, password=password, max_reconnect_attempts=-1, error_cb=trouble, tls=tls
    )
    try:
        await client.subscribe(SUBJECT, cb=hear)
        await asyncio.Event().wait()
    finally:
        await client.close()
