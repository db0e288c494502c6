"""Which object or collection a path means. Must not know methods, bodies or storage."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from services.simulator.api.core import kinds
from services.simulator.api.core.kinds import Kind


class Target(msgspec.Struct, frozen=True):
    """The target of a path: a collection (no `name`), an object, or a subresource. `watching` is
    set for the old /watch/ prefix.
    """

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watching: bool = False


class Virtual(msgspec.Struct, frozen=True):
    """A resource that can only be posted to: reviews and the old bindings collection."""

    resource: str
    namespace: str = ""


class Missing(msgspec.Struct, frozen=True):
    """The path has no resource. `status` is set if group and version exist: the answer is then a
    Status and not plain text.
    """

    status: bool


Place = Target | Virtual | Missing
_VIRTUAL = {
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("", "bindings"),
}


@lru_cache(maxsize=4096)
def place_of(path: str) -> Place | None:
    """Return the target of a path under /api or /apis, None for other paths (discovery, health)."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        return _within("", parts[1], parts[2:])
    if parts[0] == "apis" and len(parts) > 3:
        return _within(parts[1], parts[2], parts[3:])
    return None


def _within(group: str, version: str, rest: list[str]) -> Place:
    if (group, version) not in kinds.GROUP_VERSIONS:
        return Missing(False)
    watching = rest[0] == "watch" and len(rest) > 1
    if watching:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in kinds.NAMESPACES.subresources:
        namespace, rest = rest[1], rest[2:]
    if (group, rest[0]) in _VIRTUAL and len(rest) == 1:
        return Virtual(rest[0], namespace)
    kind = kinds.BY_PATH.get((group, version, rest[0]))
    if kind is None or len(rest) > 3 or "" in rest or bool(namespace) > kind.namespaced:
        return Missing(True)
    name, sub = (rest[1] if len(rest) > 1 else ""), (rest[2] if len(rest) > 2 else "")
    if (name and kind.namespaced and not namespace) or (
        sub and sub not in kind.subresources and not kind.custom
    ):
        return Missing(True)
    return Target(kind, namespace, name, sub, watching)
