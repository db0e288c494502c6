"""`--data-dir` names a log as `--database-url` does: written, it beats what the environment says;
both written are refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from services.cli.main import main

Said = tuple[int, str]
AWAY = "postgresql://nobody@127.0.0.1:9/x"
REASON = ("--reason", "x")
VERBS = [
    ("replay", "log"),
    ("replay", "at", "head"),
    ("replay", "explain", "web"),
    ("replay", "diff", "1", "2"),
    ("replay", "why-not", "web", "--node", "n"),
    ("replay", "whatif"),
    ("replay", "verify"),
    ("replay", "shadow"),
    ("replay", "predictions"),
    ("log", "status"),
    ("log", "export", "--out", "x.topolog.gz"),
    ("log", "archive"),
    ("log", "begin-timeline"),
    ("log", "redact", "web", *REASON),
    ("log", "skip", "1", *REASON),
    ("node", "release", "n"),
    ("node", "readmit", "n"),
    ("top", "--once"),
]


@pytest.fixture
def topolog(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    """Run `topolog ...` in an empty folder: exit code and what it complained of."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["topolog", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return run


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: "-".join(verb[:2]))
@pytest.mark.parametrize("variable", ["TOPOLOG_DATABASE_URL", "TOPOLOG_DATABASE_URL_FILE"])
def test_it_beats_the_environment(
    topolog: Callable[..., Said],
    monkeypatch: pytest.MonkeyPatch,
    verb: tuple[str, ...],
    variable: str,
) -> None:
    for value in (AWAY, "sqlite://x", "/not/there"):
        monkeypatch.setenv(variable, value)
        code, said = topolog(*verb, "--data-dir", "none")
        assert (code, said.splitlines()[0]) == (2, "topolog: no Topolog data folder at none")


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: "-".join(verb[:2]))
def test_both_written_are_wrong_usage_but_for_verify(
    topolog: Callable[..., Said], verb: tuple[str, ...]
) -> None:
    for both in (
        ("--data-dir", "none", "--database-url", AWAY),
        ("--database-url", AWAY, "--data-dir", "none"),
    ):
        code, said = topolog(*verb, *both)
        if verb == ("replay", "verify"):
            assert (code, "127.0.0.1:9/x does not answer" in said) == (1, True)
        else:
            assert (
                code,
                "--data-dir and --database-url each name a log" in said,
                "  try: one of them" in said,
            ) == (
                2,
                True,
                True,
            )


def test_doctor_looks_at_the_folder_that_is_named(
    topolog: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPOLOG_DATABASE_URL", AWAY)
    code, said = topolog("doctor", "--data-dir", "none")
    assert (code, "nothing runs on the data folder" in said) == (2, True)
    assert "each name a log" in topolog("doctor", "--data-dir", "none", "--database-url", AWAY)[1]
