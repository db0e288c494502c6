"""`topolog replay diff | why-not` and `topolog log export` on a small history in a real Postgres
and in a file.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from services.cli.disruptions import read_budgets, unowned
from services.cli.main import main
from services.replay.defragmenting import Budget
from shared.eventlog.port import Commit, Draft
from shared.eventlog.postgres import PostgresEventLog
from shared.ledger.state import LedgerPod
from tests.cli.test_replay import HISTORY
from tests.eventlog.conftest import log_url  # noqa: F401 - fixture
from tests.ledger.given import pod

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def topolog(
    log_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run `topolog ...`; return exit code, stdout and stderr."""

    async def write() -> None:
        log = await PostgresEventLog.open(log_url)
        for number, drafts in enumerate(HISTORY):
            events = tuple(Draft(stream, event) for stream, event in drafts)
            await log.append(
                [Commit(f"c{number}", "test", 0, 1_700_000_000_000_000 + number, events)]
            )
        await log.close()

    asyncio.run(write())
    monkeypatch.setenv("TOPOLOG_DATABASE_URL", log_url)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["topolog", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def test_diff_shows_the_changes_between_two_positions(
    topolog: Run,
) -> None:
    code, out, _ = topolog("replay", "diff", "2", "head", "--json")
    result = json.loads(out)
    assert code == 1
    assert {item["pod"]: item["stage"] for item in result["pods"]} == {
        "ns/web": ["", "running"],
        "ns/big": ["", "pending"],
    }
    (node,) = result["nodes"]
    assert node["charges"] == {"ns/web (uid-web)": ["", "confirmed zone 0"]}
    assert node["zones"]["zone 0 cpu free_min"] == [8000, 6000]
    assert "zone 0 cpu guaranteed free: 8 -> 6" in topolog("replay", "diff", "2", "head")[1]
    assert "2 pods differ (2 added, 0 ended" in topolog("replay", "diff", "2", "head")[1]
    code, out, _ = topolog("replay", "diff", "7", "7")
    assert (code, "no difference" in out) == (0, True)


def test_a_file_of_a_path_with_an_at_sign_is_one_too(topolog: Run, tmp_path: Path) -> None:
    file = tmp_path / "me@host" / "x.topolog.gz"
    assert topolog("log", "export", "--out", str(file))[0] == 0
    assert topolog("replay", "diff", "head", str(file))[0] == 0
    assert topolog("replay", "diff", "3", f"{file}@3")[0] == 0


def test_a_missing_file_is_reported_as_a_file(topolog: Run, tmp_path: Path) -> None:
    missing = tmp_path / "x.topolog.gz"
    for text in (str(missing), f"{missing}@3"):
        code, _, err = topolog("replay", "diff", "head", text)
        assert (code, f"there is no file {missing}\n" in err) == (2, True), err


def test_a_log_and_its_export_do_not_differ(topolog: Run, tmp_path: Path) -> None:
    file = str(tmp_path / "x.topolog.gz")
    code, out, _ = topolog("log", "export", "--out", file)
    assert (code, out.startswith("exported positions 1 to 11 to")) == (0, True)
    assert topolog("replay", "diff", "head", file)[0] == 0
    code, out, _ = topolog("replay", "diff", f"{file}@3", "head")
    assert (code, "pending -> running" in out) == (1, True)
    code, out, _ = topolog("replay", "verify", "--json", "--database-url", file)
    assert (code, json.loads(out)["positions"]) == (0, 11)
    assert "ns/web" in topolog("replay", "explain", "web", "--database-url", file)[1]


def test_the_environment_may_name_a_file(
    topolog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, named = str(tmp_path / "x.topolog.gz"), tmp_path / "named"
    topolog("log", "export", "--out", file)
    named.write_text(file + "\n")
    asked = [
        ("explain", "web"),
        ("why-not", "web", "--node", "n1"),
        ("whatif",),
        ("log",),
        ("at", "3"),
        ("verify",),
    ]
    for variable, value in (
        ("TOPOLOG_DATABASE_URL", file),
        ("TOPOLOG_DATABASE_URL_FILE", str(named)),
    ):
        monkeypatch.delenv("TOPOLOG_DATABASE_URL")
        monkeypatch.setenv(variable, value)
        for arguments in asked:
            code, out, err = topolog("replay", *arguments)
            assert (code, bool(out), err) == (0, True, ""), (variable, arguments)
        monkeypatch.setenv("TOPOLOG_DATABASE_URL", value)


def test_a_range_is_exported_and_a_file_takes_no_events(topolog: Run, tmp_path: Path) -> None:
    file = str(tmp_path / "x.topolog.gz")
    assert (
        json.loads(
            topolog("log", "export", "--out", file, "--from", "3", "--to", "5", "--json")[1]
        )["first"]
        == 3
    )
    code, _, err = topolog("replay", "verify", "--database-url", file)
    assert (code, "begins at position 3" in err, "log export" in err) == (2, True, True)
    code, _, err = topolog("log", "skip", "3", "--reason", "x", "--database-url", file)
    assert (code, "which is read-only" in err) == (2, True)
    code, _, err = topolog("log", "export", "--out", file, "--from", "99")
    assert (code, "outside the log" in err) == (2, True)


def test_why_not_shows_the_obstacle_and_a_remedy(topolog: Run) -> None:
    code, out, _ = topolog("replay", "why-not", "big", "--node", "n1", "--at", "9")
    assert (code, "n1 refuses it: can never be aligned there" in out) == (0, True)
    assert "request at most 8 cpu" in " ".join(out.split())
    asked = ("replay", "why-not", "ns/web", "--node", "n1")
    result = json.loads(topolog(*asked, "--at", "3", "--json")[1])
    assert (result["position"], result["refusal"], result["score"] >= 0) == (3, {}, True)
    assert "it is there: running on n1" in topolog("replay", "why-not", "web", "--node", "n1")[1]
    code, out, _ = topolog("replay", "why-not", "big", "--node", "n1")
    assert (code, "(now)" in out) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "problem"),
    [
        (("web", "--node", "n9"), 2, "no node 'n9'"),
        (("wob", "--node", "n1"), 1, "did you mean ns/web?"),
        (("web", "--node", "n1", "--at", "1"), 2, "is not in the log at position 1"),
        (("web", "--node", "n1", "--at", "soon"), 2, "is no moment"),
    ],
)
def test_an_invalid_question_is_refused_with_a_remedy(
    topolog: Run, arguments: tuple[str, ...], exit_code: int, problem: str
) -> None:
    code, _, err = topolog("replay", "why-not", *arguments)
    assert (code, problem in err, "  try: " in err) == (exit_code, True, True)


@pytest.mark.parametrize(
    "verb",
    [
        ("replay", "explain", "wob"),
        ("replay", "why-not", "wob", "--node", "n1"),
        ("replay", "log", "--pod", "wob"),
        ("log", "redact", "wob", "--reason", "x"),
    ],
    ids=lambda verb: "-".join(verb[:2]),
)
def test_an_unknown_pod_has_the_same_exit_code_in_every_verb(
    topolog: Run, verb: tuple[str, ...]
) -> None:
    code, out, err = topolog(*verb)
    assert (code, out) == (1, "")
    assert "no pod 'wob' in the log; did you mean ns/web?" in err


def test_room_is_counted_at_any_position(topolog: Run) -> None:
    code, out, _ = topolog("replay", "fragmentation", "--json")
    rooms = {room["request"]: room for room in json.loads(out)["classes"]}
    assert code == 0
    assert any(room["fits"] for room in rooms.values()), rooms
    table = topolog("replay", "fragmentation", "--node", "n1")[1]
    assert "still fit" in table
    assert "by zones" in table
    assert "no live pod needs zones" in topolog("replay", "fragmentation", "--at", "2")[1]


def test_a_plan_of_moves_is_a_table_or_json(topolog: Run) -> None:
    code, out, _ = topolog("plan", "defragment", "--for", "cpu=2", "--json")
    plan = json.loads(out)
    assert (code, plan["missing"], plan["not_asked"]) == (0, 0, "no kubeconfig")
    assert [step["node"] for step in plan["steps"]] == ["n1"]
    code, out, _ = topolog("plan", "defragment", "--for", "cpu=2")
    assert "place   one more pod" in out
    assert "budgets and owners of pods were not asked: no kubeconfig" in out
    code, out, _ = topolog("plan", "defragment", "--for", "cpu=100")
    assert (code, "make room for 1 more" in out) == (1, True)
    code, _, err = topolog("plan", "defragment", "--for", "cpu=x")
    assert (code, "no RESOURCE=QUANTITY" in err) == (2, True)


def test_budgets_are_read_with_the_pods_they_cover() -> None:
    pods = {f"uid-{name}": LedgerPod(pod(name, cpus=1, labels={"app": name})) for name in "ab"}
    objects = [
        {
            "metadata": {"namespace": "ns", "name": name},
            "spec": {"selector": selector},
            "status": {"disruptionsAllowed": 1},
        }
        for name, selector in (
            ("one", {"matchLabels": {"app": "a"}}),
            ("all", {}),
            ("none", None),
            ("unread", {"matchExpressions": [{"key": "app", "operator": "Near"}]}),
        )
    ]
    budgets = {budget.name: budget for budget in read_budgets(objects, pods)}
    assert budgets["ns/one"] == Budget("ns/one", frozenset(["uid-a"]), 1)
    assert budgets["ns/all"].uids == pods.keys()
    assert "ns/none" not in budgets
    assert (set(budgets["ns/unread"].uids), budgets["ns/unread"].allowed) == (set(pods), 0)
    owned = {"metadata": {"uid": "uid-a", "ownerReferences": [{"controller": True}]}}
    assert unowned([owned, {"metadata": {"uid": "uid-b"}}]) == {"uid-b"}
