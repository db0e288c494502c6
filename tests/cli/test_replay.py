"""`topolog replay ...` on a small history in a real Postgres: what people read, and JSON that
parses.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from services.cli.main import main
from services.scheduler.score.strategies.koordinator import LABEL
from shared.domain.refusal import Reason, Refusal, ZoneState
from shared.domain.report import Placement, ZonedAmount
from shared.eventlog.port import Appended, Commit, Draft
from shared.eventlog.postgres import PostgresEventLog
from shared.events.binding_events import BindIntended, PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved, PodObserved, PodRunning
from shared.events.report_events import NodeReportChanged, NodeReported
from shared.events.scheduling_events import NodeCharged, PodReserved, PodVerdictChanged
from tests.eventlog.conftest import log_url  # noqa: F401 - fixture
from tests.ledger.given import pod, report, zone

REFUSAL = Refusal(
    "n1",
    Reason.NO_SINGLE_ZONE,
    resource="cpu",
    container="c",
    asked=9000,
    best=6000,
    best_zone=0,
    zones=(ZoneState(0, 6000, 6000, 8000, ("uid-web",)), ZoneState(1, 8000, 8000, 8000)),
)
PLACED = Placement("ns", "web", "c", (ZonedAmount("cpu", (0,), 2000),))
HISTORY: list[list[tuple[str, Event]]] = [
    [
        (
            "node/n1",
            NodeObserved(
                "n1", "uid-n1", allocatable={"cpu": 16_000}, labels={LABEL: "DistributeEvenly"}
            ),
        )
    ],
    [("report/n1", NodeReported(report(zone(0, 8), zone(1, 8))))],
    [("pod/uid-web", PodObserved(pod("web", cpus=2)))],
    [
        (
            "pod/uid-web",
            PodReserved("uid-web", "n1", 1, 3, score=40, candidates=1, predicted={"c": (0,)}),
        ),
        ("node/n1", NodeCharged("n1", "uid-web", {0: {"cpu": 2000}, 1: {"cpu": 2000}})),
    ],
    [("pod/uid-web", BindIntended("uid-web", "ns", "web", "n1", 4))],
    [("pod/uid-web", PodBound("uid-web", "n1"))],
    [("pod/uid-web", PodRunning("uid-web", "n1"))],
    [("pod/uid-big", PodObserved(pod("big", cpus=9)))],
    [
        (
            "pod/uid-big",
            PodVerdictChanged(
                "uid-big",
                "0/1 nodes: 1 no single zone",
                {"no single zone": 1},
                (msgspec.to_builtins(REFUSAL),),
            ),
        )
    ],
    [
        (
            "report/n1",
            NodeReportChanged(
                "n1", "boot-1", 2_000, available={0: {"cpu": 6000}}, listed=(PLACED,)
            ),
        )
    ],
]

Shown = Callable[..., str]


@pytest.fixture
def replay(
    log_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Shown:
    """Run `topolog replay ...` on the history, and return its output."""

    async def write() -> None:
        log = await PostgresEventLog.open(log_url)
        for number, drafts in enumerate(HISTORY):
            commit = Commit(
                f"c{number}",
                "test",
                0,
                1_700_000_000_000_000 + number,
                tuple(Draft(s, f) for s, f in drafts),
            )
            assert isinstance((await log.append([commit]))[0], Appended)
        await log.close()

    asyncio.run(write())

    def run(*arguments: str) -> str:
        monkeypatch.setattr(
            sys, "argv", ["topolog", "replay", *arguments, "--database-url", log_url]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert not ended.value.code, printed.err
        return printed.out

    return run


def parsed(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_verb_prints_json_lines_that_parse(replay: Shown) -> None:
    events = parsed(replay("log", "--json"))
    assert [event["type"] for event in events] == [
        type(event).__name__ for commit in HISTORY for _, event in commit
    ]
    assert [event["position"] for event in events] == list(range(1, 12))
    (stand,) = parsed(replay("at", "5", "--json"))
    assert (stand["position"], stand["head"], [node["node"] for node in stand["nodes"]]) == (
        5,
        11,
        ["n1"],
    )
    (output,) = parsed(replay("explain", "web", "--json"))
    assert output["key"] == "ns/web"
    assert [line["position"] for line in output["lines"]] == [3, 4, 5, 6, 7, 8, 11]
    (verdict,) = parsed(replay("verify", "--json"))
    assert verdict["violations"] == []
    (predictions,) = parsed(replay("predictions", "--json"))
    assert isinstance(predictions, dict)


def test_filters_narrow_the_list(replay: Shown) -> None:
    assert {row["stream"] for row in parsed(replay("log", "--stream", "pod/*", "--json"))} == {
        "pod/uid-web",
        "pod/uid-big",
    }
    assert [row["type"] for row in parsed(replay("log", "--pod", "ns/big", "--json"))] == [
        "PodObserved",
        "PodVerdictChanged",
    ]
    assert [
        row["position"] for row in parsed(replay("log", "--from", "4", "--limit", "2", "--json"))
    ] == [4, 5]
    assert {row["type"] for row in parsed(replay("log", "--type", "Node*", "--json"))} >= {
        "NodeReported",
        "NodeCharged",
    }


def test_a_story_reads_from_queue_to_running(replay: Shown) -> None:
    printed = replay("explain", "ns/web")
    assert printed.startswith("ns/web (uid-web)\n")
    output = printed[printed.index("queued") :]
    steps = [
        "queued",
        "Guaranteed, requests cpu 2",
        "reserved on n1",
        "predicted on zone 0",
        "charged to n1",
        "zone 0: cpu 2",
        "binding to n1 intended",
        "bound to n1",
        "running on n1",
    ]
    places = [output.find(step) for step in steps]
    assert -1 not in places, output
    assert places == sorted(places)


def test_a_waiting_pod_is_explained_with_amounts_zones_and_holders(replay: Shown) -> None:
    output = replay("explain", "big")
    assert "waits: 0/1 nodes: 1 no single zone" in output
    assert (
        "near miss n1: no single zone, container c, requests cpu 9, zone 0 has 6 guaranteed free"
        in output
    )
    assert "zone 0: cpu 6 of 8 guaranteed free; held by ns/web" in output


def test_the_past_state_is_reconstructed(replay: Shown) -> None:
    earlier, later = replay("at", "3"), replay("at", "5")
    assert "n1" in earlier
    assert "waiting: ns/web" in earlier
    assert "ns/web  unconfirmed: may be on zones 0 and 1, predicted on zone 0" in later


def test_a_missing_name_is_refused_with_a_suggestion(
    replay: Shown,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    log_url: str,  # noqa: F811, RUF100
) -> None:
    for arguments, says in (
        (["explain", "nobody"], "no pod 'nobody'"),
        (["at", "5", "--node", "n9"], "'n9'"),
    ):
        monkeypatch.setattr(
            sys, "argv", ["topolog", "replay", *arguments, "--database-url", log_url]
        )
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code
        assert says in (printed := capsys.readouterr().err)
        assert "try: topolog replay" in printed


@pytest.mark.parametrize(
    ("verb", "wrong"),
    [("log", ("--since", "whenever")), ("at", ("whenever",)), ("predictions", ("--by", "zone"))],
)
def test_a_usage_error_points_to_the_help_of_its_own_verb(
    log_url: str,  # noqa: F811, RUF100
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    wrong: tuple[str, ...],
) -> None:
    monkeypatch.setattr(sys, "argv", ["topolog", "replay", verb, *wrong, "--database-url", log_url])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"topolog replay {verb} --help" in capsys.readouterr().err


def test_an_unknown_strategy_label_is_reported_for_the_node_and_its_pods(
    replay: Shown,
) -> None:
    problem = (
        f"label {LABEL}=DistributeEvenly is not implemented; set it to LeastAllocated or "
        "MostAllocated, or remove it"
    )
    (stand,) = parsed(replay("at", "5", "--json"))
    assert stand["nodes"][0]["problems"] == [problem]
    (output,) = parsed(replay("explain", "web", "--json"))
    assert [problem in line["detail"] for line in output["lines"]] == [
        line["title"].startswith("reserved") for line in output["lines"]
    ]
    for printed in (replay("at", "5"), replay("explain", "web")):
        assert "DistributeEvenly is not implemented" in printed


def test_a_line_of_the_log_is_time_pod_node_and_one_sentence(replay: Shown) -> None:
    lines = replay("log").splitlines()
    assert len(lines) == 11
    assert lines[3].split() == [
        *("4", "2023-11-14", "22:13:20.000", "ns/web", "n1"),
        *[
            "reserved,",
            "predicted",
            "on",
            "zone",
            "0;",
            "best",
            "of",
            "1",
            "node(s),",
            "score",
            "40",
        ],
    ]
    assert lines[4].endswith("charged in zones 0 and 1: cpu 2 each")
    assert lines[10].endswith("reports: now holds ns/web on zone 0")
    assert not any("{" in line or "uid-" in line for line in lines)


def test_json_of_the_log_is_uncut(replay: Shown) -> None:
    reserved = parsed(replay("log", "--type", "PodReserved", "--json"))[0]
    assert (reserved["pod"], reserved["node"], reserved["fact"]["predicted"]) == (
        "ns/web",
        "n1",
        {"c": [0]},
    )
    (waits,) = parsed(replay("log", "--type", "PodVerdictChanged", "--json"))
    assert waits["fact"]["detail"][0]["zones"][0]["holders"] == ["uid-web"]


def test_the_zone_of_the_kubelet_is_shown_with_its_report(replay: Shown) -> None:
    output = replay("explain", "web")
    assert (
        "running on n1 since 2023-11-14T22:13:20.000006Z; on zone 0, as predicted: "
        "confirmed by report 2"
    ) in output
    assert "confirmed on zone 0 of n1, as predicted" in output
    (story,) = parsed(replay("explain", "web", "--json"))
    assert story["zones"] == {
        **{"node": "n1", "predicted": {"c": [0]}, "charged": [0, 1], "certain": False},
        **{"confirmed": {"c": [0]}, "report": 2, "at": 11},
    }


def test_at_gives_numbers_and_objects_to_machines(replay: Shown) -> None:
    (stand,) = parsed(replay("at", "5", "--json"))
    node = stand["nodes"][0]
    assert node["zones"][0] == {
        "zone": 0,
        "resources": {"cpu": {"allocatable": 8000, "free_min": 6000, "free_max": 8000}},
    }
    (charge,) = node["charges"]
    assert (charge["pod"], charge["state"], charge["possible"], charge["predicted"]) == (
        *("ns/web", "unconfirmed"),
        *({"c": [0, 1]}, {"c": [0]}),
    )


@pytest.mark.parametrize(
    ("moment", "position"),
    [
        (("head",), 11),
        (("now",), 11),
        (("-6",), 5),
        (("-100",), 1),
        (("5",), 5),
        (("10m", "ago"), 11),
        (("2023-11-15",), 11),
    ],
)
def test_moments_are_taken_as_people_write_them(
    replay: Shown, moment: tuple[str, ...], position: int
) -> None:
    assert parsed(replay("at", *moment, "--json"))[0]["position"] == position


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("log", "--pod", "wbe"), "no pod 'wbe' in the log; did you mean ns/web?"),
        (("log", "--node", "n2"), "no node 'n2' in the log; did you mean n1?"),
        (("at", "12"), "position 12 is outside the log, which goes from 1 to 11"),
        (("at", "2020-01-01"), "lies before the log begins"),
        (("at", "5", "--node", "n9"), "no node 'n9' at position 5; did you mean n1?"),
        (("explain", "ns/wep"), "did you mean ns/web"),
        (
            ("verify", "--service", "http://127.0.0.1:9/state"),
            "no state of a service: connection refused",
        ),
        (
            ("verify", "--service", "schedular", "--data-dir", "/nonexistent"),
            "'schedular' is no service of",
        ),
        (("log", "--from", "soon"), "--from 'soon' is no moment"),
    ],
)
def test_an_unknown_name_is_an_error_with_a_near_match(
    replay: Shown,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    log_url: str,  # noqa: F811, RUF100
    arguments: tuple[str, ...],
    says: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["topolog", "replay", *arguments, "--database-url", log_url])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code
    printed = capsys.readouterr().err
    assert says in printed
    assert "  try: " in printed
