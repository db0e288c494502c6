"""Strategic merge patch: lists of keyed elements merge by key. Must not know requests or storage.

Source: k8s.io/apimachinery strategicpatch, and the `patchMergeKey` tags of k8s.io/api core/v1.
Lists not named here are atomic (taints and tolerations among them).
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "conditions": ("type",),
    "addresses": ("type",),
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "port"),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
    "schedulingGates": ("name",),
    "resourceClaims": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "hostIPs": ("ip",),
    "resourceClaimStatuses": ("name",),
}
MERGED_SCALARS = frozenset({"finalizers", "podCIDRs"})


class StrategicError(ValueError):
    """A strategic merge patch that cannot be applied."""


def strategic_merge(target: Any, patch: Any) -> Any:
    """Return the object after the patch. Raises StrategicError if an element lacks its
    merge key.
    """
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return strategic_merge({}, {key: value for key, value in patch.items() if key != "$patch"})
    if patch.get("$patch") == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if not key.startswith("$"):
            _merge_field(result, key, value, patch.get(f"$setElementOrder/{key}"))
        elif key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            result[field] = [item for item in result.get(field) or [] if item not in value]
    _keep_only(result, patch)
    return result


def _keep_only(result: Json, patch: Json) -> None:
    """Apply `$retainKeys`: remove fields of the live object that the patch does not name."""
    keep = patch.get("$retainKeys")
    if isinstance(keep, list):
        for key in [key for key in result if key not in keep]:
            del result[key]


def _merge_field(result: Json, key: str, value: Any, order: Any) -> None:
    old = result.get(key)
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        result[key] = strategic_merge(old, value)
    elif isinstance(value, list) and key in MERGED_SCALARS:
        result[key] = [*(old or []), *(item for item in value if item not in (old or []))]
    elif isinstance(value, list) and key in MERGE_KEYS and _is_keyed(value):
        merged = _merge_keyed(
            old if isinstance(old, list) else [], value, _key_for(key, value, old), order
        )
        result[key] = merged
    else:
        result[key] = value


def _is_keyed(items: list[Any]) -> bool:
    return all(isinstance(item, dict) for item in items)


def _key_for(field: str, patch: list[Json], old: Any) -> str:
    """Return the merge key of a list: for `ports` containerPort in containers, and port in
    services.
    """
    keys = MERGE_KEYS[field]
    for item in [*patch, *(old if isinstance(old, list) else [])]:
        for key in keys:
            if key in item:
                return key
    return keys[0]


def _merge_keyed(old: list[Any], patch: list[Json], key: str, order: Any) -> list[Any]:
    if any(item.get("$patch") == "replace" for item in patch):
        return [strategic_merge({}, item) for item in patch if "$patch" not in item]
    deleted = {item.get(key) for item in patch if item.get("$patch") == "delete"}
    patched: dict[Any, Json] = {}
    for item in patch:
        if "$patch" in item:
            continue
        if key not in item:
            raise StrategicError(f"map: {item} does not contain declared merge key: {key}")
        patched[item[key]] = item
    by_key = {item.get(key): item for item in old if isinstance(item, dict)}
    results = [strategic_merge(by_key.get(name, {}), item) for name, item in patched.items()]
    untouched = [
        item for item in old if item.get(key) not in patched and item.get(key) not in deleted
    ]
    merged = _interleave(untouched, results, [item.get(key) for item in old], key)
    return _ordered(merged, order, key)


def _interleave(
    untouched: list[Json], patched: list[Json], positions: list[Any], key: str
) -> list[Json]:
    """Keep the old order of old elements. A new element goes before untouched ones."""
    place = {name: index for index, name in reversed(list(enumerate(positions)))}
    result: list[Json] = []
    old_index, right = 0, 0
    while old_index < len(untouched) and right < len(patched):
        mine, theirs = place.get(untouched[old_index].get(key)), place.get(patched[right].get(key))
        if mine is not None and theirs is not None and mine < theirs:
            result.append(untouched[old_index])
            old_index += 1
        else:
            result.append(patched[right])
            right += 1
    return [*result, *untouched[old_index:], *patched[right:]]


def _ordered(items: list[Json], order: Any, key: str) -> list[Json]:
    """Apply `$setElementOrder`: named elements in its order, the others after them."""
    if not isinstance(order, list):
        return items
    names = [item.get(key) if isinstance(item, dict) else item for item in order]
    rank = {name: index for index, name in enumerate(names)}
    return sorted(items, key=lambda item: rank.get(item.get(key), len(rank)))
