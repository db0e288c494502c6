"""A list that comes as a watch: initial events, then a bookmark that marks their end (KEP-3157,
`sendInitialEvents`).

A stream that ends without the bookmark is no list, whatever it contained: the objects that it lacks
may exist.
"""

from __future__ import annotations

from shared.kube.lists import item_problem
from shared.kube.port import Kind, KubeUnavailableError, Listed, Object, WatchEvent

END = "k8s.io/initial-events-end"
PARAMS = {
    "watch": "true",
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


class NotServedError(KubeUnavailableError):
    """The server does not support initial events. List in pages instead."""


class InitialEvents:
    """Events of one stream, gathered into parts. The final bookmark sets `version`."""

    def __init__(self, kind: Kind) -> None:
        self.version = ""
        self._kind = kind
        self._items: dict[str, Object] = {}
        self._deleted: dict[str, Object] = {}

    def __len__(self) -> int:
        return len(self._items) + len(self._deleted)

    def add(self, event: WatchEvent) -> None:
        """Add one event. Raises NotServedError for another bookmark, KubeUnavailableError for an
        object without name or uid."""
        metadata = event.object.get("metadata")
        if event.type == "BOOKMARK":
            annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
            version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
            if (
                not isinstance(annotations, dict)
                or annotations.get(END) != "true"
                or not isinstance(version, str)
                or not version
            ):
                raise NotServedError(
                    f"watch of {self._kind}: a bookmark without {END} among initial events"
                )
            self.version = version
            return
        if problem := item_problem(event.object):
            raise KubeUnavailableError(f"watch of {self._kind}: an object that {problem}")
        assert isinstance(metadata, dict)
        uid = str(metadata["uid"])
        self._items.pop(uid, None)
        self._deleted.pop(uid, None)
        (self._deleted if event.type == "DELETED" else self._items)[uid] = event.object

    def take(self) -> Listed:
        """Return what was gathered since the last part. Only the last part has a version."""
        part = Listed([*self._items.values()], self.version, [*self._deleted.values()])
        self._items, self._deleted = {}, {}
        return part
