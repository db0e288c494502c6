"""The live picture without a terminal: bars from the ledger, keys, windows of 5,000 nodes, widths."""

from __future__ import annotations

import pytest

from services.top.draw import CHARGED, FREE, USED, Scene, bar_text, draw, window
from services.top.model import NodeRow, Waiting, ZoneBar, node_row, queue_of, resources_of
from services.top.screen import keys_in
from services.top.view import View, pressed
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


def test_a_bar_shows_what_is_used_what_is_charged_and_what_is_free() -> None:
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


def test_the_queue_tells_reasons_first() -> None:
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
        NodeRow(f"node-{number:04d}", bars, 3, 0.75, "silent" if number == 0 else "")
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
    for key, change in [
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
        ("?", {"page": "help"}),
        ("esc", {"page": "queue"}),
        ("q", {"over": True}),
    ]:
        view = pressed(view, key, "n7", 5)
        assert {name: getattr(view, name) for name in change} == change, key


def test_what_a_terminal_sends_becomes_keys() -> None:
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
