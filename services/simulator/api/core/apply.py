"""Server-side apply: field ownership, conflicts, and the fields that an apply removes. This module
does not know storage or requests.

Owned fields are in metadata.managedFields as on a real server (FieldsV1). Only apply managers are
tracked: a plain write removes changed fields from them. Lists of built-in kinds that merge by key
are owned element by element, all others are atomic (NodeResourceTopology's `zones`, for example).
Source: KEP-555 and the recordings of kube-apiserver 1.36.
"""

from __future__ import annotations

from typing import Any

import msgspec

from services.simulator.api.core.kinds import Kind
from services.simulator.api.core.refusals import Refusal, refuse
from services.simulator.api.core.strategic import MERGE_KEYS

Json = dict[str, Any]
# Steps of a path as FieldsV1 writes them: `f:spec`, `f:containers`, `k:{"name":"c"}`, `f:image`.
Path = tuple[str, ...]

_UNOWNED = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
    }
)


def with_owner(kind: Kind, applied: Json, manager: str, stamp: str) -> Json:
    """Return a new object that `manager` owns as a whole."""
    fields = _owned_by(kind, applied)
    managed = [_entry(kind, manager, fields, stamp)]
    return {**applied, "metadata": {**applied["metadata"], "managedFields": managed}}


def merged(
    kind: Kind, live: Json, applied: Json, manager: str, force: bool, stamp: str, subresource: str
) -> Json | Refusal:
    """Return the object after the apply, or 409 with every field that another manager owns with
    another value.
    """
    wanted = _owned_by(kind, applied)
    others = _owners(live, subresource, without=manager)
    clashes = [
        (name, path)
        for name, fields in others.items()
        for path in sorted(fields & wanted)
        if _value(live, path) != _value(applied, path)
    ]
    if clashes and not force:
        return _conflicts(clashes)
    owned = _owners(live, subresource).get(manager, frozenset())
    owned_by_others = frozenset().union(*others.values()) if others else frozenset()
    result = live
    for path in sorted(owned - wanted - owned_by_others, key=len, reverse=True):
        result = _without(result, path)
    result = _overlay(kind, result, applied)
    taken = frozenset(path for _, path in clashes)
    return _with_managed(kind, live, result, manager, wanted, taken, stamp, subresource)


def _with_managed(
    kind: Kind,
    live: Json,
    result: Json,
    manager: str,
    wanted: frozenset[Path],
    taken: frozenset[Path],
    stamp: str,
    subresource: str,
) -> Json:
    entries: list[Json] = []
    mine_stands = False
    for entry in live["metadata"].get("managedFields") or []:
        fields = _fields(entry)
        if entry.get("manager") == manager and entry.get("subresource", "") == subresource:
            mine_stands = fields == wanted
            if mine_stands:
                entries.append(entry)
        elif fields & taken:
            if fields - taken:
                entries.append({**entry, "fieldsV1": _tree(fields - taken)})
        else:
            entries.append(entry)
    if not mine_stands:
        entries.append(_entry(kind, manager, wanted, stamp, subresource))
    return {**result, "metadata": {**result["metadata"], "managedFields": entries}}


def released(kind: Kind, old: Json, new: Json) -> list[Json]:
    """Return managedFields after a plain write: a field whose value changed has no apply manager
    any more.

    Returns the list to store, empty if there is none. An apply brings its own list, which is kept.
    """
    old_fields, new_fields = (
        old["metadata"].get("managedFields"),
        new["metadata"].get("managedFields"),
    )
    if not old_fields or old_fields is not new_fields:
        return new_fields or []
    entries = []
    for entry in old_fields:
        fields = _fields(entry)
        kept = frozenset(path for path in fields if _value(old, path) == _value(new, path))
        if kept:
            entries.append(entry if kept == fields else {**entry, "fieldsV1": _tree(kept)})
    return entries


def _entry(
    kind: Kind, manager: str, fields: frozenset[Path], stamp: str, subresource: str = ""
) -> Json:
    entry: Json = {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": kind.api_version,
        "time": stamp,
    }
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": _tree(fields)}
    return {**entry, "subresource": subresource} if subresource else entry


def _owners(live: Json, subresource: str, without: str = "") -> dict[str, frozenset[Path]]:
    owners: dict[str, frozenset[Path]] = {}
    for entry in live["metadata"].get("managedFields") or []:
        name = entry.get("manager", "")
        if name == without and entry.get("subresource", "") == subresource:
            continue
        owners[name] = owners.get(name, frozenset()) | _fields(entry)
    return owners


def _conflicts(clashes: list[tuple[str, Path]]) -> Refusal:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{name}"',
            "field": _shown(path),
        }
        for name, path in clashes
    ]
    first = causes[0]
    if len(causes) == 1:
        text = f"Apply failed with 1 conflict: {first['message']}: {first['field']}"
    else:
        lines = "\n".join(f"- {cause['field']}" for cause in causes)
        text = (
            f'Apply failed with {len(causes)} conflicts: conflicts with "{clashes[0][0]}":\n{lines}'
        )
    return refuse(409, text, "Conflict", {"causes": causes})


def _shown(path: Path) -> str:
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        else:
            pairs = msgspec.json.decode(step[2:])
            text += "[" + ",".join(f'{key}="{value}"' for key, value in pairs.items()) + "]"
    return text


def _owned_by(kind: Kind, applied: Json) -> frozenset[Path]:
    paths: set[Path] = set()
    for key, value in applied.items():
        if key == "metadata":
            owned = {field: item for field, item in value.items() if field not in _UNOWNED}
            _collect(kind, owned, ("f:metadata",), paths)
        elif key not in ("kind", "apiVersion"):
            _collect_field(kind, key, value, (), paths)
    return frozenset(paths)


def _collect(kind: Kind, value: Json, base: Path, paths: set[Path]) -> None:
    for key, item in value.items():
        _collect_field(kind, key, item, base, paths)


def _collect_field(kind: Kind, key: str, value: Any, base: Path, paths: set[Path]) -> None:
    path = (*base, f"f:{key}")
    if isinstance(value, dict) and value:
        _collect(kind, value, path, paths)
    elif merge_key := _merge_key(kind, key, value):
        for item in value:
            step = _element(merge_key, item)
            paths.add((*path, step))
            _collect(kind, item, (*path, step), paths)
    else:
        paths.add(path)


def _merge_key(kind: Kind, field: str, value: Any) -> str:
    """Return the key of a list that merges element by element, empty for an atomic list."""
    if kind.custom or field not in MERGE_KEYS or not isinstance(value, list):
        return ""
    for key in MERGE_KEYS[field]:
        if value and all(isinstance(item, dict) and key in item for item in value):
            return key
    return ""


def _element(key: str, item: Json) -> str:
    return "k:" + msgspec.json.encode({key: item[key]}).decode()


def _tree(paths: frozenset[Path]) -> Json:
    root: Json = {}
    for path in sorted(paths):
        branch = root
        for step in path:
            branch = branch.setdefault(step, {})
        if path[-1].startswith("k:"):
            branch.setdefault(".", {})
    return root


def _fields(entry: Json) -> frozenset[Path]:
    paths: set[Path] = set()
    _leaves(entry.get("fieldsV1") or {}, (), paths)
    return frozenset(paths)


def _leaves(tree: Json, base: Path, paths: set[Path]) -> None:
    if not tree and base:
        paths.add(base)
    for step, below in tree.items():
        if step == ".":
            paths.add(base)
        else:
            _leaves(below, (*base, step), paths)


_ABSENT: Any = ("absent",)


def _value(obj: Any, path: Path) -> Any:
    """Return the value at a path. Of an owned list element this is only its key."""
    for step in path:
        if step.startswith("f:"):
            obj = obj.get(step[2:], _ABSENT) if isinstance(obj, dict) else _ABSENT
        else:
            obj = _find(obj, msgspec.json.decode(step[2:]))
    return True if path[-1].startswith("k:") and obj is not _ABSENT else obj


def _find(items: Any, pairs: Json) -> Any:
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict) and all(item.get(key) == value for key, value in pairs.items()):
            return item
    return _ABSENT


def _without(obj: Any, path: Path) -> Any:
    """Return the object without the value at a path."""
    step, rest = path[0], path[1:]
    if step.startswith("f:"):
        key = step[2:]
        if not isinstance(obj, dict) or key not in obj:
            return obj
        if rest:
            return {**obj, key: _without(obj[key], rest)}
        return {name: value for name, value in obj.items() if name != key}
    element = _find(obj, msgspec.json.decode(step[2:]))
    if element is _ABSENT:
        return obj
    if not rest:
        return [item for item in obj if item is not element]
    return [_without(item, rest) if item is element else item for item in obj]


def _overlay(kind: Kind, live: Any, applied: Json) -> Json:
    result = dict(live) if isinstance(live, dict) else {}
    for key, value in applied.items():
        if isinstance(value, dict):
            result[key] = _overlay(kind, result.get(key), value)
        elif merge_key := _merge_key(kind, key, value):
            result[key] = _overlay_list(kind, result.get(key) or [], value, merge_key)
        else:
            result[key] = value
    return result


def _overlay_list(kind: Kind, live: list[Json], applied: list[Json], key: str) -> list[Json]:
    wanted = {item[key]: item for item in applied}
    result = [
        _overlay(kind, item, wanted[item[key]]) if item.get(key) in wanted else item
        for item in live
    ]
    present = {item.get(key) for item in live}
    return [*result, *(item for item in applied if item[key] not in present)]
