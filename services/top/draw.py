"""The picture as lines of styled text, exactly as many and as wide as the terminal. Pure: a scene
in, lines out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import msgspec
from rich.text import Text

from services.top.follow import Heard
from services.top.model import NodeRow, Waiting, ZoneBar
from services.top.view import HELP, SORTS, View
from shared.domain.quantity import format_amount

USED, CHARGED, FREE = "█", "▒", "·"
_STYLES = {USED: "blue", CHARGED: "yellow", FREE: "dim"}
MAX_BAR = 24
FACTS_SHOWN = 6
NAME_MIN, NAME_MAX = 8, 24


class Scene(msgspec.Struct, frozen=True):
    """Everything that is drawn. `rows` and `queue` are sorted and searched already; `body` are the
    lines of a page.
    """

    view: View
    resource: str
    position: int
    head: int
    nodes: int
    rows: Sequence[NodeRow]
    queue: Sequence[Waiting]
    stages: dict[str, int]
    rates: dict[str, float]
    rejected: int
    last: Sequence[Heard]
    body: Sequence[str] = ()
    notes: Sequence[str] = ()


def draw(scene: Scene, width: int, height: int) -> list[Text]:
    """The lines of the screen, from top to bottom."""
    top = _head(scene, width)
    foot = _foot(scene, width)
    room = max(1, height - len(top) - len(foot))
    return [cut(line, width) for line in [*top, *_middle(scene, width, room), *foot]][:height]


def cut(line: Text, width: int) -> Text:
    """The line, no wider than the screen."""
    line.no_wrap = True
    if line.cell_len > width:
        line.truncate(width, overflow="ellipsis")
    return line


def _head(scene: Scene, width: int) -> list[Text]:
    stages = scene.stages
    way = stages.get("reserved", 0) + stages.get("intended", 0) + stages.get("bound", 0)
    numbers = f"{scene.nodes:,} nodes  {stages.get('pending', 0):,} waiting  {way:,} on the way  {stages.get('running', 0):,} running"
    if scene.rejected:
        numbers += f"  {scene.rejected:,} rejected by kubelets"
    rates = scene.rates
    pace = f"{rates.get('events', 0):.0f} facts/s  {rates.get('bound', 0):.1f} bound/s  {rates.get('admitted', 0):.1f} admitted/s"
    where = f"position {scene.position:,}" + (
        f" of {scene.head:,}" if scene.head > scene.position else ""
    )
    lines = [
        Text(f"topolog  {numbers}", style="bold"),
        Text(f"{where}  {pace}" + ("  PAUSED" if scene.view.paused else "")),
    ]
    lines += [Text(note, style="cyan") for note in scene.notes[-2:]]
    if width >= 100 or scene.view.page == "nodes":
        legend = Text(f"{scene.resource or 'no reports yet'}: ", style="bold")
        for sign, word in ((USED, "used"), (CHARGED, "charged, unconfirmed"), (FREE, "free")):
            legend.append(sign * 2, _STYLES[sign]).append(f" {word}  ")
        lines.append(legend.append(f"sorted: {SORTS[scene.view.sort]}", "dim"))
    if scene.view.typing or scene.view.search:
        lines.append(
            Text(f"search: {scene.view.search}{'_' if scene.view.typing else ''}", style="reverse")
        )
    return lines


def _middle(scene: Scene, width: int, room: int) -> list[Text]:
    page = scene.view.page
    if page == "nodes":
        return _filled(_nodes(scene, width, room), room)
    if page == "queue":
        return _filled(_queue(scene, room), room)
    if page == "help":
        return _filled([Text(f"{keys:<42} {what}") for keys, what in HELP], room)
    body = [wrapped for line in scene.body for wrapped in _wrap(line, width)]
    first = min(scene.view.cursor, max(0, len(body) - room))
    return _filled(
        [
            Text(line, style="bold" if not number + first else "")
            for number, line in enumerate(body[first:])
        ],
        room,
    )


def _wrap(line: str, width: int) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, max(width, 20), subsequent_indent=indent, drop_whitespace=False) or [
        ""
    ]


def _filled(lines: list[Text], room: int) -> list[Text]:
    return [*lines[:room], *(Text("") for _ in range(room - len(lines)))]


def window(cursor: int, rows: int, room: int) -> int:
    """The first row to show, so that the cursor is seen."""
    return max(0, min(cursor - room // 2, rows - room))


def _nodes(scene: Scene, width: int, room: int) -> list[Text]:
    rows = scene.rows
    if not rows:
        return [
            Text(
                "no node matches the search" if scene.view.search else "no node has been seen yet",
                style="dim",
            )
        ]
    name = min(NAME_MAX, max(NAME_MIN, *(len(row.name) for row in rows[:1000])))
    zones = max((len(row.bars) for row in rows), default=1) or 1
    flags = max((len(row.flags) for row in rows[:1000]), default=0)
    numbers = width >= 100 and zones <= 4
    bar = (width - name - 8 - min(flags, 14) - zones * (13 if numbers else 2)) // zones
    bar = min(MAX_BAR, max(3, bar))
    first = window(scene.view.cursor, len(rows), room)
    return [
        _node(row, number == scene.view.cursor, scene.resource, name, bar, numbers)
        for number, row in enumerate(rows[first : first + room], first)
    ]


def _node(row: NodeRow, under: bool, resource: str, name: int, bar: int, numbers: bool) -> Text:
    line = Text(
        f"{'>' if under else ' '}{row.name[:name]:<{name}} ", style="reverse" if under else ""
    )
    for one in row.bars:
        line.append_text(bar_text(one, bar))
        free = f"{format_amount(resource, one.free)} free" if numbers else ""
        line.append(f" {free:<12}" if numbers else "  ", "dim")
    if not row.bars:
        line.append("no zones known  ", "dim")
    line.append(f"{row.pods:>3} pods ", "dim")
    return line.append(row.flags, "red")


def bar_text(one: ZoneBar, width: int) -> Text:
    """The bar: a part that is not nothing is at least one sign, as far as there is room."""
    if not one.total:
        return Text("-".ljust(width), style="dim")
    used = _signs(one.used, one.total, width)
    charged = min(_signs(one.charged, one.total, width), width - used)
    if one.free and used + charged == width and width > 1:
        used, charged = (used - 1, charged) if used > charged else (used, charged - 1)
    text = Text()
    for sign, count in ((USED, used), (CHARGED, charged), (FREE, width - used - charged)):
        text.append(sign * count, _STYLES[sign])
    return text


def _signs(part: int, total: int, width: int) -> int:
    return max(1, part * width // total) if part else 0


def _queue(scene: Scene, room: int) -> list[Text]:
    rows = scene.queue
    if not rows:
        return [
            Text(
                "no pod waits" + (" that matches the search" if scene.view.search else ""),
                style="dim",
            )
        ]
    first = window(scene.view.cursor, len(rows), room)
    name = min(40, max(len(row.pod) for row in rows[first : first + room]))
    lines = []
    for number, row in enumerate(rows[first : first + room], first):
        under = number == scene.view.cursor
        line = Text(f"{'>' if under else ' '}{row.pod:<{name}}  ", "reverse" if under else "")
        lines.append(line.append(row.reason))
    return lines


def _foot(scene: Scene, width: int) -> list[Text]:
    lines = []
    if scene.view.page in ("nodes", "queue"):
        if scene.view.page == "nodes" and scene.queue:
            waits = scene.queue[0]
            lines.append(Text(f"waits: {waits.pod}: {waits.reason}", style="yellow"))
        for heard in list(scene.last)[-FACTS_SHOWN:]:
            who = "  ".join(name for name in (heard.told.pod, heard.told.node) if name)
            lines.append(
                Text(f"{heard.time}  {who}  ", style="dim").append(heard.told.text, "not dim")
            )
    keys = "enter page  tab queue  r resource  s sort  / search  space pause  ? help  q end"
    return [*lines, Text(keys if width >= len(keys) else "? help  q end", style="reverse")]
