"""What `topolog log import | archive | redact | status` say of wrong usage: one problem, one remedy, an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_replay_asking import Run, topolog  # noqa: F401 - fixture
from tests.eventlog.conftest import log_url  # noqa: F401 - fixture


def test_status_tells_who_holds_the_archive_back(topolog: Run) -> None:  # noqa: F811
    code, out, _ = topolog("log", "status", "--json")
    seen = json.loads(out)
    assert (code, seen["head"], seen["archived_to"], seen["partitions"][0]["full"]) == (0, 11, 0, False)
    assert "nothing above position 11 may be archived yet" in topolog("log", "status")[1]
    assert "nothing to archive" in topolog("log", "archive")[1]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "problem"),
    [
        (("redact", "web", "--reason", "x"), 1, "has not ended"),
        (("redact", "wob", "--reason", "x"), 2, "did you mean ns/web?"),
        (("redact", "web"), 2, "--reason"),
        (("archive", "--older-than", "soon"), 2, "no number of days"),
        (("archive", "--keep", "much"), 2, "no size"),
        (("import", "FILE"), 1, "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_told_with_a_remedy(
    topolog: Run,  # noqa: F811
    tmp_path: Path,
    arguments: tuple[str, ...],
    exit_code: int,
    problem: str,
) -> None:
    code, _, err = topolog("log", *(str(tmp_path / "no") if each == "FILE" else each for each in arguments))
    assert (code, problem in err, "  try: " in err) == (exit_code, True, True), err
