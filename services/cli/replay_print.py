"""How `topolog replay` looks: a line a fact, tables, stories. Values in, text out; must not read
anything.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from services.cli.output import columns, console, json_line, table
from services.replay.node_trouble import dirty_text, exclusion_text
from services.replay.words import by_container
from shared.domain.quantity import format_amount

if TYPE_CHECKING:
    from services.cli.foreign_pod import ForeignPod
    from services.replay.commands import Verdict
    from services.replay.differing import Difference
    from services.replay.predictions import Predictions
    from services.replay.shadow import Judgement
    from services.replay.telling import Story
    from services.replay.why_not import WhyNot

POD_WIDTH, NODE_WIDTH = 28, 10
WIDE_FROM = 110
"""From so many columns on a fact is one line; below, its sentence stands under it."""


def event_printer(as_json: bool) -> Callable[[dict[str, Any]], None]:
    """What prints one row of `replay log`."""
    return json_line if as_json else _event


def _event(row: dict[str, Any]) -> None:
    time = row["time"][:10] + " " + row["time"][11:23]
    head = f"{row['position']:>7}  {time}"
    width = columns()
    if width >= WIDE_FROM:
        print(
            f"{head}  {row['pod'] or '-':<{POD_WIDTH}}  {row['node'] or '-':<{NODE_WIDTH}}  {row['text']}",
            flush=True,
        )
        return
    who = "  ".join(name for name in (row["pod"], row["node"]) if name)
    print(f"{head}  {who}", *_wrapped(row["text"], width, 9), sep="\n", flush=True)


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    space = " " * indent
    return textwrap.wrap(text, max(width, 40), initial_indent=space, subsequent_indent=space) or [
        ""
    ]


def state(found: dict[str, Any]) -> None:
    """The ledger at a position."""
    out = console()
    out.print(
        f"position {found['position']} of {found['head']}, {found['time']}, state {found['hash']}",
        markup=False,
    )
    if found["waiting"]:
        shown = ", ".join(found["waiting"][:5]) + (
            f" and {len(found['waiting']) - 5} more" if len(found["waiting"]) > 5 else ""
        )
        out.print(f"waiting: {shown}", markup=False)
    for problem in found["set_aside"]:
        out.print(f"set aside: {problem}", markup=False)
    for node in found["nodes"]:
        flags = [
            node["policy"],
            node["scope"],
            node["dirty"] and f"dirty: {node['dirty']}",
            "silent" if node["expired"] else "",
            "locked out" if node["locked"] else "",
        ]
        title = f"\n{node['node']} ({', '.join(flag for flag in flags if flag)})"
        out.print(
            table(
                title,
                ("zone", "resource", "#allocatable", "#guaranteed free", "#free at most"),
                _zone_rows(node["zones"]),
            )
        )
        for problem in node["problems"]:
            out.print(problem, markup=False)
        for exclusion in node["exclusions"]:
            out.print(exclusion_text(exclusion), markup=False)
        if node["dirty_mark"]:
            out.print(dirty_text(node["dirty_mark"]), markup=False)
        for charge in node["charges"]:
            for line in _wrapped(_charge(charge), columns(), 2):
                out.print(line, markup=False)


def _zone_rows(zones: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            str(zone["zone"]),
            name,
            *(format_amount(name, held[key]) for key in ("allocatable", "free_min", "free_max")),
        ]
        for zone in zones
        for name, held in zone["resources"].items()
    ]


def _charge(charge: dict[str, Any]) -> str:
    return f"{charge['pod']}  {charge['text']} (charged since position {charge['since']})"


def stories(told: list[Story], as_json: bool) -> None:
    """Each pod's story."""
    if as_json:
        for story in told:
            json_line(story)
        return
    out, width = console(), columns()
    for story in told:
        out.print(f"{story.key} ({story.uid})", markup=False, style="bold")
        for line in _wrapped(story.stands, width, 2):
            out.print(line, markup=False)
        for step in story.lines:
            narrow = width < WIDE_FROM
            time = step.time[11:23] if narrow else step.time[:10] + " " + step.time[11:23]
            head = f"{step.position:>9}  {time}  "
            indent = 11 if narrow else len(head)
            first, *more = textwrap.wrap(step.title, max(width - len(head), 30)) or [""]
            out.print(head + first, markup=False)
            for text in more:
                out.print(" " * len(head) + text, markup=False)
            for text in step.detail:
                for line in _wrapped(text, width, indent + (4 if text.startswith("  ") else 2)):
                    out.print(line, markup=False)
        if story.set_aside:
            out.print(f"what follows is not told: {story.set_aside}", markup=False)


def foreign(pod: ForeignPod, as_json: bool) -> None:
    """A pod that is not Topolog's."""
    if as_json:
        json_line(pod)
        return
    out = console()
    out.print(f"{pod.key} ({pod.uid})", markup=False, style="bold")
    for line in pod.lines():
        for wrapped in _wrapped(line, columns(), 2):
            out.print(wrapped, markup=False)


def verdict(found: Verdict) -> None:
    """What `verify` found."""
    out = console()
    out.print(
        f"{found.positions} facts, {found.streams} streams, state {found.hash}, {found.events_per_s:,.0f} facts/s",
        markup=False,
    )
    out.print(table("", ("invariant", "verdict"), found.rows()))
    for one in found.silent:
        out.print(f"{one.service} was not compared, it does not answer: {one.why}", markup=False)
    for violation in found.violations:
        out.print(
            f"{violation.invariant} at {violation.position}: {violation.message}", markup=False
        )


def predictions(found: Predictions, by: str) -> None:
    """Hit rates, then the misses in words."""
    out = console()
    from services.scheduler.explain.wording import within

    out.print(
        table("", (by, "#predicted", "#hit", "#rate"), [group.row() for group in found.groups])
    )
    for miss in found.misses:
        said, got = by_container(miss.predicted), by_container(miss.actual)
        why = miss.difference + within(miss.within)
        out.print(
            f"{miss.position:>9}  {miss.pod} on {miss.node}: predicted {said}, got {got}; {why}",
            markup=False,
        )


def shadow(found: Judgement) -> None:
    """The counts in words, then the pods that came out differently."""
    out = console()
    from services.scheduler.shadow import OUTCOMES

    rows = [[str(found.counts[outcome]), words] for outcome, words in OUTCOMES.items()]
    out.print(table("", ("#pods", "what became of them"), rows))
    rest = f"{found.open} wait for their kubelet, {found.own} were Topolog's own"
    out.print(f"{found.elsewhere} would have gone to another node, {rest}")
    for case in found.told:
        judged = case.judged
        said = f"refused: {judged.refused}" if judged.refused else "allowed"
        instead = f"; {judged.instead} instead" if judged.instead not in ("", judged.node) else ""
        got = f"rejected: {case.reason}" if case.reason else "ran"
        out.print(
            f"{case.outcome:>9}  {judged.pod} on {judged.node}: {said}{instead}; it {got}",
            markup=False,
        )


def difference(found: Difference) -> None:
    """Two states: the pods that are different, then node by node."""
    out = console()
    (first, second), (one, other) = found.positions, found.hashes
    out.print(
        f"{found.before} (position {first}, state {one}) -> {found.after} (position {second}, state {other})",
        markup=False,
    )
    if not found.differs:
        out.print("no difference in pods, zones, charges and outcomes", markup=False)
        return
    out.print(
        f"{len(found.pods)} pod(s) and {len(found.nodes)} node(s) differ: "
        f"{sum(len(node.charges) for node in found.nodes)} charge(s), "
        f"{sum(len(node.zones) for node in found.nodes)} zone amount(s)",
        markup=False,
    )
    rows = [
        (each.pod, *(_arrow(pair) for pair in (each.stage, each.node, each.verdict)))
        for each in found.pods
    ]
    out.print(table("", ("pod", "stage", "node", "verdict"), rows))
    for node in found.nodes:
        was, there = node.there
        out.print(
            f"\n{node.node}" + ("" if was and there else " (came)" if there else " (went)"),
            markup=False,
        )
        for flag, pair in node.flags.items():
            out.print(f"  {flag}: {_arrow((str(pair[0]), str(pair[1])))}", markup=False)
        for charge, pair in node.charges.items():
            out.print(f"  {charge}: {_arrow(pair)}", markup=False)
        for what, (before, after) in node.zones.items():
            resource = what.split()[2]
            out.print(
                f"  {_amount_label(what)}: "
                f"{format_amount(resource, before)} -> {format_amount(resource, after)}",
                markup=False,
            )


def _amount_label(what: str) -> str:
    return what.replace("free_min", "guaranteed free").replace("free_max", "free at most")


def _arrow(pair: tuple[str, str]) -> str:
    before, after = pair
    return before if before == after else f"{before or 'none'} -> {after or 'none'}"


def why_not(found: WhyNot) -> None:
    """The answer, then the near miss in full."""
    out = console()
    out.print(
        f"{found.pod} on {found.node} at position {found.position}, {found.time}"
        + (f" ({found.when})" if found.when else ""),
        markup=False,
        style="bold",
    )
    for line in (found.answer, *found.lines):
        for wrapped in _wrapped(line, columns(), 4 if line.startswith("  ") else 2):
            out.print(wrapped, markup=False)
