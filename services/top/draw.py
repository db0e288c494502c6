"""Draw the picture as lines of styled text, exactly as many and as wide as the terminal. Pure: a
scene in, lines out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import msgspec
from rich.text import Text

from services.top.follow import ALL_EVENTS
from services.top.model import Newest, NodeRow, PodRow, Waiting, ZoneBar, age_text
from services.top.view import HELP, LISTS, SORTS, View
from shared.domain.quantity import format_amount
from shared.telemetry.printable import is_printable, printable

USED, CHARGED, FREE = "█", "▒", "·"
_STYLES = {USED: "blue", CHARGED: "yellow", FREE: "dim"}
MIN_BAR, MAX_BAR = 3, 24
# A bar with an amount next to it is still readable at this width.
MIN_BAR_WITH_AMOUNT = 5
EVENTS_SHOWN = 6
NAME_MIN, NAME_MAX = 8, 24
MAX_FLAGS = 14
# Column widths are computed over this many rows only: a cluster may have many thousands.
MEASURED_ROWS = 1000
KEYS = "enter open  tab list  / find  r resource  s sort  space pause  ? help  q quit"


class Scene(msgspec.Struct, frozen=True):
    """Everything that is drawn. `rows`, `queue` and `pods` are sorted and searched already; `body`
    holds the lines of a page.
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
    newest: Sequence[Newest]
    pods: Sequence[PodRow] = ()
    body: Sequence[str] = ()
    notes: Sequence[str] = ()


def draw(scene: Scene, width: int, height: int) -> list[Text]:
    """Return the lines of the screen, from top to bottom."""
    top = _head(scene, width)
    foot = _foot(scene, width)
    room = max(1, height - len(top) - len(foot))
    lines = [*top, *_middle(scene, width, room), *foot]
    return [cut(escaped(line), width) for line in lines][:height]


def cut(line: Text, width: int) -> Text:
    """Truncate the line to the width of the screen."""
    line.no_wrap = True
    if line.cell_len > width:
        line.truncate(width, overflow="ellipsis")
    return line


def escaped(line: Text) -> Text:
    """Escape control characters: names and messages come from pods, kubelets and webhooks."""
    if is_printable(line.plain):
        return line
    unsafe = [index for index, character in enumerate(line.plain) if not is_printable(character)]
    result = Text(style=line.style)
    for part in line.divide(sorted({*unsafe, *(index + 1 for index in unsafe)})):
        if is_printable(part.plain):
            result.append_text(part)
        else:
            result.append(printable(part.plain))
    return result


def _head(scene: Scene, width: int) -> list[Text]:
    stages, rates, view = scene.stages, scene.rates, scene.view
    under_way = sum(stages.get(stage, 0) for stage in ("reserved", "intended", "bound"))
    numbers = (
        f"{scene.nodes:,} nodes  {stages.get('pending', 0):,} waiting  "
        f"{under_way:,} under way  {stages.get('running', 0):,} running"
    )
    if scene.rejected:
        numbers += f"  {scene.rejected:,} rejected"
    speed = (
        f"{rates.get(ALL_EVENTS, 0):.0f} events/s  {rates.get('bound', 0):.1f} bound/s  "
        f"{rates.get('admitted', 0):.1f} admitted/s"
    )
    position = f"position {scene.position:,}"
    if scene.head > scene.position:
        position += f" of {scene.head:,}"
    lines = [
        Text(f"topolog  {numbers}", style="bold"),
        Text(f"{position}  {speed}" + ("  PAUSED" if view.paused else "")),
    ]
    lines += [Text(note, style="cyan") for note in scene.notes[-2:]]
    if width >= 100 or view.page == "nodes":
        lines.append(_legend(scene))
    if view.typing or view.search:
        lines.append(Text(f"find: {view.search}{'_' if view.typing else ''}", style="reverse"))
    if view.asking:
        lines.append(Text("Stop the cluster and exit? y/n", style="reverse"))
    return lines


def _legend(scene: Scene) -> Text:
    legend = Text(f"{scene.resource or 'no reports yet'}: ", style="bold")
    for sign, word in ((USED, "used"), (CHARGED, "charged, unconfirmed"), (FREE, "free")):
        legend.append(sign * 2, _STYLES[sign]).append(f" {word}  ")
    return legend.append(f"sorted: {SORTS[scene.view.sort]}", "dim")


def _middle(scene: Scene, width: int, room: int) -> list[Text]:
    page = scene.view.page
    if page == "nodes":
        return _filled(_nodes(scene, width, room), room)
    if page == "queue":
        return _filled(_queue(scene, room), room)
    if page == "pods":
        return _filled(_pods(scene, room), room)
    if page == "help":
        return _filled([Text(f"{keys:<42} {effect}") for keys, effect in HELP], room)
    body = [wrapped for line in scene.body for wrapped in _wrap(line, width)]
    first = min(scene.view.cursor, max(0, len(body) - room))
    lines = [
        Text(line, style="bold" if first + offset == 0 else "")
        for offset, line in enumerate(body[first:])
    ]
    return _filled(lines, room)


def _wrap(line: str, width: int) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, max(width, 20), subsequent_indent=indent, drop_whitespace=False) or [
        ""
    ]


def _filled(lines: list[Text], room: int) -> list[Text]:
    return [*lines[:room], *(Text("") for _ in range(room - len(lines)))]


def window(cursor: int, rows: int, room: int) -> int:
    """Return the first row to show, so that the cursor is visible."""
    return max(0, min(cursor - room // 2, rows - room))


def _nodes(scene: Scene, width: int, room: int) -> list[Text]:
    rows = scene.rows
    if not rows:
        none = "no node matches" if scene.view.search else "no node has been observed yet"
        return [Text(none, style="dim")]
    first = window(scene.view.cursor, len(rows), room)
    shown = rows[first : first + room]
    measured = rows[:MEASURED_ROWS]
    name = min(NAME_MAX, max(NAME_MIN, *(len(row.name) for row in measured)))
    zones = max((len(row.bars) for row in rows), default=1) or 1
    flags = min(max((len(row.flags) for row in measured), default=0), MAX_FLAGS)
    amounts = [_amount(scene.resource, bar) for row in shown for bar in row.bars]
    amount = max(map(len, amounts), default=0)
    # Marker, name, a space, the zones, "123 pods ", the flags. A zone is a bar, then a space, its
    # amount and two spaces, or only two spaces.
    rest = width - name - 11 - flags
    bar = rest // zones - amount - 3
    if bar < MIN_BAR_WITH_AMOUNT:
        amount, bar = 0, rest // zones - 2
    bar = min(MAX_BAR, max(MIN_BAR, bar))
    return [
        _node(row, index == scene.view.cursor, scene.resource, name, bar, amount)
        for index, row in enumerate(shown, first)
    ]


def _amount(resource: str, bar: ZoneBar) -> str:
    return f"{format_amount(resource, bar.free)} free"


def _node(row: NodeRow, selected: bool, resource: str, name: int, bar: int, amount: int) -> Text:
    line = Text(
        f"{'>' if selected else ' '}{row.name[:name]:<{name}} ", style="reverse" if selected else ""
    )
    for zone_bar in row.bars:
        line.append_text(bar_text(zone_bar, bar))
        text = f" {_amount(resource, zone_bar):<{amount}}" if amount else ""
        line.append(f"{text}  ", "dim")
    if not row.bars:
        line.append("no report yet  ", "dim")
    line.append(f"{row.pods:>3} pods ", "dim")
    return line.append(row.flags, "red")


def bar_text(bar: ZoneBar, width: int) -> Text:
    """Return the bar. A part above zero has at least one sign if there is room."""
    if not bar.total:
        return Text("-".ljust(width), style="dim")
    used = _signs(bar.used, bar.total, width)
    charged = min(_signs(bar.charged, bar.total, width), width - used)
    if bar.free and used + charged == width and width > 1:
        if used > charged:
            used -= 1
        else:
            charged -= 1
    text = Text()
    for sign, count in ((USED, used), (CHARGED, charged), (FREE, width - used - charged)):
        text.append(sign * count, _STYLES[sign])
    return text


def _signs(part: int, total: int, width: int) -> int:
    return max(1, part * width // total) if part else 0


def _queue(scene: Scene, room: int) -> list[Text]:
    rows = scene.queue
    if not rows:
        none = "no waiting pod matches" if scene.view.search else "no pod waits"
        return [Text(none, style="dim")]
    first = window(scene.view.cursor, len(rows), room)
    shown = rows[first : first + room]
    name = min(40, max(len(row.pod) for row in shown))
    lines = []
    for index, row in enumerate(shown, first):
        selected = index == scene.view.cursor
        line = Text(f"{'>' if selected else ' '}{row.pod:<{name}}  ", "reverse" if selected else "")
        lines.append(line.append(f"{age_text(row.age_s):>4}  ", "dim").append(row.reason))
    return lines


def _pods(scene: Scene, room: int) -> list[Text]:
    rows = scene.pods
    if not rows:
        none = "no pod matches" if scene.view.search else "no pod has been observed yet"
        return [Text(none, style="dim")]
    first = window(scene.view.cursor, len(rows), room)
    shown = rows[first : first + room]
    name = min(40, max(len(row.pod) for row in shown))
    node = min(NAME_MAX, max(1, *(len(row.node) for row in shown)))
    lines = []
    for index, row in enumerate(shown, first):
        selected = index == scene.view.cursor
        line = Text(f"{'>' if selected else ' '}{row.pod:<{name}}  ", "reverse" if selected else "")
        line.append(f"{row.node or '-':<{node}}  {row.stage:<9}")
        lines.append(line.append(f"{age_text(row.age_s):>5}", "dim"))
    return lines


def _foot(scene: Scene, width: int) -> list[Text]:
    lines = []
    if scene.view.page in LISTS:
        if scene.view.page == "nodes" and scene.queue:
            first = scene.queue[0]
            lines.append(Text(f"waits: {first.pod}: {first.reason}", style="yellow"))
        for newest in list(scene.newest)[-EVENTS_SHOWN:]:
            subjects = "  ".join(name for name in (newest.words.pod, newest.words.node) if name)
            line = Text(f"{newest.time}  {subjects}  ", style="dim")
            lines.append(line.append(newest.words.text, "not dim"))
    return [*lines, Text(KEYS if width >= len(KEYS) else "? help  q quit", style="reverse")]
