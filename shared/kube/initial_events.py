"""A list as a watch sends it: initial events up to the mark that says they were all (KEP-3157,
`sendInitialEvents`).

A stream that ends without the mark is no list, whatever it showed: what is absent from it is not
known. Must not know transport.
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
    """The server does not know initial events: it sends others, or none. Ask for pages."""


class InitialEvents:
    """Events of one stream, gathered into parts. `version` is set by the mark."""

    def __init__(self, kind: Kind) -> None:
        self.version = ""
        self._kind = kind
        self._items: dict[str, Object] = {}
        self._gone: dict[str, Object] = {}

    def __len__(self) -> int:
        return len(self._items) + len(self._gone)

    def add(self, seen: WatchEvent) -> None:
        """One event. Raises NotServedError for a bookmark without the mark, KubeUnavailableError
        for what is no object.
        """
        metadata = seen.object.get("metadata")
        if seen.type == "BOOKMARK":
            marks = metadata.get("annotations") if isinstance(metadata, dict) else None
            version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
            if (
                not isinstance(marks, dict)
                or marks.get(END) != "true"
                or not isinstance(version, str)
                or not version
            ):
                raise NotServedError(
                    f"watch of {self._kind}: a bookmark without {END} among initial events"
                )
            self.version = version
            return
        if problem := item_problem(seen.object):
            raise KubeUnavailableError(f"watch of {self._kind}: an object that {problem}")
        assert isinstance(metadata, dict)
        uid = str(metadata["uid"])
        into, out_of = (
            (self._gone, self._items) if seen.type == "DELETED" else (self._items, self._gone)
        )
        out_of.pop(uid, None)
        into[uid] = seen.object

    def take(self) -> Listed:
        """What was gathered since the last part; the version is empty before the last."""
        part = Listed([*self._items.values()], self.version, [*self._gone.values()])
        self._items, self._gone = {}, {}
        return part
