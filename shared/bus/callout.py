"""NATS' auth callout: the server asks about a client, and is answered with its rights or a refusal.

Holds the protocol's messages and the client that serves the requests. Must not know how a client is
judged. Source: docs.nats.io, auth callout; nats-io/jwt v2 (authorization_request,
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
from shared.bus.subjects import CALLOUT, CALLOUT_USER

# Requests that are judged at the same time. Further ones wait, and the server waits no longer than
# its own limit.
MAX_CONCURRENT = 16
MAX_WAITING = 1024
_HEADER = encoded(b'{"typ":"JWT","alg":"ed25519-nkey"}')
_VERSION = 2


class LoginRequest(msgspec.Struct, frozen=True):
    """A login: the key that the server generated for this connection, the server's id, and the
    token that the client sent.
    """

    user_key: str
    server: str
    token: str

    def __repr__(self) -> str:
        return f"LoginRequest({self.user_key!r})"


class Grant(msgspec.Struct, frozen=True):
    """A client's rights, its name, and their expiry (seconds since 1970)."""

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


def login_request(data: bytes) -> LoginRequest:
    """Parse a server's request. Raises ValueError."""
    parts = data.decode("ascii", errors="replace").split(".")
    if len(parts) != 3:
        raise ValueError("not an authorization request of a NATS server")
    try:
        question = msgspec.json.decode(decoded(parts[1]), type=_Question).nats
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ValueError(f"not an authorization request of a NATS server: {error}") from None
    return LoginRequest(question.user_nkey, question.server_id.id, question.connect_opts.auth_token)


def granted(issuer: Issuer, request: LoginRequest, grant: Grant, account: str, now_s: int) -> bytes:
    """Return the answer that admits a client to the account of that name."""
    rights = {"pub": {"allow": list(grant.publish)}, "sub": {"allow": list(grant.subscribe)}}
    limits = {"subs": -1, "data": -1, "payload": -1, "type": "user", "version": _VERSION}
    user = {
        "sub": request.user_key,
        "aud": account,
        "name": grant.name,
        "exp": grant.until_s,
        "nats": {**rights, **limits},
    }
    return _answer(issuer, request, {"jwt": _signed(issuer, user, now_s)}, now_s)


def denied(issuer: Issuer, request: LoginRequest, reason: str, now_s: int) -> bytes:
    """Return the answer that rejects a client; the server logs the reason."""
    return _answer(issuer, request, {"error": reason[:200]}, now_s)


def _answer(issuer: Issuer, request: LoginRequest, outcome: dict[str, str], now_s: int) -> bytes:
    body = {
        "sub": request.user_key,
        "aud": request.server,
        "nats": {**outcome, "type": "authorization_response", "version": _VERSION},
    }
    return _signed(issuer, body, now_s).encode()


def _signed(issuer: Issuer, body: Mapping[str, object], now_s: int) -> str:
    whole = {**body, "iss": issuer.public, "iat": now_s, "jti": secrets.token_hex(16)}
    text = f"{_HEADER}.{encoded(msgspec.json.encode(whole))}"
    return f"{text}.{encoded(issuer.sign(text.encode()))}"


Judge = Callable[[LoginRequest], Awaitable[bytes]]


async def serve_requests(
    url: str,
    password: str,
    judge: Judge,
    log_problem: Callable[[str], None],
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve the requests of the server at `url` until cancelled. Malformed requests are ignored."""
    running: set[asyncio.Task[None]] = set()
    places = asyncio.Semaphore(MAX_CONCURRENT)

    async def answer(message: Msg) -> None:
        async with places:
            try:
                await message.respond(await judge(login_request(message.data)))
            except ValueError as error:
                log_problem(str(error))

    async def hear(message: Msg) -> None:
        if len(running) < MAX_WAITING:
            task = asyncio.create_task(answer(message))
            running.add(task)
            task.add_done_callback(running.discard)

    async def trouble(error: Exception) -> None:
        log_problem(f"{type(error).__name__}: {error}")

    client = Client()
    await client.connect(
        url,
        user=CALLOUT_USER,
        password=password,
        max_reconnect_attempts=-1,
        error_cb=trouble,
        tls=tls,
    )
    try:
        await client.subscribe(CALLOUT, cb=hear)
        await asyncio.Event().wait()
    finally:
        await client.close()
