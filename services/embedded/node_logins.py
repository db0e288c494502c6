"""Identify an exporter by the token that its kubelet gave to its pod: it may publish for the node
of the pod.

A kubelet gets tokens only for pods of its own node, and the API server reviews a token and names
its node. So no keys are distributed, and a new node needs none. Must not know the protocol of NATS
(`shared.bus.callout`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from services.embedded.nats_credentials import rights
from shared.bus import callout, pod_tokens
from shared.bus.callout import Grant, LoginRequest
from shared.bus.nkeys import Issuer
from shared.kube.port import Answer, Lost, Object

# NATS' name for the account of servers without configured accounts.
ACCOUNT = "$G"
NODE = "authentication.kubernetes.io/node-name"
_REMEDIES = {
    401: "mount a service account's token into NATS' pod",
    403: "grant create on tokenreviews.authentication.k8s.io (k8s/components/exporter-tokens)",
}


class Refused(ValueError):
    """A login is refused. The text gives the reason and no part of the token."""


class Reviews(Protocol):
    """A reviewer of tokens."""

    async def review_token(self, token: str, audience: str) -> Answer | Lost:
        """Return a TokenReview in `body`."""


class _User(msgspec.Struct):
    username: str = ""
    extra: dict[str, list[str]] | None = None


class _Status(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)
    audiences: list[str] | None = None


class _Review(msgspec.Struct):
    status: _Status


class NodeLogins:
    """Decides logins by token. `user` is the service account of exporters
    (`system:serviceaccount:NAMESPACE:NAME`). `said(problem)` gets the reason of a refusal; the same
    reason in a row is reported once.
    """

    def __init__(
        self, issuer: Issuer, reviews: Reviews, user: str, said: Callable[[str], None]
    ) -> None:
        self._issuer = issuer
        self._reviews = reviews
        self._user = user
        self._said = said
        self._last_reason = ""

    async def judge(self, request: LoginRequest) -> bytes:
        """Return the answer to a login request."""
        now_s = int(time.time())
        try:
            grant = await self._granted(request.token)
        except Refused as refused:
            if str(refused) != self._last_reason:
                self._last_reason = str(refused)
                self._said(f"a client was refused: {refused}")
            return callout.denied(self._issuer, request, str(refused), now_s)
        self._last_reason = ""
        return callout.granted(self._issuer, request, grant, ACCOUNT, now_s)

    async def _granted(self, token: str) -> Grant:
        """Return the permissions of a token. Text that cannot be a token is not sent to the API
        server.
        """
        try:
            claims = pod_tokens.claims(token)
        except ValueError as error:
            raise Refused(
                f"its token is invalid: {error}" if token else "it has neither password nor token"
            ) from None
        answer = await self._reviews.review_token(token, pod_tokens.AUDIENCE)
        if isinstance(answer, Lost) or not answer.ok:
            raise Refused(f"its token could not be reviewed: {_problem(answer)}")
        node = judged(answer.body, self._user)
        return Grant(node, **rights(node, [node]), until_s=claims.until_s)


def judged(body: Object, user: str) -> str:
    """Return the node of a reviewed token. Raises Refused."""
    try:
        status = msgspec.convert(body, _Review).status
    except msgspec.ValidationError as error:
        raise Refused(f"the API server's answer is no TokenReview: {error}") from None
    if not status.authenticated:
        raise Refused("its token is not (or no longer) valid")
    if pod_tokens.AUDIENCE not in (status.audiences or ()):
        raise Refused(f"its token is not for {pod_tokens.AUDIENCE}")
    if status.user.username != user:
        account = status.user.username[:120]
        raise Refused(f"its token is of {account!r}, and exporters are {user!r}")
    nodes = (status.user.extra or {}).get(NODE) or []
    if len(nodes) != 1 or not nodes[0]:
        raise Refused(
            "the API server names no node for its token; this needs Kubernetes 1.30 or newer"
        )
    return nodes[0]


def _problem(answer: Answer | Lost) -> str:
    if isinstance(answer, Lost):
        return answer.message
    message = " ".join(answer.message[:200].split())
    remedy = _REMEDIES.get(answer.status, "see the log of the API server")
    return f"the API server answered {answer.status} {message}; {remedy}"
