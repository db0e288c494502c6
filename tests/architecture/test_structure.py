"""The structure holds: import contracts, sizes, opening words, no markers of unfinished work, one
owner for each driver.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE_LINES, FUNCTION_LINES = 600, 60
NEVER_LOADED = {
    "alembic",
    "cryptography",
    "greenlet",
    "grpc",
    "jinja2",
    "psutil",
    "pygments",
    "rich",
    "sqlalchemy",
    "typer",
}
LOADED_WHERE_NEEDED = {"opentelemetry.sdk", "services.scheduler.extender.server", "stamina"}
LOADED_AFTER_THE_FIRST_LOOK = {"scheduler": {"httpx2", "lightkube", "nats", "yaml"}}
MARKER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK")) + r")\b")


def sources(*folders: str) -> Iterator[Path]:
    """Python files by hand: generated stubs and migrations' versions are left out."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "_pb2" not in path.name and "versions" not in path.parts:
                yield path


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def test_import_contracts_are_kept() -> None:
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_files_stay_small() -> None:
    lines = {
        str(path.relative_to(ROOT)): path.read_text().count("\n")
        for path in sources("shared", "services", "plugins", "migrations", "tests")
    }
    assert {path: count for path, count in lines.items() if count > FILE_LINES} == {}


def test_functions_stay_small() -> None:
    sizes = {
        (str(p.relative_to(ROOT)), name): size
        for p in sources("shared", "services", "plugins", "tests")
        for name, size in functions(p)
    }
    assert {where: size for where, size in sizes.items() if size > FUNCTION_LINES} == {}


def test_every_file_opens_with_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in sources("shared", "services", "plugins")
        if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert silent == []


def test_nothing_is_marked_as_unfinished() -> None:
    marked = [
        str(p.relative_to(ROOT))
        for p in sources("shared", "services", "plugins", "tests")
        if MARKER.search(p.read_text())
    ]
    assert marked == []


def test_the_lock_file_has_hashes_and_names_no_host() -> None:
    text = (ROOT / "requirements.lock").read_text()
    pins = [line for line in text.splitlines() if re.match(r"^[a-z0-9].*==", line, re.IGNORECASE)]
    assert len(pins) > 40
    assert text.count("--hash=sha256:") >= len(pins)
    assert "://" not in text
    assert "--index" not in text


@pytest.mark.parametrize("service", ["scheduler", "binder", "topology_store"])
def test_a_service_loads_only_what_it_runs_on(service: str) -> None:
    """A standby that takes over after a crash has to start first; unused imports were half of that
    time.
    """
    early = NEVER_LOADED | LOADED_WHERE_NEEDED | LOADED_AFTER_THE_FIRST_LOOK.get(service, set())
    loaded = "{name for name, module in sys.modules.items() if module}"
    code = (
        f"import atexit, sys, services.{service}.__main__ as command\n"
        f"atexit.register(lambda: print(*sorted({early} & {loaded})))\n"
        "command.main()\n"
    )
    refused = {"PATH": os.environ["PATH"], "TOPOLOG_LOG_LEVEL": "none"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=refused,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (2, ""), done.stderr


def test_the_command_line_loads_no_servers_parts() -> None:
    """Half of the time of `topolog --help` were log lines and metrics, which it has none of."""
    heavy = {"asyncpg", "numpy", "opentelemetry", "prometheus_client", "rich.console", "structlog"}
    code = f"import sys, services.cli.main; print(*sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_a_default_scheduler_does_not_load_the_upstream_plugin() -> None:
    code = (
        "import sys, services.scheduler.service\n"
        "from services.scheduler.settings import chosen\n"
        "from services.scheduler.core import SchedulerCore\n"
        "from services.scheduler.settings import SchedulerSettings\n"
        "SchedulerCore(chosen(SchedulerSettings()).core)\n"
        "print(*[name for name in sys.modules if name.startswith('plugins.upstream_compat')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
