"""`--data-dir` names a log as `--database-url` does: it overrides the environment, and giving both
options is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from services.cli import log_source
from services.cli.main import main

Result = tuple[int, str]
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
) -> Callable[..., Result]:
    """Run `topolog ...` in an empty folder; return exit code and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(log_source, "RETRY_FOR_S", 0.1)

    def run(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["topolog", *arguments])
        with pytest.raises(SystemExit) as exit_info:
            main()
        return int(exit_info.value.code or 0), capsys.readouterr().err

    return run


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: "-".join(verb[:2]))
@pytest.mark.parametrize("variable", ["TOPOLOG_DATABASE_URL", "TOPOLOG_DATABASE_URL_FILE"])
def test_the_data_dir_overrides_the_environment(
    topolog: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    verb: tuple[str, ...],
    variable: str,
) -> None:
    for value in (AWAY, "sqlite://x", "/not/there"):
        monkeypatch.setenv(variable, value)
        code, stderr = topolog(*verb, "--data-dir", "none")
        problem = f"topolog: no Topolog data folder at {Path('none').absolute()}"
        assert (code, stderr.splitlines()[0]) == (2, problem)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: "-".join(verb[:2]))
def test_both_options_are_wrong_usage_except_for_verify(
    topolog: Callable[..., Result], verb: tuple[str, ...]
) -> None:
    for both in (
        ("--data-dir", "none", "--database-url", AWAY),
        ("--database-url", AWAY, "--data-dir", "none"),
    ):
        code, stderr = topolog(*verb, *both)
        if verb == ("replay", "verify"):
            assert (code, "127.0.0.1:9/x does not answer" in stderr) == (1, True)
        else:
            assert code == 2
            assert "--data-dir and --database-url both name a log" in stderr
            assert "  try: give one of them" in stderr


def test_doctor_examines_the_given_folder(
    topolog: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPOLOG_DATABASE_URL", AWAY)
    code, stderr = topolog("doctor", "--data-dir", "none")
    assert (code, "no Topolog data folder at" in stderr) == (2, True)
    assert "both name a log" in topolog("doctor", "--data-dir", "none", "--database-url", AWAY)[1]


def test_of_several_cells_one_must_be_chosen_or_found(
    topolog: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = tmp_path / "cells.yaml"
    cells.write_text(f"a: {AWAY}\nb: {AWAY}\n")
    monkeypatch.setenv("TOPOLOG_CELLS_FILE", str(cells))
    for verb in (("log",), ("diff", "1", "head"), ("fragmentation",), ("whatif",)):
        code, stderr = topolog("replay", *verb)
        assert (code, "there are several cells: a, b" in stderr) == (2, True)
        assert "  try: --cell a" in stderr
    code, stderr = topolog("replay", "verify", "--cell", "z")
    assert (code, "there is no cell 'z'" in stderr) == (2, True)
    assert "  try: one of a, b" in stderr
    code, stderr = topolog("replay", "log", "--cell", "b")
    assert (code, "127.0.0.1:9/x does not answer" in stderr) == (1, True)
