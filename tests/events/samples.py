"""One event of a type with every field set to another value than its default, and one with the
required fields only.

Built from the struct's own declaration, so that a new field is sampled without a change here.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect as look


def full(struct: type[msgspec.Struct]) -> Any:
    """Return an event with every field set."""
    return msgspec.convert(_struct(look.type_info(struct), everything=True), struct)


def minimal(struct: type[msgspec.Struct]) -> Any:
    """Return an event with required fields only."""
    return msgspec.convert(_struct(look.type_info(struct), everything=False), struct)


def _struct(info: Any, everything: bool) -> dict[str, Any]:
    fields = [field for field in info.fields if everything or field.required]
    values = {field.encode_name: _value(field.type, field.name, field.default) for field in fields}
    return {info.tag_field: info.tag, **values} if info.tag_field else values


def _value(info: Any, name: str, default: Any) -> Any:
    for kind, make in _MAKERS:
        if isinstance(info, kind):
            return make(info, name, default)
    raise TypeError(f"no sample for field {name} of {info}; teach tests/events/samples.py its type")


def _union(info: look.UnionType, name: str, default: Any) -> Any:
    return _value(
        next(variant for variant in info.types if not isinstance(variant, look.NoneType)),
        name,
        default,
    )


_MAKERS: list[tuple[Any, Any]] = [
    (look.BoolType, lambda info, name, default: default is not True),
    (look.IntType, lambda info, name, default: 3 + len(name)),
    (look.StrType, lambda info, name, default: f"some-{name}"),
    (look.LiteralType, lambda info, name, default: info.values[-1]),
    ((look.AnyType, look.CustomType), lambda info, name, default: f"any-{name}"),
    (look.StructType, lambda info, name, default: _struct(info, everything=True)),
    (look.UnionType, _union),
    (look.VarTupleType, lambda info, name, default: [_value(info.item_type, name, None)]),
    (look.ListType, lambda info, name, default: [_value(info.item_type, name, None)]),
    (
        look.TupleType,
        lambda info, name, default: [_value(item, name, None) for item in info.item_types],
    ),
    (
        look.DictType,
        lambda info, name, default: {
            _value(info.key_type, name, None): _value(info.value_type, name, None)
        },
    ),
]


def plain(value: Any) -> Any:
    """Return an event as plain JSON values with all fields, defaults included."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(inner) for name, inner in msgspec.structs.asdict(value).items()}
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value
