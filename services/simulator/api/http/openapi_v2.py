"""A tiny OpenAPI v2 document in protobuf, which kubectl up to 1.28 asks for before create and
apply. Nothing else.

Each kind has one PATCH operation with a `fieldValidation` query parameter, as in the v3 document.
Message and field numbers are those of gnostic's openapiv2/OpenAPIv2.proto.
"""

from __future__ import annotations

from functools import cache

from services.simulator.api.core import kinds
from services.simulator.api.core.discovery import VERSION, object_path
from services.simulator.api.core.kinds import Kind

CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


@cache
def document() -> bytes:
    """Document {1: swagger, 2: info, 8: paths {2: NamedPathItem {1: name, 2: PathItem {8:
    patch}}}}.
    """
    paths = b"".join(
        _field(2, _named(object_path(kind), _field(8, _operation(kind)))) for kind in kinds.KINDS
    )
    info = _text(1, "Topolog simulated cluster") + _text(2, str(VERSION["gitVersion"]))
    return _text(1, "2.0") + _field(2, info) + _field(8, paths)


def _operation(kind: Kind) -> bytes:
    """Operation {8: ParametersItem {1: Parameter {2: NonBodyParameter {3: query}}}, 9: responses,
    13: extension}.
    """
    query = _text(2, "query") + _text(4, "fieldValidation") + _text(6, "string")
    parameter = _field(1, _field(2, _field(3, query)))
    names = f'group: "{kind.group}"\nkind: {kind.kind}\nversion: {kind.version}\n'
    extension = _named("x-kubernetes-group-version-kind", _text(2, names))
    return _field(8, parameter) + _field(9, b"") + _field(13, extension)


def _named(name: str, value: bytes) -> bytes:
    return _text(1, name) + _field(2, value)


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
