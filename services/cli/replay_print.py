"""Print the results of `topolog replay`: lines, tables, stories. Values in, text out."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from services.cli.output import columns, json_line, say, say_table
from services.replay.node_trouble import dirty_text, exclusion_text
from services.replay.words import by_container
from shared.domain.quantity import format_amount

if TYPE_CHECKING:
    from services.cli.foreign_pod import ForeignPod
    from services.replay.commands import Verdict
    from services.replay.differing import Difference, NodeDifference
    from services.replay.explain import Story
    from services.replay.fragmentation import Fragmentation
    from services.replay.predicting import Prediction
    from services.replay.predictions import Predictions
    from services.replay.shadow import Judgement
    from services.replay.why_not import WhyNot

POD_WIDTH, NODE_WIDTH = 28, 10
# With at least this many columns an event is one line; with fewer, its sentence is on the next
# line.
WIDE_FROM = 110
WAITING_SHOWN = 5
# Nodes that lose the most places.
LOSSY_SHOWN = 10


def event_printer(as_json: bool) -> Callable[[dict[str, Any]], None]:
    """Return the function that prints one row of `replay log`."""
    return json_line if as_json else _event


def _event(row: dict[str, Any]) -> None:
    time = row["time"][:10] + " " + row["time"][11:23]
    head = f"{row['position']:>7}  {time}"
    width = columns()
    if width >= WIDE_FROM:
        pod, node = row["pod"] or "-", row["node"] or "-"
        say(f"{head}  {pod:<{POD_WIDTH}}  {node:<{NODE_WIDTH}}  {row['text']}")
        return
    say(f"{head}  {'  '.join(name for name in (row['pod'], row['node']) if name)}")
    _say_wrapped(row["text"], width, 9)


def _say_wrapped(text: str, width: int, indent: int) -> None:
    space = " " * indent
    lines = textwrap.wrap(text, max(width, 40), initial_indent=space, subsequent_indent=space)
    for line in lines or [""]:
        say(line)


def state(result: dict[str, Any]) -> None:
    """Print the ledger at a position."""
    say(
        f"position {result['position']} of {result['head']}, {result['time']}, "
        f"state {result['hash']}"
    )
    waiting = result["waiting"]
    if waiting:
        more = len(waiting) - WAITING_SHOWN
        say(f"waiting: {', '.join(waiting[:WAITING_SHOWN])}" + (f" and {more} more" * (more > 0)))
    for problem in result["quarantined"]:
        say(f"quarantined: {problem}")


def node(node: dict[str, Any]) -> None:
    """Print a node at a position."""
    flags = [
        node["policy"],
        node["scope"],
        node["dirty"] and f"dirty: {node['dirty']}",
        "expired" if node["expired"] else "",
        "locked out" if node["locked"] else "",
    ]
    say()
    say(f"{node['node']} ({', '.join(flag for flag in flags if flag)})", bold=True)
    say_table(
        ("zone", "resource", "#allocatable", "#guaranteed free", "#free at most"),
        _zone_rows(node["zones"]),
    )
    if node["policy"]:
        say(f"zones are chosen by {node['chosen_by']}")
        say(f"placements are confirmed by {node['confirmed_by'] or 'nothing in its reports'}")
    for problem in node["problems"]:
        say(problem)
    for exclusion in node["exclusions"]:
        say(exclusion_text(exclusion))
    if node["held_for"]:
        say(f"held for the overdue pod {node['held_for']}: it takes no other pod")
    if node["dirty_mark"]:
        say(dirty_text(node["dirty_mark"]))
    for charge in node["charges"]:
        _say_wrapped(_charge(charge), columns(), 2)


def _zone_rows(zones: list[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for zone in zones:
        for name, amounts in zone["resources"].items():
            cells = [amounts[key] for key in ("allocatable", "free_min", "free_max")]
            rows.append([str(zone["zone"]), name, *(format_amount(name, cell) for cell in cells)])
    return rows


def _charge(charge: dict[str, Any]) -> str:
    return f"{charge['pod']}  {charge['text']} (charged since position {charge['since']})"


def stories(pods: list[Story], as_json: bool, cell: str = "") -> None:
    """Print the story of each pod, with its cell if there are several."""
    if as_json:
        for story in pods:
            json_line({"cell": cell, **msgspec.structs.asdict(story)} if cell else story)
        return
    width = columns()
    for story in pods:
        say(f"{story.key} ({story.uid})" + (f" in cell {cell}" if cell else ""), bold=True)
        _say_wrapped(story.current, width, 2)
        for step in story.lines:
            narrow = width < WIDE_FROM
            time = step.time[11:23] if narrow else step.time[:10] + " " + step.time[11:23]
            head = f"{step.position:>9}  {time}  "
            indent = 11 if narrow else len(head)
            first, *more = textwrap.wrap(step.title, max(width - len(head), 30)) or [""]
            say(head + first)
            for text in more:
                say(" " * len(head) + text)
            for text in step.detail:
                _say_wrapped(text, width, indent + (4 if text.startswith("  ") else 2))
        if story.quarantined:
            say(f"the story ends here, because its stream is quarantined: {story.quarantined}")


def foreign(pod: ForeignPod, as_json: bool) -> None:
    """Print a pod that is not Topolog's."""
    if as_json:
        json_line(pod)
        return
    say(f"{pod.key} ({pod.uid})", bold=True)
    for line in pod.lines():
        _say_wrapped(line, columns(), 2)


def cell(name: str) -> None:
    """Print the cell of what follows, if there are several."""
    if name:
        say(f"cell {name}", bold=True)


def verdict(result: Verdict) -> None:
    """Print the result of `verify`."""
    say(
        f"{result.positions} events, {result.streams} streams, state {result.hash}, "
        f"{result.events_per_s:,.0f} events/s"
    )
    say_table(("invariant", "result"), result.rows())
    for service in result.unreported:
        say(f"{service.service} was not compared, because it does not answer: {service.why}")
    for violation in result.violations:
        say(f"{violation.invariant} at {violation.position}: {violation.message}")


def predictions(result: Predictions, by: str) -> None:
    """Print hit rates, then the misses."""
    from services.scheduler.explain.wording import within

    head = (by, "#predicted", "#hit", "#rate", "#certain", "#certain hit")
    say_table(head, [group.row() for group in result.groups])
    for miss in result.misses:
        predicted, actual = by_container(miss.predicted), by_container(miss.actual)
        say(
            f"{miss.position:>9}  {miss.pod} on {miss.node}: "
            f"predicted {predicted}{' with certainty' if miss.certain else ''}, "
            f"got {actual}; {miss.difference}{within(miss.within)}"
        )


def shadow(result: Judgement) -> None:
    """Print the counts, then the pods with a different outcome."""
    from services.scheduler.explain.shadow import OUTCOMES

    rows = [[str(result.counts[outcome]), text] for outcome, text in OUTCOMES.items()]
    say_table(("#pods", "outcome"), rows)
    say(
        f"{result.elsewhere} would have gone to another node, "
        f"{result.open} wait for their kubelet, {result.own} were placed by Topolog"
    )
    for case in result.cases:
        judged = case.judged
        topolog = f"refused: {judged.refused}" if judged.refused else "allowed"
        if judged.instead not in ("", judged.node):
            topolog += f"; {judged.instead} instead"
        kubelet = f"rejected: {case.reason}" if case.reason else "ran"
        say(f"{case.outcome:>9}  {judged.pod} on {judged.node}: {topolog}; the pod {kubelet}")


def difference(result: Difference) -> None:
    """Print a summary of two states, the pods that differ, then node by node."""
    (first, second), (first_hash, second_hash) = result.positions, result.hashes
    say(
        f"{result.before} (position {first}, state {first_hash}) -> "
        f"{result.after} (position {second}, state {second_hash})"
    )
    if not result.differs:
        say("no difference in pods, zones, charges and scheduling outcomes")
        return
    say(summary_of(result), bold=True)
    rows = [
        (pod.pod, _arrow(pod.stage), _arrow(pod.node), _arrow(pod.verdict)) for pod in result.pods
    ]
    say_table(("pod", "stage", "node", "outcome"), rows)
    for node in result.nodes:
        _node_difference(node)


def summary_of(result: Difference) -> str:
    """Return one line of counts: pods added, ended and moved, nodes and zone amounts changed."""
    added = sum(not pod.stage[0] for pod in result.pods)
    ended = sum(not pod.stage[1] for pod in result.pods)
    charges = sum(len(node.charges) for node in result.nodes)
    amounts = sum(len(node.zones) for node in result.nodes)
    return (
        f"{len(result.pods)} pods differ ({added} added, {ended} ended, "
        f"{len(result.pods) - added - ended} changed); {len(result.nodes)} nodes differ "
        f"({charges} charges, {amounts} zone amounts)"
    )


def _node_difference(node: NodeDifference) -> None:
    was_present, is_present = node.is_known
    say()
    if was_present and is_present:
        say(node.node, bold=True)
    else:
        say(f"{node.node} ({'added' if is_present else 'removed'})", bold=True)
    for flag, pair in node.flags.items():
        say(f"  {flag}: {_arrow((str(pair[0]), str(pair[1])))}")
    for charge, pair in node.charges.items():
        say(f"  {charge}: {_arrow(pair)}")
    for label, (old, new) in node.zones.items():
        resource = label.split()[2]
        change = f"{format_amount(resource, old)} -> {format_amount(resource, new)}"
        say(f"  {_amount_label(label)}: {change}")


def _amount_label(what: str) -> str:
    return what.replace("free_min", "guaranteed free").replace("free_max", "free at most")


def _arrow(pair: tuple[str, str]) -> str:
    old, new = pair
    return old if old == new else f"{old or 'none'} -> {new or 'none'}"


def prediction(answer: Prediction) -> None:
    """Print where the pod would be placed, and at which moment."""
    say(f"{answer.pod} at position {answer.position}, {answer.time} (now)", bold=True)
    _say_wrapped(answer.answer, columns(), 2)


def why_not(answer: WhyNot) -> None:
    """Print the answer, then the near miss in full."""
    when = f" ({answer.when})" if answer.when else ""
    say(
        f"{answer.pod} on {answer.node} at position {answer.position}, {answer.time}{when}",
        bold=True,
    )
    for line in (answer.answer, *answer.lines):
        _say_wrapped(line, columns(), 4 if line.startswith("  ") else 2)


def fragmentation(answer: Fragmentation, by_node: bool) -> None:
    """Print the room for each pod class; by node, if asked, else for the nodes that lose most."""
    say(f"position {answer.position}, {answer.time}")
    if not answer.classes:
        say("no live pod needs zones")
        return
    columns_ = ("request", "#pods", "#waiting", "#still fit", "#at best", "#lost")
    rows = [
        [
            room.request,
            *map(str, (room.pods, room.waiting, room.fits, room.at_best)),
            f"{room.lost_percent} %",
        ]
        for room in answer.classes
    ]
    say_table(columns_, rows)
    lossy = [
        (room.request, node)
        for room in answer.classes
        for node in room.nodes
        if by_node or node.at_best > node.fits
    ]
    if not lossy:
        return
    if not by_node:
        lossy.sort(key=lambda item: item[1].fits - item[1].at_best)
        lossy = lossy[:LOSSY_SHOWN]
    say()
    say_table(
        ("request", "node", "#still fit", "#at best", "by zones"),
        [
            [request, node.node, str(node.fits), str(node.at_best), _by_zones(node.zones)]
            for request, node in lossy
        ],
    )


def _by_zones(zones: dict[str, int]) -> str:
    return "; ".join(f"{count} in {zone}" for zone, count in zones.items()) or "-"
