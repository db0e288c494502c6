"""Watch streams: one line of JSON per event, encoded once for all watches of the same form. This
module does not know rules of kinds.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.core import kinds, tables
from services.simulator.api.core.kinds import Kind
from services.simulator.api.core.reads import Beginning, beginning, seen
from services.simulator.api.core.refusals import Refusal, expired
from services.simulator.api.core.selectors import Selection
from services.simulator.api.core.store import Change, Entry, Gone
from services.simulator.api.core.views import watch_line
from services.simulator.api.http.negotiate import Form
from services.simulator.api.http.objects import chosen_by, read_options
from services.simulator.api.http.request import Receive, Request, Send
from services.simulator.api.http.responses import refusal_answer, send_answer
from services.simulator.api.http.routes import Target

Json = dict[str, Any]

_HEADERS = [(b"cache-control", b"no-cache, private"), (b"content-type", b"application/json")]
_LINES_A_CHUNK = 256


class Watch:
    """One open watch: lines that wait to be sent, and why it ends."""

    def __init__(
        self, store: ClusterStore, target: Target, request: Request, form: Form, chosen: Selection
    ) -> None:
        self.kind: Kind = target.kind
        self.lines: list[bytes] = []
        self.wake = asyncio.Event()
        self.ended = False
        self.bookmark_due = False
        self._store = store
        self._form = form
        self._chosen = chosen
        self._include = request.query.get("includeObject", "Metadata")
        self._headed = False
        self._after = 0
        self._limit = store.settings.watch_backlog_lines
        self._plain = form.shape == "object" and target.kind is not kinds.EVENTS_V1
        self._whole = not chosen.selective and not chosen.namespace
        self._mark = "v1" if self._plain else ""

    def begin(self, start: Beginning, *, marked: bool) -> None:
        """Queue what the watch starts with."""
        self._after = start.version
        for entry in start.entries:
            self._add("ADDED", entry, None)
        for change in start.changes:
            self._queue(change)
        if marked:
            self.lines.append(self._bookmark({"k8s.io/initial-events-end": "true"}))
        self.wake.set()

    def on_change(self, change: Change) -> None:
        """Called by the store at every change of the resource."""
        if change.version <= self._after or self.ended:
            return
        if len(self.lines) >= self._limit:
            self.lines = [_error_line(expired(f"the watch is {self._limit} events behind"))]
            self.end()
            return
        self._queue(change)

    def _queue(self, change: Change) -> None:
        if self._whole:
            self._add(change.kind, change.entry, change)
            return
        met = seen(self._chosen, change)
        if met is not None:
            self._add(met[0], met[1], change if met[1] is change.entry else None)

    def _add(self, kind: str, entry: Entry, change: Change | None) -> None:
        if not self._plain:
            self.lines.append(self._shaped(kind, entry))
        elif change is None:
            self.lines.append(watch_line(self.kind, kind, entry))
        else:
            line = change.lines.get(kind)
            if line is None:
                line = change.lines[kind] = watch_line(self.kind, kind, entry)
            self.lines.append(line)
        self.wake.set()

    def _shaped(self, kind: str, entry: Entry) -> bytes:
        if self._form.shape == "Table":
            metadata = {"resourceVersion": entry.obj["metadata"]["resourceVersion"]}
            current_time = self._store.moment().now
            obj = tables.table(
                self.kind, [entry], current_time, self._include, metadata, headed=not self._headed
            )
            self._headed = True
        elif self._form.shape == "PartialObjectMetadata":
            obj = tables.partial(entry)
        else:
            return watch_line(self.kind, kind, entry)
        return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"

    def bookmark(self) -> None:
        """Queue an ordinary bookmark."""
        self.bookmark_due = False
        self.lines.append(self._bookmark(None))

    def _bookmark(self, annotations: dict[str, str] | None) -> bytes:
        metadata: Json = {"resourceVersion": str(max(self._store.version, self._after))}
        if annotations:
            metadata["annotations"] = annotations
        obj: Json = {
            "kind": self.kind.kind,
            "apiVersion": self.kind.api_version,
            "metadata": metadata,
        }
        if self._form.shape == "Table":
            obj = tables.table(
                self.kind,
                [],
                self._store.moment().now,
                self._include,
                metadata,
                headed=not self._headed,
            )
            obj["rows"] = [
                {
                    "cells": [],
                    "object": {
                        "kind": "PartialObjectMetadata",
                        "apiVersion": "meta.k8s.io/v1",
                        "metadata": metadata,
                    },
                }
            ]
            self._headed = True
        elif self.kind is kinds.PODS:
            obj |= {"spec": {"containers": None}, "status": {}}
        return msgspec.json.encode({"type": "BOOKMARK", "object": obj}) + b"\n"

    def end(self) -> None:
        """Send the waiting lines, then close."""
        self.ended = True
        self.wake.set()


async def serve_watch(
    store: ClusterStore,
    target: Target,
    request: Request,
    form: Form,
    receive: Receive,
    send: Send,
    open_watches: set[Watch],
) -> None:
    """Answer a watch until its timeout, or until the client or the server ends it."""
    chosen = chosen_by(target, request)
    if isinstance(chosen, Refusal):
        return await send_answer(send, refusal_answer(chosen))
    start = beginning(store.core, target.kind, chosen, read_options(request))
    if isinstance(start, Refusal):
        return await send_answer(send, refusal_answer(start))
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    if isinstance(start, Gone):
        text = f"too old resource version: {request.query.get('resourceVersion')} ({start.oldest})"
        return await send({"type": "http.response.body", "body": _error_line(expired(text))})
    watch = Watch(store, target, request, form, chosen)
    bookmarks = request.flag("allowWatchBookmarks")
    watch.begin(start, marked=bookmarks and request.flag("sendInitialEvents"))
    stop = store.listen(target.kind, watch.on_change)
    open_watches.add(watch)
    leaving = asyncio.ensure_future(_until_gone(receive, watch))
    timers = _timers(store, request, watch, bookmarks)
    try:
        await _pump(watch, send)
    finally:
        stop()
        open_watches.discard(watch)
        leaving.cancel()
        timers.cancel()
    return None


def _error_line(refusal: Refusal) -> bytes:
    return msgspec.json.encode({"type": "ERROR", "object": refusal.body}) + b"\n"


async def _pump(watch: Watch, send: Send) -> None:
    """Send waiting lines in chunks. Lines that arrive while a chunk is being sent form the next
    chunk.
    """
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    while True:
        while watch.lines:
            chunk = watch.lines[:_LINES_A_CHUNK]
            del watch.lines[:_LINES_A_CHUNK]
            await send({"type": "http.response.body", "body": b"".join(chunk), "more_body": True})
        if watch.ended:
            break
        if watch.bookmark_due:
            watch.bookmark()
            continue
        watch.wake.clear()
        await watch.wake.wait()
    await send({"type": "http.response.body", "body": b""})


async def _until_gone(receive: Receive, watch: Watch) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            watch.lines.clear()
            watch.end()
            return


class _Timers:
    """The end of a watch and its bookmarks."""

    def __init__(self, watch: Watch, end_s: float, bookmark_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._watch = watch
        self._bookmark_s = bookmark_s
        self._handles = [self._loop.call_later(end_s, watch.end)]
        if bookmark_s:
            self._handles.append(self._loop.call_later(bookmark_s, self._tick))

    def _tick(self) -> None:
        self._watch.bookmark_due = True
        self._watch.wake.set()
        self._handles[1] = self._loop.call_later(self._bookmark_s, self._tick)

    def cancel(self) -> None:
        for handle in self._handles:
            handle.cancel()


def _timers(store: ClusterStore, request: Request, watch: Watch, bookmarks: bool) -> _Timers:
    end_s = float(request.number("timeoutSeconds")) or store.settings.watch_timeout_s
    return _Timers(watch, end_s, store.settings.bookmark_interval_s if bookmarks else 0.0)
