"""Every verb and service refuses a misread URL and shows no part of it. The file in
TOPOLOG_..._URL_FILE is used if no URL is given.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MARK = "sEcReT"
DATABASE, BUS = f"postgresql://u:{MARK}99#@127.0.0.1/x", f"nats://u:{MARK}88#@127.0.0.1"


def run(module: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    bare = {name: value for name, value in os.environ.items() if not name.startswith("TOPOLOG_")}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=bare | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def topolog(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run("services.cli.main", *arguments, **variables)


@pytest.mark.parametrize(
    "command",
    [
        ("log", "status", "--database-url", DATABASE),
        ("log", "import", "history", "--database-url", DATABASE),
        ("doctor", "--database-url", DATABASE),
        ("doctor", "--database-url", "postgresql://127.0.0.1:9/x", "--nats-url", BUS),
        (
            "database",
            "roles",
            "--password-dir",
            "x",
            "--database-url",
            f"postgresql://u:{MARK}/@h/x",
        ),
        ("log", "status", "--database-url", f"postgresql:/u:{MARK}@h/x"),
        ("log", "status", "--database-url", f"u:{MARK}@h/x"),
        ("replay", "whatif", "--history", f"postgresql:/u:{MARK}@h/x"),
        ("up", "--database-url", DATABASE),
        ("up", "--data-dir", "x", "--database-url", DATABASE),
        ("up", "--nats-url", BUS),
    ],
)
def test_a_verb_refuses_a_misread_url_and_shows_no_part_of_it(
    command: tuple[str, ...],
) -> None:
    done = topolog(*command, TOPOLOG_TRACEBACK="1")
    assert done.returncode == 2
    assert "-url" in done.stderr
    assert "  try: " in done.stderr
    assert MARK not in done.stdout + done.stderr


@pytest.mark.parametrize("service", ["scheduler", "binder", "topology_store", "exporter"])
def test_a_service_refuses_it_too(service: str) -> None:
    done = run(
        f"services.{service}",
        TOPOLOG_DATABASE_URL=DATABASE,
        TOPOLOG_NATS_URL=BUS,
        TOPOLOG_NODE_NAME="n",
    )
    assert done.returncode == 2
    assert "TOPOLOG_DATABASE_URL: contains a misplaced '#'" in done.stderr
    assert "TOPOLOG_NATS_URL: contains a misplaced '#'" in done.stderr
    assert MARK not in done.stdout + done.stderr


def test_a_variable_may_name_the_file_of_the_url(tmp_path: Path, database_url: str) -> None:
    file = tmp_path / "url"
    file.write_text(f"{database_url}\n")
    output = topolog("log", "status", TOPOLOG_DATABASE_URL_FILE=str(file))
    assert "the log has revision none" in output.stderr
    flag = topolog(
        "log",
        "status",
        "--database-url",
        "postgresql://127.0.0.1:port/flag",
        TOPOLOG_DATABASE_URL_FILE=str(file),
    )
    assert "has a port that is not a number" in flag.stderr


def test_a_file_that_holds_no_url_is_named_and_nothing_of_it(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text(DATABASE)
    printed_done = topolog("log", "status", TOPOLOG_DATABASE_URL_FILE=str(file))
    assert "TOPOLOG_DATABASE_URL_FILE contains a misplaced '#'" in printed_done.stderr
    assert MARK not in printed_done.stderr
    absent = topolog("log", "status", TOPOLOG_DATABASE_URL_FILE=str(tmp_path / "absent"))
    assert absent.returncode == 2
    assert "TOPOLOG_DATABASE_URL_FILE: " in absent.stderr
    assert str(tmp_path / "absent") in absent.stderr


@pytest.mark.parametrize("service", ["scheduler", "binder", "topology_store"])
def test_a_missing_database_url_is_a_settings_error_with_a_readable_hint(service: str) -> None:
    done = run(f"services.{service}")
    assert done.returncode == 2
    assert "TOPOLOG_DATABASE_URL: is not set" in done.stderr
    assert "postgresql://USER:PASSWORD@HOST/DATABASE" in done.stderr
