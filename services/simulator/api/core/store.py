"""The objects and their history: one counter of versions, a shelf a resource. Must not know HTTP,
clocks or rules of kinds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

Json = dict[str, Any]
# (namespace, name). The namespace is empty for cluster-scoped objects.
Key = tuple[str, str]

_encode = msgspec.json.Encoder().encode


class Entry:
    """One version of one object. `obj` carries neither kind nor apiVersion and must never be
    changed in place.
    """

    __slots__ = ("_body", "key", "obj", "version")

    def __init__(self, key: Key, obj: Json, version: int) -> None:
        self.key = key
        self.obj = obj
        self.version = version
        self._body: bytes | None = None

    @property
    def body(self) -> bytes:
        """The object as JSON bytes (encoded once a version)."""
        if self._body is None:
            self._body = _encode(self.obj)
        return self._body

    @property
    def name(self) -> str:
        return self.key[1]

    @property
    def labels(self) -> dict[str, str]:
        return self.obj["metadata"].get("labels") or {}

    @property
    def uid(self) -> str:
        return str(self.obj["metadata"]["uid"])


class Change:
    """One step of history: `kind` is ADDED, MODIFIED or DELETED; `old` the version before it, if
    any.
    """

    __slots__ = ("entry", "kind", "lines", "old")

    def __init__(self, kind: str, entry: Entry, old: Entry | None) -> None:
        self.kind = kind
        self.entry = entry
        self.old = old
        self.lines: dict[str, bytes] = {}
        """Encoded watch lines by form, filled by whoever serves watches, so that each is made once.
        """

    @property
    def version(self) -> int:
        return self.entry.version


class Gone(msgspec.Struct, frozen=True):
    """The requested version is older than the history. `oldest` is the oldest version that it
    serves.
    """

    oldest: int


Listener = Callable[[Change], None]


class Shelf:
    """The live objects of one resource, its newest changes, and its listeners."""

    __slots__ = ("capacity", "floor", "history", "listeners", "objects")

    def __init__(self, history_limit: int, capacity: int, floor: int) -> None:
        self.objects: dict[Key, Entry] = {}
        self.history: deque[Change] = deque(maxlen=history_limit)
        self.listeners: list[Listener] = []
        self.capacity = capacity
        self.floor = floor
        """Version of the newest change that is no longer in `history`."""


class Store:
    """All shelves under one version counter. Every write makes exactly one version and one change.

    `history_limit` bounds the changes kept of each resource. `capacities` bounds the objects of a
    resource: the oldest are dropped first, as Events expire on a real server.
    """

    def __init__(
        self, history_limit: int = 8192, capacities: dict[str, int] | None = None, version: int = 0
    ) -> None:
        self.version = version
        self._history_limit = history_limit
        self._capacities = capacities or {}
        self._shelves: dict[str, Shelf] = {}

    def shelf(self, storage: str) -> Shelf:
        """The shelf of a resource, made on first use."""
        existing = self._shelves.get(storage)
        if existing is None:
            existing = Shelf(self._history_limit, self._capacities.get(storage, 0), self.version)
            self._shelves[storage] = existing
        return existing

    def get(self, storage: str, namespace: str, name: str) -> Entry | None:
        """The live object, or None."""
        return self.shelf(storage).objects.get((namespace, name))

    def put(self, storage: str, key: Key, obj: Json) -> Entry:
        """Store a new version of an object. `obj` is copied at its top and metadata, never
        changed.
        """
        shelf = self.shelf(storage)
        entry = self._stamp(key, obj)
        old = shelf.objects.get(key)
        shelf.objects[key] = entry
        self._record(shelf, Change("MODIFIED" if old else "ADDED", entry, old))
        if shelf.capacity and len(shelf.objects) > shelf.capacity:
            self.erase(storage, next(iter(shelf.objects)))
        return entry

    def erase(self, storage: str, key: Key) -> Entry:
        """Delete an object. Its last version gets a version number of its own. Raises KeyError if
        it does not exist.
        """
        shelf = self.shelf(storage)
        old = shelf.objects.pop(key)
        entry = self._stamp(key, old.obj)
        self._record(shelf, Change("DELETED", entry, old))
        return entry

    def entries(self, storage: str, namespace: str = "") -> list[Entry]:
        """Live objects in key order; an empty namespace means all."""
        return _in_order(self.shelf(storage).objects.values(), namespace)

    def entries_at(self, storage: str, namespace: str, version: int) -> list[Entry] | Gone:
        """Return the objects as of `version`, by walking the history backwards."""
        shelf = self.shelf(storage)
        if version < shelf.floor:
            return Gone(shelf.floor)
        objects = dict(shelf.objects)
        for change in reversed(shelf.history):
            if change.version <= version:
                break
            if change.old is None:
                objects.pop(change.entry.key, None)
            else:
                objects[change.entry.key] = change.old
        return _in_order(objects.values(), namespace)

    def changes_after(self, storage: str, version: int) -> list[Change] | Gone:
        """Changes newer than `version`, oldest first."""
        shelf = self.shelf(storage)
        if version < shelf.floor:
            return Gone(shelf.floor)
        newer: list[Change] = []
        for change in reversed(shelf.history):
            if change.version <= version:
                break
            newer.append(change)
        newer.reverse()
        return newer

    def load(self, storage: str, obj: Json) -> None:
        """Restore an object at a restart, without a version or a change."""
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        version = int(metadata["resourceVersion"])
        self.version = max(self.version, version)
        shelf = self.shelf(storage)
        shelf.objects.pop(key, None)
        shelf.objects[key] = Entry(key, obj, version)
        shelf.floor = self.version

    def unload(self, storage: str, key: Key, version: int) -> None:
        """Remove an object at a restart that was deleted at `version`."""
        self.version = max(self.version, version)
        shelf = self.shelf(storage)
        shelf.objects.pop(key, None)
        shelf.floor = self.version

    def everything(self) -> list[tuple[str, Entry]]:
        """Return all objects with their shelf, in the order of their creation."""
        return [
            (name, entry)
            for name, shelf in sorted(self._shelves.items())
            for entry in shelf.objects.values()
        ]

    def listen(self, storage: str, listener: Listener) -> Callable[[], None]:
        """Call `listener` at each change of a resource, in order; returns the call that stops
        it.
        """
        listeners = self.shelf(storage).listeners
        listeners.append(listener)
        return lambda: listeners.remove(listener) if listener in listeners else None

    def _stamp(self, key: Key, obj: Json) -> Entry:
        self.version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.version)}
        return Entry(key, {**obj, "metadata": metadata}, self.version)

    def _record(self, shelf: Shelf, change: Change) -> None:
        history = shelf.history
        if len(history) == history.maxlen:
            shelf.floor = history[0].version
        history.append(change)
        for listener in tuple(shelf.listeners):
            listener(change)


def _in_order(entries: Iterable[Entry], namespace: str) -> list[Entry]:
    chosen = [entry for entry in entries if not namespace or entry.key[0] == namespace]
    chosen.sort(key=_key_of)
    return chosen


def _key_of(entry: Entry) -> Key:
    return entry.key
