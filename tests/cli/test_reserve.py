"""`topolog reserve` on a log that a scheduler works on."""

from __future__ import annotations

import sys

import pytest

from services.cli.main import main
from services.cli.output import CommandError
from services.cli.reserve import _owner_text, create, delete, listed
from services.replay.explain import explain
from shared.domain.booking import Owner, Terms
from tests.ledger.given import pod, zone
from tests.scheduler.default.story import Story

TERMS = Terms((Owner("ns", labels={"app": "web"}),))


async def test_a_booking_from_its_making_to_its_end() -> None:
    story = Story()
    await story.node()
    await story.report(zone(0, 8), zone(1, 8))
    await create(story.log, "room", "cpu=6", TERMS, {}, 1)
    (row,) = await listed(story.log)
    assert (row["booking"], row["node"], row["waits"]) == ("room", "", "waits: not decided yet")
    await story.fold()
    await story.decide()
    with pytest.raises(CommandError, match="there is a booking 'room'"):
        await create(story.log, "room", "cpu=6", TERMS, {}, 1)
    web = pod("web-0", cpus=4, labels={"app": "web"})
    await story.arrives(web)
    await story.decide()
    (row,) = await listed(story.log)
    assert (row["node"], row["left"], row["pods"]) == ("n1", {"cpu": 2000}, ["ns/web-0"])
    assert (row["owners"], row["cards"]) == (["ns/* app=web"], [])
    (story_lines,) = await explain(story.log, "web-0")
    assert any("in the room of @booking/room" in line.detail for line in story_lines.lines)
    await delete(story.log, "room", 2)
    assert await listed(story.log) == []
    with pytest.raises(CommandError, match="there is no booking 'room'"):
        await delete(story.log, "room", 2)
    await create(story.log, "room", "cpu=1", TERMS, {}, 3)
    assert [row["request"] for row in await listed(story.log)] == [{"cpu": 1000}]


def test_every_kind_of_owner_is_named() -> None:
    by_controller = Owner("ns", controller=("", "Job", "train", ""))
    by_expression = Owner(labels={"a": "b"}, requirements=(("app", "Exists", ()),))
    assert _owner_text(by_controller) == "ns/* Job train"
    assert _owner_text(by_expression) == "a=b,app Exists"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["room", "--for", "cpu=1"], "the booking would have no owners"),
        (["Room!", "--for", "cpu=1", "--owner", "a=b"], "is no label"),
        (["room", "--for", "cpu=1", "--owner", "a"], "is no KEY=VALUE"),
        (["room", "--for", "cpu=1", "--owner", "a=b", "--policy", "x"], "--policy 'x'"),
        (["room", "--for", "cpu=1", "--owner", "a=b", "--ttl", "soon"], "is no duration"),
    ],
)
def test_a_mistake_is_named(
    arguments: list[str],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["topolog", "reserve", "create", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, problem in capsys.readouterr().err) == (2, True)
