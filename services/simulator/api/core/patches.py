"""JSON merge patch (RFC 7396) and JSON patch (RFC 6902) on plain values, never in place. Must not
know kinds.
"""

from __future__ import annotations

from typing import Any

# Operations accepted in one JSON patch (kube-apiserver's own limit).
MAX_STEPS = 10_000


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a patch of RFC 7396: null removes, objects merge, all other values replace."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merge_patch(result.get(key), value)
        else:
            result[key] = value
    return result


class PatchError(ValueError):
    """A JSON patch that is malformed or does not apply."""


def json_patch(target: Any, steps: Any) -> Any:
    """Apply a patch of RFC 6902. Raises PatchError if a step is malformed, its path does not exist,
    or a `test` fails.
    """
    if not isinstance(steps, list) or len(steps) > MAX_STEPS:
        raise PatchError(f"a JSON patch is a list of at most {MAX_STEPS} operations")
    for step in steps:
        target = _apply_step(target, step)
    return target


def _apply_step(target: Any, step: Any) -> Any:
    if not isinstance(step, dict) or not isinstance(step.get("path"), str):
        raise PatchError("an operation needs a path")
    operation, path = step.get("op"), _pointer(step["path"])
    if operation == "test":
        if _read(target, path) != step.get("value"):
            raise PatchError(f"testing path {step['path']} value failed")
        return target
    if operation in ("move", "copy"):
        source = _pointer(str(step.get("from", "")))
        value = _read(target, source)
        base = _write(target, source, None, "remove") if operation == "move" else target
        return _write(base, path, value, "add")
    if operation in ("add", "replace", "remove"):
        return _write(target, path, step.get("value"), operation)
    raise PatchError(f"unknown operation {operation!r}")


def _pointer(text: str) -> list[str]:
    if text == "":
        return []
    if not text.startswith("/"):
        raise PatchError(f"path {text!r} must start with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _read(target: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(target, dict) and part in target:
            target = target[part]
        elif isinstance(target, list):
            target = target[_index(part, len(target) - 1)]
        else:
            raise PatchError(f"path /{'/'.join(path)} does not exist")
    return target


def _index(part: str, highest: int) -> int:
    if not part.isdecimal() or int(part) > highest:
        raise PatchError(f"index {part!r} is out of range")
    return int(part)


def _write(target: Any, path: list[str], value: Any, operation: str) -> Any:
    if not path:
        return value if operation != "remove" else None
    head, rest = path[0], path[1:]
    if isinstance(target, dict):
        return _write_in_object(target, head, rest, value, operation)
    if isinstance(target, list):
        return _write_in_list(target, head, rest, value, operation)
    raise PatchError(f"path part {head!r} does not exist")


def _write_in_object(
    target: dict[str, Any], head: str, rest: list[str], value: Any, operation: str
) -> dict[str, Any]:
    result = dict(target)
    if not rest:
        if operation != "add" and head not in target:
            raise PatchError(f"path part {head!r} does not exist")
        if operation == "remove":
            del result[head]
        else:
            result[head] = value
        return result
    if head not in target:
        raise PatchError(f"path part {head!r} does not exist")
    result[head] = _write(target[head], rest, value, operation)
    return result


def _write_in_list(
    target: list[Any], head: str, rest: list[str], value: Any, operation: str
) -> list[Any]:
    result = list(target)
    if not rest and operation == "add":
        result.insert(len(result) if head == "-" else _index(head, len(result)), value)
        return result
    index = _index(head, len(result) - 1)
    if rest:
        result[index] = _write(result[index], rest, value, operation)
    elif operation == "remove":
        del result[index]
    else:
        result[index] = value
    return result
