"""The few protobuf bodies kubectl sends (create namespace, deployment, configmap ..., auth can-i)
as JSON values. Nothing else.

Wire form: `k8s\\0` and a runtime.Unknown {1: TypeMeta {1: apiVersion, 2: kind}, 2: raw}. Only the
fields that this server reads are taken out of `raw`. Source: k8s.io/apimachinery
runtime/generated.proto, k8s.io/api generated.proto files.
"""

from __future__ import annotations

import base64
from typing import Any

from services.simulator.api.http.protobuf_shapes import SHAPES, Shape

Json = dict[str, Any]
Fields = dict[int, list[bytes | int]]

_MAGIC = b"k8s\x00"
_ATTRIBUTES = {
    1: "namespace",
    2: "verb",
    3: "group",
    4: "version",
    5: "resource",
    6: "subresource",
    7: "name",
}


class _MalformedError(ValueError):
    pass


def decode(body: bytes) -> Json | None:
    """Return the object, None if it is malformed or of an unknown kind."""
    if not body.startswith(_MAGIC):
        return None
    try:
        unknown = fields_of(body[len(_MAGIC) :])
        meta = fields_of(_bytes(unknown, 1))
        head: Json = {"apiVersion": _text(meta, 1), "kind": _text(meta, 2)}
        raw = fields_of(_bytes(unknown, 2))
        return _object(head, raw)
    except (_MalformedError, UnicodeDecodeError):
        return None


def _object(head: Json, raw: Fields) -> Json | None:
    kind = head["kind"]
    if kind in SHAPES:
        return {**head, **_message(raw, SHAPES[kind])}
    if kind == "Namespace":
        return {**head, "metadata": {"name": _text(fields_of(_bytes(raw, 1)), 1)}}
    if kind == "SelfSubjectReview":
        return head
    spec = fields_of(_bytes(raw, 2))
    if kind == "SelfSubjectAccessReview":
        given = fields_of(_bytes(spec, 1))
        attributes = {
            name: _text(given, number)
            for number, name in _ATTRIBUTES.items()
            if _text(given, number)
        }
        return {**head, "spec": {"resourceAttributes": attributes}}
    if kind == "SelfSubjectRulesReview":
        return {**head, "spec": {"namespace": _text(spec, 1)}}
    return None


def _message(fields: Fields, shape: Shape) -> Json:
    """The message's known fields that are set, as JSON."""
    made: Json = {}
    for number, (name, form) in shape.items():
        values = fields.get(number)
        if not values:
            continue
        if isinstance(form, dict):
            parts = [_message(fields_of(part), form) for part in values if isinstance(part, bytes)]
            made[name.removesuffix("[]")] = parts if name.endswith("[]") else parts[-1]
        else:
            value = _scalar(form, values)
            if value not in ("", None, [], {}):
                made[name] = value
    return made


def _scalar(form: str, values: list[bytes | int]) -> Any:
    if form in ("number", "flag"):
        number = values[-1] if isinstance(values[-1], int) else 0
        number = number - 2**64 if number >= 2**63 else number
        return bool(number) if form == "flag" else number
    parts = [part for part in values if isinstance(part, bytes)]
    if form == "texts":
        return [part.decode() for part in parts]
    if form == "map":
        return {_text(fields_of(part), 1): _text(fields_of(part), 2) for part in parts}
    if form == "bytes map":
        return {
            _text(fields_of(part), 1): base64.b64encode(_bytes(fields_of(part), 2)).decode()
            for part in parts
        }
    return parts[-1].decode() if parts else ""


def fields_of(data: bytes) -> Fields:
    """Yield the fields of one message: numbers as int, length-delimited fields as bytes. Raises
    ValueError if it is malformed.
    """
    fields: Fields = {}
    offset = 0
    while offset < len(data):
        tag, offset = _varint(data, offset)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, offset = _varint(data, offset)
            fields.setdefault(number, []).append(value)
        elif wire == 2:
            size, offset = _varint(data, offset)
            if offset + size > len(data):
                raise _MalformedError("a field is longer than its message")
            fields.setdefault(number, []).append(data[offset : offset + size])
            offset += size
        else:
            raise _MalformedError(f"wire type {wire} is not used by these messages")
    return fields


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while offset < len(data) and shift < 64:
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7
    raise _MalformedError("a number does not end")


def _bytes(fields: Fields, number: int) -> bytes:
    value = fields.get(number, [b""])[-1]
    return value if isinstance(value, bytes) else b""


def _text(fields: Fields, number: int) -> str:
    return _bytes(fields, number).decode()
