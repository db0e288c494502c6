"""The picture on a terminal: read keys, fold, draw a few times a second."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Protocol

import msgspec
from rich.console import Console, Group
from rich.live import Live

from services.replay.explain import Story
from services.replay.filters import FilterError
from services.top import model
from services.top.cells import CellsPicture
from services.top.draw import Scene, draw
from services.top.follow import Follower
from services.top.model import Picture
from services.top.view import LISTS, View, pressed
from shared.domain.quantity import format_amount
from shared.eventlog.port import EventLog
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import READER
from shared.runtime.waiting import set_within

DRAW_EVERY_S = 0.4
# Alternate scroll mode (xterm): the mouse wheel sends arrow keys. Selecting text keeps working,
# which full mouse reporting would prevent.
WHEEL_ON, WHEEL_OFF = "\x1b[?1007h", "\x1b[?1007l"
_KEYS = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[5~": "pageup", "\x1b[6~": "pagedown",
    "\x1b[H": "home", "\x1b[F": "end", "\x1b[1~": "home", "\x1b[4~": "end",
    "\x1bOA": "up", "\x1bOB": "down", "\x1bOH": "home", "\x1bOF": "end",
    "\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\x08": "backspace",
    "\x1b": "esc",
}  # fmt: skip


def keys_in(text: str) -> list[str]:
    """Return the names of the keys in terminal input. Unknown escape sequences are left out."""
    keys = []
    while text:
        code = next(
            (code for code in sorted(_KEYS, key=len, reverse=True) if text.startswith(code)), ""
        )
        if code == "\x1b" and text[1:2] in ("[", "O"):
            end = next(
                (index for index, sign in enumerate(text[2:], 3) if sign.isalpha() or sign == "~"),
                len(text),
            )
            text = text[end:]
            continue
        keys.append(_KEYS.get(code, text[0]))
        text = text[len(code) or 1 :]
    return keys


def source_of(logs: Mapping[str, EventLog]) -> Follower | CellsPicture:
    """Return the picture of one log, or of the logs of several cells."""
    return CellsPicture(logs) if len(logs) > 1 else Follower(next(iter(logs.values())))


class Source(Protocol):
    """Where the values come from: a fold of the log, or a console. `node` and `story` raise
    FilterError.
    """

    def follow(self) -> AsyncIterator[None]:
        """Go on for ever."""

    def picture(self, number: int) -> Picture:
        """Return the values of now, with the rows of the resource of this number."""

    async def node(self, name: str) -> dict[str, Any]:
        """Return one node as `topolog replay at` does."""

    async def story(self, uid: str) -> list[Story]:
        """Return the story of a pod."""


class Screen:
    """One picture. `note` may be called at any time; `run` returns when the user closes it.

    With `owns_cluster` the end of the picture stops the cluster, so the user is asked first.
    """

    def __init__(self, console: Console | None = None, owns_cluster: bool = False) -> None:
        self._console = console or Console(highlight=False)
        self._view = View(owns_cluster=owns_cluster)
        self._notes: list[str] = []
        self._changed = asyncio.Event()
        self._body: list[str] = []
        self._shown: Scene | None = None
        self._source: Source | None = None

    def note(self, text: str) -> None:
        """Show a message in the picture."""
        self._notes = [*self._notes, text][-20:]
        self._changed.set()

    async def run(self, database_urls: Mapping[str, str]) -> None:
        """Draw the log, or the logs of all cells by name, until the user closes the picture."""
        async with contextlib.AsyncExitStack() as stack:
            logs = dict[str, EventLog]()
            for cell, url in database_urls.items():
                log = await PostgresEventLog.open(url, retry_for_s=5.0, role=READER)
                stack.push_async_callback(log.close)
                logs[cell] = log
            await self.show(source_of(logs))

    async def show(self, source: Source) -> None:
        """Draw what a source has until the user closes the picture."""
        self._source = source
        following = asyncio.create_task(self._follow(source))
        try:
            with (
                self._keyboard(),
                Live(
                    console=self._console, screen=True, auto_refresh=False, transient=True
                ) as live,
            ):
                while not self._view.over:
                    if following.done():
                        following.result()
                    await self._turn_page(source)
                    self._draw(source, live)
                    await self._rest()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self, source: Source) -> None:
        async for _ in source.follow():
            await asyncio.sleep(0)

    async def _rest(self) -> None:
        self._changed.clear()
        await set_within(self._changed, DRAW_EVERY_S)

    def _draw(self, source: Source, live: Live) -> None:
        if self._shown is None or not self._view.paused:
            self._shown = self.scene(source)
        scene = msgspec.structs.replace(
            self._shown, view=self._view, notes=self._notes, body=self._body
        )
        if self._view.paused:
            scene = self._searched(scene, source)
        width, height = self._console.size
        live.update(Group(*draw(scene, width, height)), refresh=True)

    def _searched(self, scene: Scene, source: Source) -> Scene:
        """Return the paused scene, moved, sorted and searched by the keys since."""
        return msgspec.structs.replace(
            self.scene(source),
            position=scene.position,
            newest=scene.newest,
            rates=scene.rates,
            stages=scene.stages,
        )

    def scene(self, source: Source) -> Scene:
        """Return the values to draw now."""
        view = self._view
        picture = source.picture(view.resource)
        totals, text = picture.totals, view.search.lower()
        rows = [row for row in picture.rows if node_matches(row, text)]
        orders = (lambda row: row.rank, lambda row: row.name, lambda row: (-row.pods, row.name))
        rows.sort(key=orders[view.sort])
        queue = [
            pod for pod in totals.queue if text in pod.pod.lower() or text in pod.reason.lower()
        ]
        pods = [pod for pod in totals.pods if text in pod.pod.lower() or text in pod.node.lower()]
        return Scene(
            view=view,
            resource=picture.resource,
            position=picture.position,
            head=picture.head,
            nodes=picture.nodes,
            rows=rows,
            queue=queue,
            stages=totals.stages,
            rates=picture.rates,
            rejected=picture.rejected,
            newest=picture.newest,
            pods=pods,
            body=self._body,
            notes=self._notes,
        )

    def press(self, key: str) -> None:
        """Handle one key."""
        scene = self._shown
        names = names_on(scene, self._view) if scene is not None else []
        rows = len(names) or len(self._body)
        selected = names[self._view.cursor] if self._view.cursor < len(names) else ""
        self._view = pressed(self._view, key, selected, rows)
        if self._view.paused and scene is not None and self._source is not None:
            self._shown = self._searched(scene, self._source)
        self._changed.set()

    async def _turn_page(self, source: Source) -> None:
        view = self._view
        if view.page not in ("node", "pod"):
            self._body = []
            return
        picture = source.picture(view.resource)
        ages = {pod.uid: pod.age_s for pod in picture.totals.pods}
        flags = {row.name: row.flags for row in picture.rows}
        try:
            if view.page == "node":
                node = await source.node(view.subject)
                self._body = node_page(node, flags.get(view.subject, ""), ages)
            else:
                self._body = story_page(await source.story(view.subject), ages)
        except FilterError as error:
            self._body = [str(error)]

    @contextlib.contextmanager
    def _keyboard(self) -> Iterator[None]:
        """Read keys one by one without echo; Ctrl-C stays a signal."""
        if not sys.stdin.isatty():
            yield
            return
        descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
        attributes = termios.tcgetattr(descriptor)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")

        def read() -> None:
            data = os.read(descriptor, 1024)
            for key in keys_in(decoder.decode(data)):
                self.press(key)
            if not data:
                loop.remove_reader(descriptor)

        tty.setcbreak(descriptor)
        sys.stdout.write(WHEEL_ON)
        loop.add_reader(descriptor, read)
        try:
            yield
        finally:
            loop.remove_reader(descriptor)
            sys.stdout.write(WHEEL_OFF)
            sys.stdout.flush()
            termios.tcsetattr(descriptor, termios.TCSADRAIN, attributes)


def names_on(scene: Scene, view: View) -> list[str]:
    """Return the subjects of the rows of a list page: node names or pod uids."""
    if view.page not in LISTS:
        return []
    if view.page == "nodes":
        return [row.name for row in scene.rows]
    return [row.uid for row in (scene.queue if view.page == "queue" else scene.pods)]


def node_matches(row: model.NodeRow, text: str) -> bool:
    """Return whether the node, one of its flags, or the name of one of its pods has the text."""
    if not text or text in row.name.lower() or text in row.flags:
        return True
    return any(text in key.lower() for key in row.pod_keys)


def node_page(node: dict[str, Any], flags: str, ages: Mapping[str, int]) -> list[str]:
    """Return a node's zones in every resource, and its pods. `node` is as of `replay at`."""
    policy = f"{node['policy']} by {node['scope']}" if node["policy"] else "no report yet"
    lines = [
        f"{node['node']}  {policy}, report {node['report_version']} at position "
        f"{node['report_position']}  {flags}",
        *(f"  {problem}" for problem in node["problems"]),
    ]
    for resource in sorted({name for zone in node["zones"] for name in zone["resources"]}):
        parts = [
            f"zone {zone['zone']}: {_amounts(resource, zone['resources'][resource])}"
            for zone in node["zones"]
            if zone["resources"].get(resource, {}).get("allocatable")
        ]
        lines.append(f"  {resource}: " + "; ".join(parts))
    for charge in sorted(node["charges"], key=lambda charge: str(charge["pod"])):
        age = model.age_text(ages.get(charge["uid"], 0))
        lines.append(
            f"  {charge['pod']}: {charge['text']} (age {age}, since position {charge['since']})"
        )
    return lines


def _amounts(resource: str, amounts: Mapping[str, int]) -> str:
    total, least, most = amounts["allocatable"], amounts["free_min"], amounts["free_max"]
    used, charged, free = (
        format_amount(resource, part) for part in (total - most, most - least, least)
    )
    return f"{used} used, {charged} charged, {free} free"


def story_page(stories: list[Story], ages: Mapping[str, int]) -> list[str]:
    """Return a pod's story as lines."""
    lines = []
    for story in stories:
        lines.append(f"{story.key}  age {model.age_text(ages.get(story.uid, 0))}  {story.current}")
        for step in story.lines:
            lines.append(f"  {step.position:>8}  {step.time[11:23]}  {step.title}")
            lines += [f"            {text}" for text in step.detail]
    return lines
