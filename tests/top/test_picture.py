"""The live picture without a terminal: bars from the ledger, keys, windows of 5,000 nodes,
widths.
"""

from __future__ import annotations

import msgspec
import pytest

from services.top.draw import CHARGED, FREE, USED, Scene, bar_text, draw, window
from services.top.model import (
    NodeRow,
    Waiting,
    ZoneBar,
    age_text,
    node_row,
    pods_of,
    queue_of,
    resources_of,
)
from services.top.screen import keys_in, node_matches
from services.top.view import View, pressed
from shared.domain.quantity import format_amount
from shared.events.cluster_events import PodObserved
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import NodeCharged, PodReserved, PodVerdictChanged
from tests.ledger.given import History, pod, report, zone


def charged_node() -> History:
    given = History()
    given.tell("report/n1", NodeReported(report(zone(0, 8), zone(1, 8))))
    given.tell("pod/uid-web", PodObserved(pod("web", cpus=2)))
    given.tell("pod/uid-web", PodReserved("uid-web", "n1", 1, 3, predicted={"c": (0,)}))
    given.tell("node/n1", NodeCharged("n1", "uid-web", {0: {"cpu": 2000}, 1: {"cpu": 2000}}))
    return given


def test_a_bar_shows_used_charged_and_free_amounts() -> None:
    ledger = charged_node().ledger
    row = node_row(ledger.nodes["n1"], "cpu")
    assert row.bars == (ZoneBar(0, 0, 2000, 6000), ZoneBar(1, 0, 2000, 6000))
    assert row.taken == pytest.approx(0.25)
    assert bar_text(row.bars[0], 8).plain == CHARGED * 2 + FREE * 6
    assert bar_text(ZoneBar(0, 4000, 2000, 2000), 8).plain == USED * 4 + CHARGED * 2 + FREE * 2


@pytest.mark.parametrize("width", [2, 3, 5, 24])
@pytest.mark.parametrize(
    "parts", [(1, 1, 998), (998, 1, 1), (500, 500, 0), (0, 0, 7), (0, 0, 0), (999, 0, 1)]
)
def test_a_bar_is_as_wide_as_it_shall_be_and_hides_no_free_room(
    parts: tuple[int, int, int], width: int
) -> None:
    text = bar_text(ZoneBar(0, *parts), width).plain
    assert len(text) == width
    if parts[2]:
        assert FREE in text


def test_pods_with_a_reason_come_first_in_the_queue() -> None:
    given = History()
    given.tell("pod/uid-a", PodObserved(pod("a", cpus=2)))
    given.tell("pod/uid-b", PodObserved(pod("b", cpus=9)))
    given.tell("pod/uid-b", PodVerdictChanged("uid-b", "0/1 nodes: too little cpu"))
    assert [(one.pod, one.reason) for one in queue_of(given.ledger)] == [
        ("ns/b", "0/1 nodes: too little cpu"),
        ("ns/a", "not decided yet"),
    ]


def test_resources_come_in_the_order_that_people_ask_for_them() -> None:
    assert resources_of(charged_node().ledger.nodes.values()) == ["cpu"]


def scene(view: View, nodes: int = 3, zones: int = 2) -> Scene:
    bars = tuple(ZoneBar(number, 4000, 2000, 2000) for number in range(zones))
    rows = [
        NodeRow(f"node-{number:04d}", bars, 3, 0.75, "expired" if number == 0 else "")
        for number in range(nodes)
    ]
    waiting = [Waiting("uid-b", "ns/b", "0/1 nodes: too little cpu")]
    return Scene(view, "cpu", 10, 10, nodes, rows, waiting, {"pending": 1}, {}, 0, [])


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("zones", [1, 2, 8])
def test_the_picture_fits_the_terminal(width: int, zones: int) -> None:
    lines = draw(scene(View(), 5000, zones), width, 24)
    assert len(lines) == 24
    assert max(line.cell_len for line in lines) <= width
    assert any("node-0000" in line.plain for line in lines)


def test_five_thousand_nodes_are_a_window_around_the_cursor() -> None:
    shown = "\n".join(line.plain for line in draw(scene(View(cursor=2500), 5000), 100, 24))
    assert ">node-2500" in shown
    assert "node-0000" not in shown
    assert window(4999, 5000, 10) == 4990
    assert window(0, 3, 10) == 0


def test_keys_move_sort_search_open_and_go_back() -> None:
    view = View()
    steps: list[tuple[str, dict[str, object]]] = [
        ("down", {"cursor": 1}),
        ("end", {"cursor": 4}),
        ("home", {"cursor": 0}),
        ("s", {"sort": 1}),
        ("r", {"resource": 1}),
        (" ", {"paused": True}),
        ("/", {"typing": True}),
        ("q", {"search": "q", "over": False}),
        ("backspace", {"search": ""}),
        ("7", {"search": "7"}),
        ("enter", {"typing": False, "search": "7"}),
        ("enter", {"page": "node", "subject": "n7", "back": "nodes"}),
        ("esc", {"page": "nodes", "subject": ""}),
        ("tab", {"page": "queue"}),
        ("enter", {"page": "pod", "subject": "n7", "back": "queue"}),
        ("backspace", {"page": "queue"}),
        ("tab", {"page": "pods"}),
        ("enter", {"page": "pod", "subject": "n7", "back": "pods"}),
        ("esc", {"page": "pods"}),
        ("tab", {"page": "nodes"}),
        ("?", {"page": "help"}),
        ("esc", {"page": "nodes"}),
        ("?", {"page": "help"}),
        ("?", {"page": "nodes"}),
        ("q", {"over": True}),
    ]
    for key, change in steps:
        view = pressed(view, key, "n7", 5)
        assert {name: getattr(view, name) for name in change} == change, key


def test_q_asks_before_it_stops_a_cluster() -> None:
    view = View(owns_cluster=True)
    asked = pressed(view, "q", "", 0)
    assert (asked.asking, asked.over) == (True, False)
    assert "Stop the cluster" in "\n".join(line.plain for line in draw(scene(asked), 80, 24))
    assert pressed(asked, "n", "", 0) == view
    assert pressed(asked, "y", "", 0).over


def test_numbers_are_shown_at_80_columns_with_a_space_after_them() -> None:
    gib = 1 << 30
    bars = (ZoneBar(0, 0, 0, 12345 * gib // 100), ZoneBar(1, 0, 0, 12345 * gib // 100))
    rows = [NodeRow("node-000", bars, 12, 0.1, "")]
    shown = msgspec.structs.replace(scene(View()), resource="memory", rows=rows)
    (line,) = [line.plain for line in draw(shown, 80, 24) if "node-000" in line.plain]
    amount = format_amount("memory", bars[0].free)
    assert line.count(f"{FREE} {amount} free  ") == 2
    assert "12 pods" in line


def test_a_running_pod_is_found_by_its_name() -> None:
    ledger = charged_node().ledger
    row = node_row(ledger.nodes["n1"], "cpu")
    assert node_matches(row, "web")
    assert not node_matches(row, "db")
    created = {"uid-web": 5_000_000}
    (pod_row,) = pods_of(ledger, created, 95_000_000)
    assert (pod_row.pod, pod_row.node, pod_row.age_s) == ("ns/web", "n1", 90)
    pods = msgspec.structs.replace(scene(View(page="pods")), pods=[pod_row])
    assert any("ns/web  n1  reserved" in line.plain for line in draw(pods, 80, 24))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172_800, "2d")]
)
def test_an_age_is_written_as_kubectl_writes_it(seconds: int, text: str) -> None:
    assert age_text(seconds) == text


def test_terminal_input_becomes_keys() -> None:
    assert keys_in("\x1b[A\x1b[6~q\r\t\x7f/\x1b") == [
        "up",
        "pagedown",
        "q",
        "enter",
        "tab",
        "backspace",
        "/",
        "esc",
    ]
    assert keys_in("\x1b[1;5Cx") == ["x"]
