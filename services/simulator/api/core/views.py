"""How a stored object is shown: with or without kind and apiVersion, and Events in either API form.
Must not know HTTP.
"""

from __future__ import annotations

from typing import Any

import msgspec

from services.simulator.api.core import events, kinds
from services.simulator.api.core.kinds import Kind
from services.simulator.api.core.store import Entry

Json = dict[str, Any]

_PREFIXES = {
    kind: f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",'.encode()
    for kind in kinds.KINDS
}


def view_of(kind: Kind, entry: Entry, *, with_type: bool) -> Json:
    """The object as a value in the API form of `kind`."""
    obj = events.from_core(entry.obj) if kind is kinds.EVENTS_V1 else entry.obj
    return {"kind": kind.kind, "apiVersion": kind.api_version, **obj} if with_type else obj


def item_bytes(kind: Kind, entry: Entry) -> bytes:
    """The object as an element of a List: items of built-in kinds carry no kind, items of custom
    ones do.
    """
    if kind is kinds.EVENTS_V1:
        return msgspec.json.encode(events.from_core(entry.obj))
    return _PREFIXES[kind] + entry.body[1:] if kind.custom else entry.body


def object_bytes(kind: Kind, entry: Entry) -> bytes:
    """The object on its own, kind and apiVersion first."""
    body = (
        msgspec.json.encode(events.from_core(entry.obj)) if kind is kinds.EVENTS_V1 else entry.body
    )
    return _PREFIXES[kind] + body[1:]


def watch_line(kind: Kind, change_kind: str, entry: Entry) -> bytes:
    """One line of a watch stream."""
    return b'{"type":"' + change_kind.encode() + b'","object":' + object_bytes(kind, entry) + b"}\n"
