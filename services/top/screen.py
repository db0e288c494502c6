"""The picture on a terminal: read keys, fold, draw a few times a second."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import sys
import termios
import time
import tty
from collections.abc import Iterator

import msgspec
from rich.console import Console, Group
from rich.live import Live

from services.replay.explain import explain
from services.replay.filters import FilterError
from services.replay.words import placement_text
from services.top import model
from services.top.draw import Scene, draw
from services.top.follow import Follower
from services.top.view import LISTS, View, pressed
from shared.domain.quantity import format_amount
from shared.eventlog.port import EventLog
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import READER
from shared.runtime.waiting import set_within

DRAW_EVERY_S = 0.4
# Counting over all pods may take one part in so many of the time.
COUNTING_SHARE = 10
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
        self._follower: Follower | None = None
        self._totals: model.Totals | None = None
        self._count_again_s = 0.0

    def note(self, text: str) -> None:
        """Show a message in the picture."""
        self._notes = [*self._notes, text][-20:]
        self._changed.set()

    async def run(self, database_url: str) -> None:
        """Draw the log until the user closes the picture."""
        log = await PostgresEventLog.open(database_url, retry_for_s=5.0, role=READER)
        try:
            await self.show(log)
        finally:
            await log.close()

    async def show(self, log: EventLog) -> None:
        """Draw an open log until the user closes the picture."""
        follower = self._follower = Follower(log)
        folding = asyncio.create_task(self._fold(follower))
        try:
            with (
                self._keyboard(),
                Live(
                    console=self._console, screen=True, auto_refresh=False, transient=True
                ) as live,
            ):
                while not self._view.over:
                    if folding.done():
                        folding.result()
                    await self._turn_page(follower)
                    self._draw(follower, live)
                    await self._rest()
        finally:
            folding.cancel()
            await asyncio.gather(folding, return_exceptions=True)

    async def _fold(self, follower: Follower) -> None:
        async for _ in follower.follow():
            await asyncio.sleep(0)

    async def _rest(self) -> None:
        self._changed.clear()
        await set_within(self._changed, DRAW_EVERY_S)

    def _draw(self, follower: Follower, live: Live) -> None:
        if self._shown is None or not self._view.paused:
            self._shown = self.scene(follower)
        scene = msgspec.structs.replace(
            self._shown, view=self._view, notes=self._notes, body=self._body
        )
        if self._view.paused:
            scene = self._searched(scene, follower)
        width, height = self._console.size
        live.update(Group(*draw(scene, width, height)), refresh=True)

    def _searched(self, scene: Scene, follower: Follower) -> Scene:
        """Return the paused scene, moved, sorted and searched by the keys since."""
        return msgspec.structs.replace(
            self.scene(follower),
            position=scene.position,
            newest=scene.newest,
            rates=scene.rates,
            stages=scene.stages,
        )

    def scene(self, follower: Follower) -> Scene:
        """Return the values to draw now."""
        view, ledger = self._view, follower.ledger
        totals = self._counted(follower)
        resources = totals.resources
        resource = resources[view.resource % len(resources)] if resources else ""
        text = view.search.lower()
        rows = [row for row in follower.rows(resource) if node_matches(row, text)]
        orders = (lambda row: row.rank, lambda row: row.name, lambda row: (-row.pods, row.name))
        rows.sort(key=orders[view.sort])
        queue = [
            pod for pod in totals.queue if text in pod.pod.lower() or text in pod.reason.lower()
        ]
        pods = [pod for pod in totals.pods if text in pod.pod.lower() or text in pod.node.lower()]
        return Scene(
            view=view,
            resource=resource,
            position=ledger.position,
            head=follower.head,
            nodes=len(ledger.nodes),
            rows=rows,
            queue=queue,
            stages=totals.stages,
            rates=follower.rates(),
            rejected=follower.rejected,
            newest=list(follower.newest),
            pods=pods,
            body=self._body,
            notes=self._notes,
        )

    def _counted(self, follower: Follower) -> model.Totals:
        """Return the totals. In a large cluster they may be a little old, because counting may
        take only a small part of the time.
        """
        began_s = time.monotonic()
        if self._totals is None or began_s >= self._count_again_s:
            self._totals = model.totals_of(follower.ledger, follower.created_us, follower.now_us)
            self._count_again_s = time.monotonic() + COUNTING_SHARE * (time.monotonic() - began_s)
        return self._totals

    def press(self, key: str) -> None:
        """Handle one key."""
        scene = self._shown
        names = names_on(scene, self._view) if scene is not None else []
        rows = len(names) or len(self._body)
        selected = names[self._view.cursor] if self._view.cursor < len(names) else ""
        self._view = pressed(self._view, key, selected, rows)
        if self._view.paused and scene is not None and self._follower is not None:
            self._shown = self._searched(scene, self._follower)
        self._changed.set()

    async def _turn_page(self, follower: Follower) -> None:
        view = self._view
        if view.page == "node":
            self._body = node_page(follower, view.subject)
        elif view.page == "pod":
            self._body = await pod_page(follower, view.subject)
        else:
            self._body = []

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


def node_page(follower: Follower, name: str) -> list[str]:
    """Return a node's zones in every resource, and its pods."""
    node = follower.ledger.nodes.get(name)
    if node is None:
        return [f"{name}: deleted"]
    policy = (
        f"{node.report.policy} by {node.report.scope}"
        if node.report is not None
        else "no report yet"
    )
    lines = [
        f"{name}  {policy}, report {node.report_version} at position {node.report_position}  "
        f"{model.flags_of(node)}"
    ]
    for resource in model.resources_of([node]):
        bars = model.node_row(node, resource).bars
        parts = [f"zone {bar.zone}: {_amounts(resource, bar)}" for bar in bars if bar.total]
        lines.append(f"  {resource}: " + "; ".join(parts))
    for charge in sorted(node.charges.values(), key=lambda charge: charge.key):
        entry = follower.ledger.pods.get(charge.uid)
        zones = placement_text(charge, entry.predicted if entry else {}, node.report)
        age = model.age_text(model.age_s(charge.uid, follower.created_us, follower.now_us))
        lines.append(f"  {charge.key}: {zones} (age {age}, since position {charge.charged_at})")
    return lines


def _amounts(resource: str, bar: model.ZoneBar) -> str:
    used, charged, free = (
        format_amount(resource, part) for part in (bar.used, bar.charged, bar.free)
    )
    return f"{used} used, {charged} charged, {free} free"


async def pod_page(follower: Follower, uid: str) -> list[str]:
    """Return a pod's story."""
    try:
        stories = await explain(follower.log, uid)
    except FilterError as error:
        return [str(error)]
    lines = []
    for story in stories:
        age = model.age_text(model.age_s(story.uid, follower.created_us, follower.now_us))
        lines.append(f"{story.key}  age {age}  {story.current}")
        for step in story.lines:
            lines.append(f"  {step.position:>8}  {step.time[11:23]}  {step.title}")
            lines += [f"            {text}" for text in step.detail]
    return lines
