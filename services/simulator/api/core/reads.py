"""Lists, and where a watch begins: versions, pages and continue tokens. This module does not know
HTTP.

Source: recordings B of kube-apiserver 1.36.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

import msgspec

from services.simulator.api.core.kinds import Kind
from services.simulator.api.core.refusals import (
    Refusal,
    bad_request,
    expired,
    options_invalid,
    refuse,
    too_large_version,
)
from services.simulator.api.core.selectors import Selection
from services.simulator.api.core.store import Change, Entry, Gone, Store

Json = dict[str, Any]

_VERSION = re.compile(r"\d{1,19}")
_CONTINUE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You can start a new list without the "
    "continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing "
    "with the provided token results in an inconsistent list - objects that were "
    "created, modified, or deleted between the "
    "time the first chunk was returned and now may show up in the list."
)


class ReadOptions(msgspec.Struct, frozen=True):
    """Query parameters of a list or watch, as sent."""

    version: str = ""
    match: str = ""
    limit: int = 0
    token: str = ""
    send_initial_events: bool = False


class Page(msgspec.Struct, frozen=True):
    """One answer to a list."""

    entries: list[Entry]
    version: int
    token: str = ""
    remaining: int | None = None


def bad_version(text: str) -> str:
    """Return why a text is no version, in Go's words; "" if it is one, or absent."""
    if not text or _VERSION.fullmatch(text):
        return ""
    return (
        f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": '
        "invalid syntax"
    )


def page(store: Store, kind: Kind, chosen: Selection, options: ReadOptions) -> Page | Refusal:
    """Return the objects of a list in key order, at a past version if the request or its token
    names one.
    """
    if refused := _refused(store, options):
        return refused
    version, start = store.version, ""
    if options.token:
        token = _decode(options.token)
        if isinstance(token, Refusal):
            return token
        start = token["start"].lstrip("/")
        version = store.version if token["rv"] < 0 else token["rv"]
    elif options.match == "Exact":
        version = int(options.version)
    entries = store.entries_at(kind.storage, chosen.namespace, version)
    if isinstance(entries, Gone):
        return _too_old(options, start)
    return _cut(chosen, options, entries, start, version)


def _cut(
    chosen: Selection, options: ReadOptions, entries: list[Entry], start: str, version: int
) -> Page:
    if chosen.selective:
        entries = [entry for entry in entries if chosen.takes(entry)]
    if start:
        entries = [entry for entry in entries if _place(entry, chosen) >= start]
    limit = options.limit if options.version != "0" or options.token else 0
    if not limit or len(entries) <= limit:
        return Page(entries, version)
    token = _encode(version, _place(entries[limit - 1], chosen))
    return Page(entries[:limit], version, token, None if chosen.selective else len(entries) - limit)


def _refused(store: Store, options: ReadOptions) -> Refusal | None:
    if why := bad_version(options.version):
        return bad_request(f"invalid resource version: {why}")
    if options.match and not options.version:
        text = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        return options_invalid("ListOptions", "resourceVersionMatch", "FieldValueForbidden", text)
    if options.match not in ("", "Exact", "NotOlderThan"):
        text = f'Unsupported value: "{options.match}": supported values: "Exact", "NotOlderThan"'
        return options_invalid(
            "ListOptions", "resourceVersionMatch", "FieldValueNotSupported", text
        )
    if options.version and int(options.version) > store.version:
        return too_large_version(int(options.version), store.version)
    return None


def _too_old(options: ReadOptions, start: str) -> Refusal:
    if not options.token:
        return expired("The resourceVersion for the provided list is too old.")
    again = _token(-1, start)
    return expired(_CONTINUE_TOO_OLD, **{"continue": again})


def _place(entry: Entry, chosen: Selection) -> str:
    return entry.name if chosen.namespace or not entry.key[0] else f"{entry.key[0]}/{entry.name}"


def _encode(version: int, last: str) -> str:
    return _token(version, f"/{last}\x00")


def _token(version: int, start: str) -> str:
    body = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": version, "start": start})
    return base64.urlsafe_b64encode(body).decode().rstrip("=")


def _decode(token: str) -> Json | Refusal:
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        body = msgspec.json.decode(raw)
    except (binascii.Error, ValueError, msgspec.DecodeError, RecursionError):
        return bad_request(
            "invalid continue token: continue key is not valid: it does not decode; list without it"
        )
    if (
        not isinstance(body, dict)
        or not isinstance(body.get("rv"), int)
        or not isinstance(body.get("start"), str)
    ):
        return bad_request(
            "invalid continue token: continue key is not valid: incorrect encoded start "
            "resourceVersion"
        )
    return body


class Beginning(msgspec.Struct, frozen=True):
    """How a watch starts: live objects to send as ADDED, or past changes to replay, then everything
    after `version`.
    """

    entries: list[Entry]
    changes: list[Change]
    version: int


def beginning(
    store: Store, kind: Kind, chosen: Selection, options: ReadOptions
) -> Beginning | Refusal | Gone:
    """Return where a watch starts. Gone (HTTP 200 with an ERROR event) if the version is older than
    the history.
    """
    if options.send_initial_events and options.match != "NotOlderThan":
        text = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        return options_invalid("ListOptions", "resourceVersionMatch", "FieldValueForbidden", text)
    if options.match and not options.send_initial_events:
        text = (
            "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents "
            "is provided"
        )
        return options_invalid("ListOptions", "resourceVersionMatch", "FieldValueForbidden", text)
    if why := bad_version(options.version):
        return refuse(500, why)
    if options.send_initial_events or options.version in ("", "0"):
        entries = [
            entry for entry in store.entries(kind.storage, chosen.namespace) if chosen.takes(entry)
        ]
        return Beginning(entries, [], store.version)
    changes = store.changes_after(kind.storage, int(options.version))
    if isinstance(changes, Gone):
        return changes
    return Beginning([], changes, max(store.version, int(options.version)))


def seen(chosen: Selection, change: Change) -> tuple[str, Entry] | None:
    """Return the change as a watch with a selector shows it: an object that begins to match is
    ADDED, and an object that no longer matches is DELETED (the old object with the new version).
    """
    entry, old = change.entry, change.old
    if change.kind == "DELETED":
        return ("DELETED", entry) if chosen.takes(entry) else None
    is_selected = chosen.takes(entry)
    was_selected = old is not None and chosen.takes(old)
    if is_selected:
        return ("MODIFIED" if was_selected else "ADDED", entry)
    if was_selected and old is not None:
        metadata = {
            **old.obj["metadata"],
            "resourceVersion": entry.obj["metadata"]["resourceVersion"],
        }
        return "DELETED", Entry(old.key, {**old.obj, "metadata": metadata}, entry.version)
    return None
