"""The picture on a real terminal: reads keys, folds, draws a few times a second. The only I/O of
this room.
"""

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

from services.replay.filters import FilterError
from services.replay.telling import explain
from services.replay.words import placement_text
from services.top import model
from services.top.draw import Scene, draw
from services.top.follow import Follower
from services.top.view import View, pressed
from shared.domain.quantity import format_amount
from shared.eventlog.port import EventLog
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import READER
from shared.ledger.state import Ledger
from shared.runtime.waiting import set_within

DRAW_EVERY_S = 0.4
COUNTING_SHARE = 10
"""Counting over all pods may take one part in so many of the time."""
_KEYS = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[5~": "pageup", "\x1b[6~": "pagedown", "\x1b[H": "home", "\x1b[F": "end",
    "\x1b[1~": "home", "\x1b[4~": "end", "\x1bOA": "up", "\x1bOB": "down", "\x1bOH": "home", "\x1bOF": "end",
    "\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\x08": "backspace", "\x1b": "esc",
}  # fmt: skip


def keys_in(text: str) -> list[str]:
    """What was read from the terminal, as names of keys; escape sequences that are not known are
    left out.
    """
    found = []
    while text:
        known = next(
            (code for code in sorted(_KEYS, key=len, reverse=True) if text.startswith(code)), ""
        )
        if known == "\x1b" and text[1:2] in ("[", "O"):
            end = next(
                (at for at, sign in enumerate(text[2:], 3) if sign.isalpha() or sign == "~"),
                len(text),
            )
            text = text[end:]
            continue
        found.append(_KEYS.get(known, text[0]))
        text = text[len(known) or 1 :]
    return found


class Screen:
    """One picture. `note` may be called at any time; `run` ends when its user wants it to."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._view = View()
        self._notes: list[str] = []
        self._changed = asyncio.Event()
        self._body: list[str] = []
        self._shown: Scene | None = None
        self._follower: Follower | None = None
        self._totals: model.Totals | None = None
        self._count_again_s = 0.0

    def note(self, text: str) -> None:
        """Show an event."""
        self._notes = [*self._notes, text][-20:]
        self._changed.set()

    async def run(self, database_url: str) -> None:
        """Draw what the log says, until the user ends it."""
        log = await PostgresEventLog.open(database_url, retry_for_s=5.0, role=READER)
        try:
            await self.show(log)
        finally:
            await log.close()

    async def show(self, log: EventLog) -> None:
        """The same, of an open log."""
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
        """While paused, keys still move, sort and search, over what stood when it was paused."""
        return msgspec.structs.replace(
            self.scene(follower),
            position=scene.position,
            last=scene.last,
            rates=scene.rates,
            stages=scene.stages,
        )

    def scene(self, follower: Follower) -> Scene:
        """What there is to draw now."""
        view, ledger = self._view, follower.ledger
        totals = self._counted(ledger)
        resources = totals.resources
        resource = resources[view.resource % len(resources)] if resources else ""
        wanted = view.search.lower()
        rows = [
            row
            for row in follower.rows(resource)
            if wanted in row.name.lower() or wanted in row.flags
        ]
        orders = (lambda row: row.rank, lambda row: row.name, lambda row: (-row.pods, row.name))
        rows.sort(key=orders[view.sort])
        queue = [
            one for one in totals.queue if wanted in one.pod.lower() or wanted in one.reason.lower()
        ]
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
            last=list(follower.last),
            body=self._body,
            notes=self._notes,
        )

    def _counted(self, ledger: Ledger) -> model.Totals:
        """The totals; of a large cluster they may be as old as it takes to keep counting a small
        part of the time.
        """
        began_s = time.monotonic()
        if self._totals is None or began_s >= self._count_again_s:
            self._totals = model.totals_of(ledger)
            self._count_again_s = time.monotonic() + COUNTING_SHARE * (time.monotonic() - began_s)
        return self._totals

    # -- keys and pages
    # ------------------------------------------------------------------------------------------

    def press(self, key: str) -> None:
        """One key."""
        scene = self._shown
        names: list[str] = []
        if scene is not None and self._view.page in ("nodes", "queue"):
            names = (
                [row.name for row in scene.rows]
                if self._view.page == "nodes"
                else [one.uid for one in scene.queue]
            )
        rows = len(names) or len(self._body)
        under = names[self._view.cursor] if self._view.cursor < len(names) else ""
        self._view = pressed(self._view, key, under, rows)
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
        """Keys come one by one and unseen; Ctrl-C stays a signal."""
        if not sys.stdin.isatty():
            yield
            return
        descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
        before = termios.tcgetattr(descriptor)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")

        def read() -> None:
            data = os.read(descriptor, 1024)
            for key in keys_in(decoder.decode(data)):
                self.press(key)
            if not data:
                loop.remove_reader(descriptor)

        tty.setcbreak(descriptor)
        loop.add_reader(descriptor, read)
        try:
            yield
        finally:
            loop.remove_reader(descriptor)
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def node_page(follower: Follower, name: str) -> list[str]:
    """A node's zones in every resource, and its pods."""
    node = follower.ledger.nodes.get(name)
    if node is None:
        return [f"{name}: gone"]
    policy = (
        f"{node.report.policy} by {node.report.scope}"
        if node.report is not None
        else "no report yet"
    )
    lines = [
        f"{name}  {policy}, report {node.report_version} at position {node.report_position}  {model.flags_of(node)}"
    ]
    for resource in model.resources_of([node]):
        bars = model.node_row(node, resource).bars
        parts = [f"zone {bar.zone}: {_amounts(resource, bar)}" for bar in bars if bar.total]
        lines.append(f"  {resource}: " + "; ".join(parts))
    for charge in sorted(node.charges.values(), key=lambda charge: charge.key):
        entry = follower.ledger.pods.get(charge.uid)
        where = placement_text(charge, entry.predicted if entry else {}, node.report)
        lines.append(f"  {charge.key}: {where} (since position {charge.charged_at})")
    return lines


def _amounts(resource: str, bar: model.ZoneBar) -> str:
    used, charged, free = (
        format_amount(resource, part) for part in (bar.used, bar.charged, bar.free)
    )
    return f"{used} used, {charged} charged, {free} free"


async def pod_page(follower: Follower, uid: str) -> list[str]:
    """A pod's story."""
    try:
        stories = await explain(follower.log, uid)
    except FilterError as error:
        return [str(error)]
    lines = []
    for story in stories:
        lines += [f"{story.key}  {story.stands}"]
        for step in story.lines:
            lines += [
                f"  {step.position:>8}  {step.time[11:23]}  {step.title}",
                *(f"            {text}" for text in step.detail),
            ]
    return lines
