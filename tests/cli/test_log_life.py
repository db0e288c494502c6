"""Wrong usage of `topolog log import`, `archive`, `redact` and `status` prints one problem and one
remedy, and sets an exit code.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.cli.log_life import WHAT
from tests.cli.test_replay_asking import Run, topolog  # noqa: F401 - fixture
from tests.eventlog.conftest import log_url  # noqa: F401 - fixture
from tests.fixtures.servers import short_folder

AWAY = "postgresql://nobody@127.0.0.1:9/x"


def test_status_names_the_consumer_that_delays_the_archive(topolog: Run) -> None:  # noqa: F811, RUF100
    code, out, _ = topolog("log", "status", "--json")
    decoded = json.loads(out)
    assert (code, decoded["head"], decoded["archived_to"], decoded["partitions"][0]["full"]) == (
        0,
        11,
        0,
        False,
    )
    assert "nothing above position 11 can be archived yet" in topolog("log", "status")[1]
    assert "nothing to archive" in topolog("log", "archive")[1]
    out = topolog("log", "status")[1]
    assert all(words in out for words in WHAT.values()), out
    assert set(WHAT) == set(decoded["tables"])


@pytest.mark.parametrize(
    ("arguments", "exit_code", "problem"),
    [
        (("redact", "web", "--reason", "x"), 1, "has not ended"),
        (("redact", "wob", "--reason", "x"), 1, "did you mean ns/web?"),
        (("redact", "web"), 2, "--reason"),
        (("archive", "--older-than", "soon"), 2, "no number of days"),
        (("archive", "--keep", "much"), 2, "no size"),
        *(
            (("archive", "--older-than", text), 2, "no number of days above 0")
            for text in ("-5d", "nan", "inf", "0d")
        ),
        *((("archive", "--keep", text), 2, "no size above 0") for text in ("-5GiB", "0")),
        (("import", "FILE"), 1, "cannot be read"),
        (("import", "HISTORY"), 1, "already holds 11 events, of the same history"),
        (
            ("import", "HISTORY", "--data-dir", "FILE", "--database-url", AWAY),
            2,
            "--data-dir and --database-url both name a log",
        ),
        (("import", "HISTORY", "--database-url", "HISTORY"), 2, "is no database"),
        (("import", "HISTORY", "--database-url", "sqlite://x"), 2, "must begin with postgresql://"),
        (
            ("import", "HISTORY", "--database-url", AWAY),
            1,
            "Postgres at postgresql://127.0.0.1:9/x does not answer (connection",
        ),
        (
            ("import", "HISTORY", "--database-url", "NOWHERE"),
            1,
            'nowhere does not answer (database "nowhere" does not exist)',
        ),
        (("status", "--database-url", "HISTORY"), 2, "is an exported history"),
        (("export", "--out", "FOLDER"), 1, "is a folder"),
        (("export", "--out", "/proc/self/fd/0"), 1, "is "),
    ],
)
def test_a_refusal_has_a_remedy(
    topolog: Run,  # noqa: F811, RUF100
    log_url: str,  # noqa: F811, RUF100
    tmp_path: Path,
    arguments: tuple[str, ...],
    exit_code: int,
    problem: str,
) -> None:
    (tmp_path / "folder").mkdir()
    history = str(tmp_path / "x.topolog.gz")
    topolog("log", "export", "--out", history)
    server, _, options = log_url.partition("?")
    nowhere = f"{server.rpartition('/')[0]}/nowhere?{options}"
    meant = {
        "FILE": str(tmp_path / "no"),
        "HISTORY": history,
        "FOLDER": str(tmp_path / "folder"),
        "NOWHERE": nowhere,
    }
    code, _, err = topolog("log", *(meant.get(item, item) for item in arguments))
    assert (code, problem in err, "  try: " in err, "unexpected error" in err) == (
        exit_code,
        True,
        True,
        False,
    ), err
    assert sorted(item.name for item in tmp_path.iterdir()) == ["folder", "x.topolog.gz"]


def test_a_piece_is_read_with_the_pieces_before_it_and_neither_read_nor_imported_alone(
    topolog: Run,  # noqa: F811, RUF100
    tmp_path: Path,
) -> None:
    folder = tmp_path / "pieces"
    for first, last in (("1", "5"), ("6", "11")):
        topolog(
            "log",
            "export",
            "--from",
            first,
            "--to",
            last,
            "--out",
            str(folder / f"{first}.topolog.gz"),
        )
    code, out, err = topolog("replay", "verify", "--json", "--database-url", str(folder))
    assert (code, json.loads(out)["positions"]) == (0, 11), err
    piece = str(folder / "6.topolog.gz")
    for arguments in (("replay", "verify", "--database-url", piece), ("log", "import", piece)):
        code, _, err = topolog(*arguments)
        assert (code > 0, "begins at position 6" in err, "topolog log export" in err) == (
            True,
            True,
            True,
        ), err


def test_a_history_is_imported_into_a_new_data_folder(
    topolog: Run,  # noqa: F811, RUF100
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = str(tmp_path / "x.topolog.gz")
    topolog("log", "export", "--out", history)
    monkeypatch.setenv("TOPOLOG_DATABASE_URL", "sqlite://a/stranger")
    with short_folder() as folder:
        where = ("--data-dir", str(folder / "data"), "--json")
        code, out, err = topolog("log", "import", history, *where)
        assert (code, json.loads(out)["timeline"], json.loads(out)["last"]) == (0, 2, 11), err
        assert json.loads(topolog("log", "status", *where)[1])["head"] == 12
        code, out, err = topolog("doctor", *where)
        findings = [json.loads(line) for line in out.splitlines()]
        stopped = [finding for finding in findings if "does not run" in finding["seen"]]
        assert [finding["about"] for finding in stopped] == ["bus", "cluster"], (out, err)
        assert not [finding for finding in findings if "the role" in finding["seen"]]
        code, _, err = topolog("log", "import", history, *where)
        assert (code, "of the same history" in err) == (1, True)
    monkeypatch.delenv("TOPOLOG_DATABASE_URL")
    assert topolog("log", "import", history)[0] == 2
