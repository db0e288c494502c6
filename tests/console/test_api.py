"""The console's HTTP API: answers, errors, description, access."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pytest

from services.console.api import PREFIX
from services.console.plots import PLOTS
from tests.console.served import served, served_cells, small_cluster
from tests.ledger.given import zone
from tests.scheduler.default.story import Story

Answer = tuple[int, str, bytes]


def _fetched(url: str, headers: dict[str, str]) -> Answer:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=30
        ) as answer:
            return answer.status, answer.headers.get("Content-Security-Policy", ""), answer.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, "", refusal.read()


async def fetch(url: str, path: str, **headers: str) -> Answer:
    return await asyncio.to_thread(_fetched, url + path, headers)


async def ask(url: str, path: str, **parameters: object) -> Any:
    query = urllib.parse.urlencode(parameters)
    status, _, body = await fetch(url, f"{PREFIX}{path}?{query}")
    return json.loads(body) | {"status": status} if body[:1] == b"{" else json.loads(body)


async def test_the_map_of_a_moment_is_what_the_log_said_then() -> None:
    story = await small_cluster()
    async with served(story.log) as url:
        now_map = await ask(url, "/map", resource="cpu")
        assert [node["name"] for node in now_map["nodes"]] == ["n1", "n2"]
        assert sum(zone[2] for node in now_map["nodes"] for zone in node["zones"]) == 8000
        begin = await ask(url, "/map", resource="cpu", at=4)
        assert begin["position"] == 4
        assert sum(zone[2] for node in begin["nodes"] for zone in node["zones"]) == 0
        # Forward from there, then back: the same answers.
        assert (await ask(url, "/map", at="head"))["nodes"] == now_map["nodes"]
        assert (await ask(url, "/map", at=4))["nodes"] == begin["nodes"]


async def test_only_changed_nodes_come_after_a_position() -> None:
    story = await small_cluster()
    async with served(story.log) as url:
        position = (await ask(url, "/map"))["position"]
        unchanged = await ask(url, "/map", since=position)
        assert (unchanged["nodes"], unchanged["is_whole"], unchanged["names"]) == ([], False, 2)
        await story.node("n2", unschedulable=True)
        for _ in range(1000):
            changed = await ask(url, "/map", since=position)
            if changed["position"] > position:
                break
            await asyncio.sleep(0.01)
        assert [node["name"] for node in changed["nodes"]] == ["n2"]


async def test_a_pod_is_explained_and_the_node_that_it_did_not_get() -> None:
    async with served((await small_cluster()).log) as url:
        (story,) = await ask(url, "/story", pod="ns/large")
        assert story["current"].startswith("waits since")
        why_not = await ask(url, "/why-not", pod="large", node="n1")
        assert (why_not["node"], why_not["instead"]) == ("n1", "")
        assert any("7" in line for line in why_not["lines"])


async def test_a_node_has_zones_charges_and_events_in_words() -> None:
    async with served((await small_cluster()).log) as url:
        placed = next(pod for pod in (await ask(url, "/pods"))["pods"] if pod["node"])
        node = await ask(url, "/node", node=placed["node"])
        assert [charge["pod"] for charge in node["charges"]] == ["ns/placed"]
        assert (node["excluded"], len(node["zones"])) == ([], 2)
        events = (await ask(url, "/events", node=placed["node"], after=0))["events"]
        assert any("reserved" in event["text"] for event in events)


@pytest.mark.parametrize(
    ("path", "parameters", "status", "words"),
    [
        ("/map", {"shape": "cpu"}, 400, "no RESOURCE=QUANTITY"),
        ("/map", {"at": "999999"}, 400, "outside the log"),
        ("/map", {"color": "red"}, 400, "unknown parameter 'color'"),
        ("/map", {"since": "-1"}, 400, "since"),
        ("/pods", {"stage": "sleeping"}, 400, "stage"),
        ("/node", {}, 400, "node"),
        ("/node", {"node": "n9"}, 400, "no node 'n9'"),
        ("/story", {"pod": "nobody"}, 404, "nobody"),
        ("/plot", {"name": "moon"}, 400, "no plot 'moon'"),
        ("/events", {"limit": 10_000}, 400, "limit"),
    ],
)
async def test_a_wrong_question_is_named(
    path: str, parameters: dict[str, object], status: int, words: str
) -> None:
    async with served((await small_cluster()).log) as url:
        answer = await ask(url, path, **parameters)
        assert answer["status"] == status
        assert words in answer["error"]


async def test_every_plot_is_drawn_without_a_script() -> None:
    async with served((await small_cluster()).log) as url:
        await asyncio.sleep(0.3)  # a few samples
        assert (await ask(url, "/samples"))[0]["counts"]["nodes"] == 2
        for name in PLOTS:
            status, _, body = await fetch(url, f"{PREFIX}/plot?name={name}&dark=true")
            assert status == 200
            assert body.startswith(b"<svg")
            assert b"<script" not in body


async def test_the_description_names_every_endpoint_and_its_parameters() -> None:
    async with served((await small_cluster()).log) as url:
        description = await ask(url, "/openapi.json")
        paths = description["paths"]
        assert len(paths) == 12
        names = [item["name"] for item in paths[f"{PREFIX}/map"]["get"]["parameters"]]
        assert names == ["resource", "at", "shape", "label", "since"]
        for path in paths:
            assert (await fetch(url, path))[0] in (200, 400, 503)


async def test_a_token_protects_the_answers_and_not_the_page() -> None:
    async with served((await small_cluster()).log, http_token="secret") as url:
        assert (await fetch(url, f"{PREFIX}/now"))[0] == 401
        assert (await fetch(url, f"{PREFIX}/now", Authorization="Bearer secret"))[0] == 200
        status, policy, body = await fetch(url, "/console/")
        assert (status, b"main.js" in body) == (200, True)
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert (await fetch(url, "/console/../state"))[0] in (401, 404)


async def test_the_name_of_another_server_is_refused() -> None:
    async with served((await small_cluster()).log) as url:
        assert (await fetch(url, f"{PREFIX}/now", Host="evil.example"))[0] == 421


async def test_what_if_can_be_off() -> None:
    async with served((await small_cluster()).log, what_if_limit_s=0) as url:
        answer = await ask(url, "/what-if", change="strategy=BestFit")
        assert answer["status"] == 503
        assert "TOPOLOG_WHAT_IF_LIMIT_S" in answer["remedy"]


async def test_the_room_for_frequent_classes_follows_the_log() -> None:
    story = await small_cluster()
    async with served(story.log) as url:
        rooms = {room["request"]: room for room in await ask(url, "/room")}
        assert (rooms["cpu 4"]["fits"], rooms["cpu 4"]["at_best"]) == (3, 5)
        await story.report(zone(0, 6), zone(1, 6, free=2), node="n2", at=2)
        while rooms["cpu 4"]["fits"] == 3:
            rooms = {room["request"]: room for room in await ask(url, "/room")}
        assert (rooms["cpu 4"]["fits"], rooms["cpu 4"]["at_best"]) == (2, 4)


async def test_one_console_shows_each_cell() -> None:
    first, second = await small_cluster(), Story()
    await second.node("n3")
    async with served_cells({"a": first.log, "b": second.log}) as url:
        pages = [await fetch(url, f"{path}{PREFIX}/map") for path in ("", "/cells/a", "/cells/b")]
        nodes = [[node["name"] for node in json.loads(body)["nodes"]] for _, _, body in pages]
        assert nodes == [["n1", "n2"], ["n1", "n2"], ["n3"]]
        for path in ("", "/cells/b"):
            assert json.loads((await fetch(url, f"{path}{PREFIX}/cells"))[2]) == ["a", "b"]
        assert (await fetch(url, f"/cells/c{PREFIX}/map"))[0] == 404
    async with served(first.log) as url:
        assert json.loads((await fetch(url, f"{PREFIX}/cells"))[2]) == []
