"""The cluster's objects for code in the same process: the store with a clock, uids, a journal and
subscriptions.

Simulated kubelets and the workload player use it directly; the HTTP server uses it for everything
else. All calls must come from one event loop's thread. This module does not know HTTP.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from services.simulator.api.core import kinds
from services.simulator.api.core.binding import bind
from services.simulator.api.core.eviction import evict, refresh_budgets
from services.simulator.api.core.kinds import Kind
from services.simulator.api.core.reads import seen
from services.simulator.api.core.refusals import Refusal, not_found
from services.simulator.api.core.removal import Deleted, DeleteOptions, delete
from services.simulator.api.core.selectors import Selection, selection
from services.simulator.api.core.store import Change, Entry, Store
from services.simulator.api.core.writes import (
    Moment,
    Options,
    Written,
    create,
    patch,
    replace,
    update,
)
from services.simulator.api.journal import Journal
from services.simulator.api.settings import ApiSettings

Json = dict[str, Any]

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class WatchEvent(msgspec.Struct, frozen=True):
    """One event of a watch: ADDED, MODIFIED or DELETED, and the object (no kind, no apiVersion;
    never change it).
    """

    type: str
    entry: Entry

    @property
    def obj(self) -> Json:
        return self.entry.obj


class WatchLaggedError(RuntimeError):
    """A watcher fell too far behind. It must list and watch again."""


class ClusterStore:
    """Objects of a simulated cluster.

    Methods take a resource (`"pods"` or a `Kind`) and return an `Entry` or a `Refusal` (with
    `.code` and `.body`). They never raise for a client's mistake. With `journal_path` a restart
    resumes from the state of the last process.
    """

    def __init__(
        self,
        settings: ApiSettings | None = None,
        journal_path: Path | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        seed: int | None = None,
    ) -> None:
        self.settings = settings or ApiSettings()
        self.core = Store(self.settings.history_limit, {"events": self.settings.events_kept})
        self._clock = clock
        self._random = random.Random(seed)
        self._journal = Journal(journal_path) if journal_path else None
        if self._journal:
            self._journal.restore(self.core)
        for kind in kinds.BY_STORAGE.values():
            self.core.listen(kind.storage, self._recorder(kind.storage))
        self._make_namespaces()
        self.core.listen("pods", self._pod_changed)
        self.core.listen("poddisruptionbudgets", self._budget_changed)

    def moment(self) -> Moment:
        """Return the current time, with a new uid and name suffix."""
        suffix = "".join(self._random.choices(_SUFFIX_LETTERS, k=5))
        return Moment(
            self._clock(), str(uuid.UUID(int=self._random.getrandbits(128), version=4)), suffix
        )

    @property
    def version(self) -> int:
        """The newest resourceVersion."""
        return self.core.version

    def create(
        self, kind: Kind | str, obj: Json, namespace: str = "", options: Options | None = None
    ) -> Entry | Refusal:
        """POST. `namespace` defaults to the object's own."""
        resource_kind = kind_of(kind)
        home = (
            namespace
            or (obj.get("metadata") or {}).get("namespace")
            or ("default" if resource_kind.namespaced else "")
        )
        options = options or Options(taint_nodes=self.settings.taint_new_nodes)
        return _entry(
            create(
                self.core,
                resource_kind,
                home if resource_kind.namespaced else "",
                obj,
                options,
                self.moment(),
            )
        )

    def get(self, kind: Kind | str, name: str, namespace: str = "") -> Entry | None:
        """GET. Return None if the object does not exist."""
        return self.core.get(kind_of(kind).storage, namespace, name)

    def list(
        self,
        kind: Kind | str,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[Entry]:
        """LIST. Raises ValueError for a bad selector."""
        resource_kind = kind_of(kind)
        chosen = _chosen(resource_kind, namespace, label_selector, field_selector)
        return [
            entry
            for entry in self.core.entries(resource_kind.storage, namespace)
            if chosen.takes(entry)
        ]

    def update(self, kind: Kind | str, obj: Json, subresource: str = "") -> Entry | Refusal:
        """Handle PUT. With metadata.resourceVersion a concurrent change is refused (409)."""
        metadata, resource_kind = obj["metadata"], kind_of(kind)
        home, name = metadata.get("namespace", ""), metadata["name"]
        return _entry(
            update(self.core, resource_kind, home, name, obj, subresource, Options(), self.moment())
        )

    def patch(
        self,
        kind: Kind | str,
        name: str,
        namespace: str,
        body: Any,
        *,
        form: str = "strategic",
        subresource: str = "",
    ) -> Entry | Refusal:
        """PATCH; `form` is strategic, merge or json."""
        resource_kind = kind_of(kind)
        written = patch(
            self.core,
            resource_kind,
            namespace,
            name,
            body,
            form,
            subresource,
            Options(),
            self.moment(),
        )
        return _entry(written)

    def patch_status(
        self, kind: Kind | str, name: str, namespace: str, status: Json, uid: str = ""
    ) -> Entry | Refusal:
        """Apply a strategic merge patch to /status, as a kubelet does. With a `uid`, an object of
        the same name with another uid is not changed.
        """
        body: Json = {"status": status}
        if uid:
            body["metadata"] = {"uid": uid}
        return self.patch(kind, name, namespace, body, subresource="status")

    def replace_status(
        self, kind: Kind | str, name: str, namespace: str, status: Json, uid: str = ""
    ) -> Entry | Refusal:
        """Replace the whole status, its lists included."""
        resource_kind = kind_of(kind)
        old = self.core.get(resource_kind.storage, namespace, name)
        if old is None:
            return not_found(resource_kind, name)
        metadata = {**old.obj["metadata"], "uid": uid or old.uid}
        new = {**old.obj, "metadata": metadata, "status": status}
        return _entry(replace(self.core, resource_kind, old, new, "status", Options()))

    def bind(self, name: str, namespace: str, node: str, uid: str = "") -> Entry | Refusal:
        """Bind a pod to a node."""
        body = {
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"kind": "Node", "name": node},
        }
        return bind(self.core, namespace, name, body, False, self.moment())

    def evict(self, name: str, namespace: str) -> Entry | Refusal:
        """Evict a pod if its disruption budgets allow it."""
        return evict(self.core, namespace, name, {}, DeleteOptions(), self.moment())

    def delete(
        self,
        kind: Kind | str,
        name: str,
        namespace: str = "",
        *,
        grace_s: int | None = None,
        uid: str = "",
    ) -> Deleted | Refusal:
        """DELETE. A kubelet ends the deletion of a terminating pod with `grace_s=0` and the pod's
        uid.
        """
        options = DeleteOptions(grace_s, uid)
        return delete(self.core, kind_of(kind), namespace, name, options, self.moment())

    def listen(self, kind: Kind | str, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` at each change, at once and in order. Returns a function that stops it.

        The listener must neither raise nor write: a later listener would receive a newer change
        before the older one.
        """
        return self.core.listen(kind_of(kind).storage, listener)

    async def watch(
        self,
        kind: Kind | str,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        initial: bool = True,
    ) -> AsyncIterator[WatchEvent]:
        """Yield the objects as ADDED (unless `initial` is False), then every change without end.
        Raises WatchLaggedError if too many changes wait.
        """
        resource_kind = kind_of(kind)
        chosen = _chosen(resource_kind, namespace, label_selector, field_selector)
        waiting: deque[WatchEvent] = deque()
        wake = asyncio.Event()

        def on_change(change: Change) -> None:
            met = seen(chosen, change)
            if met is not None:
                waiting.append(WatchEvent(*met))
                wake.set()

        if initial:
            waiting.extend(
                WatchEvent("ADDED", entry)
                for entry in self.core.entries(resource_kind.storage)
                if chosen.takes(entry)
            )
        stop = self.core.listen(resource_kind.storage, on_change)
        try:
            while True:
                while waiting:
                    if len(waiting) > self.settings.watch_backlog_lines:
                        raise WatchLaggedError(
                            f"{len(waiting)} {resource_kind.resource} events wait; list and "
                            "watch again"
                        )
                    yield waiting.popleft()
                wake.clear()
                await wake.wait()
        finally:
            stop()

    def close(self) -> None:
        """Close the journal."""
        if self._journal:
            self._journal.close()
            self._journal = None

    def _recorder(self, storage: str) -> Callable[[Change], None]:
        def record(change: Change) -> None:
            if self._journal is not None:
                self._journal.append(storage, change)
                if self._journal.due:
                    self._journal.compact(self.core)

        return record

    def _make_namespaces(self) -> None:
        for name in _FIRST_NAMESPACES:
            if self.get("namespaces", name) is None:
                self.create("namespaces", {"metadata": {"name": name}})

    def _pod_changed(self, change: Change) -> None:
        if self.core.shelf("poddisruptionbudgets").objects:
            refresh_budgets(self.core, change.entry.key[0], self.moment().stamp)

    def _budget_changed(self, change: Change) -> None:
        if change.kind == "ADDED" or (
            change.old and change.old.obj.get("spec") != change.entry.obj.get("spec")
        ):
            refresh_budgets(self.core, change.entry.key[0], self.moment().stamp)


def kind_of(kind: Kind | str) -> Kind:
    """Return the `Kind` of a resource name. Raises KeyError with all names."""
    if isinstance(kind, Kind):
        return kind
    if kind not in kinds.BY_STORAGE:
        raise KeyError(f"no resource {kind!r}; there are: {', '.join(sorted(kinds.BY_STORAGE))}")
    return kinds.BY_STORAGE[kind]


def _entry(written: Written | Refusal) -> Entry | Refusal:
    return written if isinstance(written, Refusal) else written.entry


def _chosen(kind: Kind, namespace: str, label_selector: str, field_selector: str) -> Selection:
    chosen = selection(kind, namespace, label_selector, field_selector)
    if isinstance(chosen, Refusal):
        raise ValueError(chosen.body["message"])
    return chosen
