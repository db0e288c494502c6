"""Parse a pod's projected service account token: its node and its expiry.

A kubelet gets such tokens only for pods of its own node, and the API server writes the node into
them (Kubernetes 1.30 and newer). Pure: nothing is verified here; to trust a token, ask the API
server (TokenReview). Source: RFC 7519; kubernetes.io, bound service account tokens.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

# The audience of these tokens: NATS only.
AUDIENCE = "topolog-nats"
MAX_BYTES = 8192
_PARTS = 3


class Claims(msgspec.Struct, frozen=True):
    """The node's name, and the token's expiry in seconds since 1970."""

    node: str
    until_s: int


class _Named(msgspec.Struct):
    name: str


class _Kubernetes(msgspec.Struct):
    node: _Named | None = None


class _Payload(msgspec.Struct):
    exp: int
    kubernetes: _Kubernetes = msgspec.field(name="kubernetes.io")


def claims(token: str) -> Claims:
    """Parse the token. Raises ValueError, without the token in its message."""
    parts = token.split(".")
    if len(token) > MAX_BYTES or len(parts) != _PARTS or not all(parts):
        raise ValueError("it is not a pod's token")
    try:
        payload = msgspec.json.decode(decoded(parts[1]), type=_Payload)
    except (msgspec.MsgspecError, UnicodeError):
        raise ValueError("it is not a pod's token") from None
    if payload.kubernetes.node is None or not payload.kubernetes.node.name:
        raise ValueError(
            "it has no node; Kubernetes 1.30 and newer writes the node into tokens of pods"
        )
    return Claims(payload.kubernetes.node.name, payload.exp)


def decoded(part: str) -> bytes:
    """Decode a part of a token. Raises ValueError."""
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        raise ValueError("it is not a pod's token") from None


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
