"""The command as a user meets it: help, errors with a remedy and an exit code, JSON that parses."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from services.cli.main import app, main
from services.cli.verbs import first_sentence
from shared.domain.version import VERSION


class Done(NamedTuple):
    """Exit code and output of one run."""

    code: int
    out: str
    err: str


Topolog = Callable[..., Done]


@pytest.fixture
def topolog(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Topolog:
    """Run the command in this process, from its entry point to its exit code."""

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["topolog", *arguments])
        code = 0
        try:
            main()
        except SystemExit as exit_info:
            code = int(exit_info.code or 0)
        output = capsys.readouterr()
        return Done(code, output.out, output.err)

    return run


def commands(group: Any, path: str = "topolog", parent: Any = None) -> Iterator[tuple[str, Any]]:
    """Yield every command with its path. A verb is imported when it is asked for."""
    yield path, group
    context = group.context_class(group, parent=parent)
    for name in sorted(group.list_commands(context)) if hasattr(group, "list_commands") else ():
        yield from commands(group.get_command(context, name), f"{path} {name}", context)


@pytest.mark.parametrize(
    ("path", "command"), list(commands(get_command(app))), ids=lambda value: str(value)[:40]
)
def test_help_says_what_a_verb_does_and_what_every_option_means(path: str, command: Any) -> None:
    sentence = (command.help or "").strip().splitlines()[0]
    assert sentence.endswith((".", "topolog up")), f"{path}: {sentence!r} is no sentence"
    for option in command.params:
        assert option.name == "help" or getattr(option, "help", ""), (
            f"{path}: {option.name} has no explanation"
        )


def test_every_help_can_be_shown(topolog: Topolog) -> None:
    for path, _ in commands(get_command(app)):
        done = topolog(*path.split()[1:], "--help")
        assert done.code == 0
        assert "Usage: " in done.out


def test_no_help_line_is_truncated_at_80_columns(
    topolog: Topolog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for path, command in commands(get_command(app)):
        done = topolog(*path.split()[1:], "--help")
        lines = done.out.splitlines()
        assert max(map(len, lines)) <= 80, path
        assert not [line for line in lines if line.endswith("...") and "Usage" not in line], path
        if hasattr(command, "list_commands"):
            text = " ".join(done.out.split())
            for name in command.list_commands(None):
                assert first_sentence(command.get_command(None, name).help) in text, name


def test_without_a_verb_the_help_is_printed(topolog: Topolog) -> None:
    done = topolog()
    assert "Start with: topolog up" in done.out + done.err


@pytest.mark.parametrize(
    ("arguments", "code", "says", "remedy"),
    [
        (
            ["replay", "log", "--data-dir", "/nonexistent/topolog"],
            2,
            "no Topolog data folder at /nonexistent/topolog",
            "topolog up",
        ),
        (
            ["replay", "verify", "--data-dir", "/nonexistent/topolog"],
            2,
            "no Topolog data folder",
            "--database-url",
        ),
        (
            ["replay", "explain", "p", "--data-dir", "/nonexistent/t"],
            2,
            "no Topolog data folder",
            "topolog up",
        ),
        (
            ["up", "--workload", "openb:/nonexistent"],
            2,
            "no folder '/nonexistent'",
            "topolog up --help",
        ),
        (["up", "--workload", "nonsense"], 2, "(found 'nonsense')", "topolog up --help"),
        (
            ["up", "--nodes", "0", "--zones", "9", "--load", "0"],
            2,
            "--zones must be 1 to 8 (found 9)",
            "topolog up --help",
        ),
        (
            ["replay", "log", "--type", "PodReservd", "--data-dir", "/nonexistent/t"],
            2,
            "PodReservd",
            "topolog replay log",
        ),
        (
            ["replay", "log", "--since", "yesterday", "--data-dir", "/nonexistent/t"],
            2,
            "yesterday",
            "topolog replay log",
        ),
        (
            ["admit", "--machine", "/nonexistent.yaml", "--pods", "/nonexistent.yaml"],
            2,
            "/nonexistent.yaml",
            "try:",
        ),
        (
            ["exporter", "report", "--recording", "/nonexistent"],
            2,
            "/nonexistent",
            "try: give a folder",
        ),
        (
            ["exporter", "report", "--recording", "/", "--method", "md5"],
            2,
            "--method 'md5'",
            "try: --method",
        ),
        (
            ["up", "--kubeconfig", "http://:18001"],
            1,
            "'http://:18001', which names no host",
            "try: correct --kubeconfig",
        ),
        (
            ["up", "--kubeconfig", "/nonexistent"],
            1,
            "there is no such file",
            "try: correct --kubeconfig",
        ),
        (
            ["up", "--nats-url", "nats://127.0.0.1:9"],
            1,
            "connection refused",
            "try: correct --nats-url",
        ),
        (["up", "--data-dir", "/proc/topolog"], 1, "no such file or folder", "try: choose another"),
        (["completion", "tcsh"], 2, "only for bash, zsh, fish", "try: topolog completion bash"),
        (["downn"], 2, "no such command 'downn'", "try: topolog --help"),
        (["up", "--nodez", "3"], 2, "no such option: --nodez", "try: topolog up --help"),
        (["up", "--nodes", "many"], 2, "invalid value for '--nodes'", "try: topolog up --help"),
        (["replay", "explain"], 2, "missing argument", "try: topolog replay explain --help"),
    ],
)
def test_an_error_is_one_sentence_with_a_remedy_and_no_traceback(
    topolog: Topolog, tmp_path: Path, arguments: list[str], code: int, says: str, remedy: str
) -> None:
    if arguments[0] == "up" and "--data-dir" not in arguments:
        arguments = [*arguments, "--data-dir", str(tmp_path)]
    done = topolog(*arguments)
    assert done.code == code, done.err
    assert says in done.err
    assert remedy in done.err
    assert "Traceback" not in done.err
    assert "Errno" not in done.err
    problem, remedied = done.err.splitlines()
    assert problem.startswith("topolog: ")
    assert remedied.startswith("  try: ")
    if arguments[0] == "up":
        assert all(line.startswith(("topolog up: loading", " ")) for line in done.out.splitlines())
    else:
        assert done.out == ""


def test_an_unreachable_database_is_named_with_a_remedy(topolog: Topolog) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    done = topolog(
        "replay", "log", "--database-url", f"postgresql+asyncpg://u:s3cret@127.0.0.1:{free}/none"
    )
    assert done.code == 1, done.err
    assert str(free) in done.err
    assert "try: topolog up" in done.err
    assert "s3cret" not in done.err
    assert "Traceback" not in done.err


def test_a_data_folder_of_another_layout_is_refused_with_a_remedy(
    topolog: Topolog, tmp_path: Path
) -> None:
    (tmp_path / "VERSION").write_text(json.dumps({"layout": 99}))
    for arguments in (["up"], ["replay", "log"]):
        done = topolog(*arguments, "--data-dir", str(tmp_path))
        assert done.code == 1, done.err
        assert "layout 99" in done.err
        assert "--data-dir" in done.err
        assert "Traceback" not in done.err


def test_a_data_folder_of_another_postgres_is_refused_with_a_remedy(
    topolog: Topolog, tmp_path: Path
) -> None:
    (tmp_path / "VERSION").write_text(json.dumps({"layout": 1, "postgres": 9}))
    done = topolog("up", "--data-dir", str(tmp_path), "--workload", "none", "--nodes", "1")
    assert done.code == 1, done.err
    assert "Postgres 9" in done.err
    assert "Traceback" not in done.err


def test_a_version_stamp_that_is_no_json_is_named(topolog: Topolog, tmp_path: Path) -> None:
    (tmp_path / "VERSION").write_text("once upon a time")
    done = topolog("up", "--data-dir", str(tmp_path))
    assert done.code == 1
    assert str(tmp_path / "VERSION") in done.err
    assert "--data-dir" in done.err


def test_an_unexpected_error_is_one_problem_with_a_remedy(
    topolog: Topolog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("zone 7 of postgresql://u:s3cret@h/d")

    monkeypatch.setattr("services.cli.admit.load_machine", fail)
    done = topolog("admit", "--machine", "m.yaml", "--pods", "p.yaml")
    assert done.code == 1
    assert "(KeyError)" in done.err
    assert "  try: run it again with TOPOLOG_TRACEBACK=1" in done.err
    assert "Traceback" not in done.err
    assert "s3cret" not in done.err


def test_version_and_completion_are_printed(topolog: Topolog) -> None:
    assert topolog("--version").out.startswith(f"topolog {VERSION}")
    assert (
        tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
            "version"
        ]
        == VERSION
    )
    for shell in ("bash", "zsh", "fish"):
        assert "_TOPOLOG_COMPLETE" in topolog("completion", shell).out


@pytest.mark.parametrize(
    ("shell", "variables"),
    [
        ("bash", {"COMP_WORDS": "topolog rep", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "topolog rep"}),
        (
            "fish",
            {"_TYPER_COMPLETE_ARGS": "topolog rep", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        ),
    ],
)
def test_completion_completes_verbs(shell: str, variables: dict[str, str]) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "topolog"],
        env={"PATH": "/usr/bin:/bin", "_TOPOLOG_COMPLETE": f"complete_{shell}", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "replay" in done.stdout
    assert "admit" not in done.stdout


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{Path(sys.executable).parent / 'topolog'} completion bash | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="this system has no device that is always full"
)
def test_a_full_disk_under_the_output_is_reported_with_a_remedy() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "services.cli.main", "log", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "no space is left on the disk" in done.stderr
    assert "free space" in done.stderr
    assert "unexpected error" not in done.stderr
