"""How the server says no: Status objects, worded as kube-apiserver 1.36 words them. Must not know
HTTP or storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from services.simulator.api.core.kinds import Kind

Json = dict[str, Any]


class Cause(msgspec.Struct, frozen=True):
    """One reason of a 422: Kubernetes cause type, the message and the path of the field."""

    reason: str
    message: str
    field: str


class Refusal(msgspec.Struct, frozen=True):
    """A request that was not carried out: HTTP code, Status body and extra response headers."""

    code: int
    body: Json
    headers: tuple[tuple[str, str], ...] = ()


def refuse(
    code: int, message: str, reason: str = "", details: Json | None = None, **metadata: Any
) -> Refusal:
    """Return a Status of failure, without `reason` and `details` if the real server leaves them
    out.
    """
    body: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": metadata,
        "status": "Failure",
        "message": message,
    }
    if reason:
        body["reason"] = reason
    if details is not None:
        body["details"] = details
    body["code"] = code
    return Refusal(code, body)


def details_of(kind: Kind, name: str) -> Json:
    """`details` as most errors carry it: name, group when there is one, and the resource as
    `kind`.
    """
    details: Json = {"name": name} if name else {}
    if kind.group_in_errors:
        details["group"] = kind.group_in_errors
    details["kind"] = kind.resource
    return details


def bad_request(message: str) -> Refusal:
    """400 without details."""
    return refuse(400, message, "BadRequest")


def not_found(kind: Kind, name: str) -> Refusal:
    """404 of an object."""
    return refuse(404, f'{kind.qualified} "{name}" not found', "NotFound", details_of(kind, name))


def resource_not_found() -> Refusal:
    """404 of a resource in a group and version that exist."""
    return refuse(404, "the server could not find the requested resource", "NotFound", {})


def method_not_allowed() -> Refusal:
    """405 of a verb that the path does not have."""
    return refuse(
        405,
        "the server does not allow this method on the requested resource",
        "MethodNotAllowed",
        {},
    )


def already_exists(kind: Kind, name: str) -> Refusal:
    """409 of a create."""
    return refuse(
        409, f'{kind.qualified} "{name}" already exists', "AlreadyExists", details_of(kind, name)
    )


def conflict(kind: Kind, name: str, why: str, *, label: str = "", shown_kind: str = "") -> Refusal:
    """409 Conflict. `label` replaces the resource in the text (`pods/binding`), `shown_kind` the
    one in details.
    """
    shown = label or kind.qualified
    details = details_of(kind, name)
    if label or shown_kind:
        details = {"name": name, "kind": shown_kind or label}
    return refuse(
        409, f'Operation cannot be fulfilled on {shown} "{name}": {why}', "Conflict", details
    )


def stale(kind: Kind, name: str) -> Refusal:
    """409 of a write that carries an old resourceVersion."""
    return conflict(
        kind,
        name,
        (
            "the object has been modified; please apply your changes to the latest version "
            "and try again"
        ),
    )


def invalid(
    kind: Kind, name: str, causes: Sequence[Cause], *, by_resource: bool = False
) -> Refusal:
    """422 with its causes; `by_resource` for the few checks of the generic registry that name the
    resource.
    """
    shown = kind.qualified if by_resource else kind.qualified_kind
    return invalid_as(
        shown, kind.group_in_errors, kind.resource if by_resource else kind.kind, name, causes
    )


def invalid_as(shown: str, group: str, kind: str, name: str, causes: Sequence[Cause]) -> Refusal:
    """422 for a kind given by its parts (also PatchOptions and ListOptions)."""
    details: Json = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = kind
    details["causes"] = [
        {"reason": c.reason, "message": c.message, "field": c.field} for c in causes
    ]
    texts = list(dict.fromkeys(f"{c.field}: {c.message}" for c in causes))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return refuse(422, f'{shown} "{name}" is invalid: {text}', "Invalid", details)


def options_invalid(options: str, field: str, reason: str, message: str) -> Refusal:
    """422 of a query parameter, as meta.k8s.io ListOptions or PatchOptions."""
    return invalid_as(
        f"{options}.meta.k8s.io", "meta.k8s.io", options, "", [Cause(reason, message, field)]
    )


def expired(message: str, **metadata: Any) -> Refusal:
    """410 of a version that the history no longer holds."""
    return refuse(410, message, "Expired", None, **metadata)


def too_large_version(wanted: int, current: int) -> Refusal:
    """504 of a read that asks for a version not reached yet."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    text = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return msgspec.structs.replace(
        refuse(504, text, "Timeout", details), headers=(("Retry-After", "1"),)
    )


SUCCESS: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
BOUND: Json = {**SUCCESS, "code": 201}


def deleted_status(kind: Kind, name: str, uid: str) -> Json:
    """Return the answer to DELETE for a kind without graceful deletion."""
    details: Json = {"name": name}
    if kind.group:
        details["group"] = kind.group
    return {**SUCCESS, "details": {**details, "kind": kind.resource, "uid": uid}}
