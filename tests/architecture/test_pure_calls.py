"""Pure rooms call no clock, chance, environment or I/O, not even through modules that they may
import.

Import contracts see modules, not calls: `datetime.now`, `open` and `print` need no forbidden
import. The contract in `pyproject.toml` says which modules are pure, which are shells, and which
may use what; shells are not read here. A name counts by its import, wherever that comes from; an
object that is handed in is its port's matter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.test_purity import PURE, ROOT

BUILTINS = {"open", "print", "input", "breakpoint", "exec", "eval", "__import__"}
MODULES = (
    "time|random|secrets|os|asyncio|threading|multiprocessing|subprocess|socket|signal|shutil|tempfile|pathlib|"
    "logging|ctypes|fcntl|platform|locale|builtins|importlib|numpy.random|np.random"
)
# Forbidden ends of dotted names. The end counts, because an allowed module may pass on a forbidden
# one.
IMPURE = re.compile(
    rf"(^|\.)(({MODULES})\.\w+|uuid\.(uuid1|uuid4|getnode)|io\.(open|open_code|FileIO)|(datetime|date)\.(now|utcnow|today)|"
    r"sys\.(stdin|stdout|stderr|argv|modules|exit|settrace|setprofile))$"
)
# Forbidden methods of a path.
FILES = {
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "iterdir",
    "rglob",
    "mkdir",
    "rmdir",
    "unlink",
    "touch",
}
# These use the machine's time zone unless one is given.
HERE = {"fromtimestamp", "astimezone"}

ANY, SHELLS = "*", {"__main__", "settings"}


def allowed() -> dict[str, set[str]]:
    """Return by module the impure calls that it may make; ANY for a module of the shell."""
    modules_of: dict[str, set[str]] = {}
    for exception in PURE["ignore_imports"]:
        module, _, used = exception.partition(" -> ")
        modules_of.setdefault(module, set()).add(ANY if used == "**" else used.partition(".")[0])
    return modules_of


def pure() -> list[Path]:
    """Return the files of the rooms, without shells and generated messages."""
    shells = {module for module, uses in allowed().items() if ANY in uses}
    rooms = [ROOT / room.replace(".", "/") for room in PURE["source_modules"]]
    paths = sorted(path for room in rooms for path in room.rglob("*.py") if "_pb2" not in path.name)
    return [path for path in paths if path.stem not in SHELLS and name_of(path) not in shells]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def impure_calls(source: str, uses: set[str]) -> Iterator[str]:
    """Yield line and name of each impure call, except those that `uses` permits."""
    tree = ast.parse(source)
    imported, bound = _imported(tree), _bound(tree)
    for node in ast.walk(tree):
        name = _dotted(node, imported)
        if isinstance(node, ast.Call) and _asks_where_it_is(node):
            yield f"line {node.lineno}: {ast.unparse(node.func)} without a time zone"
        elif name and IMPURE.search(name) and not uses & set(name.split(".")):
            yield f"line {node.lineno}: {name}"  # type: ignore[attr-defined]
        elif isinstance(node, ast.Name) and node.id in BUILTINS - bound:
            yield f"line {node.lineno}: {node.id}"
        elif isinstance(node, ast.Attribute) and node.attr in FILES and "pathlib" not in uses:
            yield f"line {node.lineno}: {ast.unparse(node)}"


def _imported(tree: ast.Module) -> dict[str, str]:
    """Return the imported names with their dotted origin."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {
                name.asname or name.name.partition(".")[0]: name.name
                if name.asname
                else name.name.partition(".")[0]
                for name in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            names |= {
                name.asname or name.name: f"{node.module or ''}.{name.name}" for name in node.names
            }
    return names


def _bound(tree: ast.Module) -> set[str]:
    """Return the names that the module itself binds."""
    names = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return names | {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


def _dotted(node: ast.AST, imported: dict[str, str]) -> str:
    """Return the dotted name as it was imported, "" if it was not."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if (
        not isinstance(node, ast.Name)
        or not isinstance(node.ctx, ast.Load)
        or node.id not in imported
    ):
        return ""
    return ".".join([imported[node.id], *reversed(parts)])


def _asks_where_it_is(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in HERE:
        return False
    return len(call.args) + len(call.keywords) < (2 if call.func.attr == "fromtimestamp" else 1)


def test_pure_rooms_call_nothing_impure() -> None:
    paths, leave = pure(), allowed()
    assert len(paths) > 250
    calls = {
        name_of(path): list(impure_calls(path.read_text(), leave.get(name_of(path), set())))
        for path in paths
    }
    assert {name: told for name, told in calls.items() if told} == {}


@pytest.mark.parametrize(
    "planted",
    [
        "import time\ntime.time()",
        "from time import monotonic\nmonotonic()",
        "from datetime import datetime, timezone\ndatetime.now(timezone.utc)",
        "import datetime as dt\ndt.datetime.utcnow()",
        "from datetime import date\ndate.today()",
        "from datetime import datetime\ndatetime.fromtimestamp(1)",
        "def f(moment): return moment.astimezone()",
        "import random\nrandom.random()",
        "import numpy as np\nnp.random.default_rng()",
        "from uuid import uuid4\nuuid4()",
        "import secrets\nsecrets.token_hex()",
        "import os\nos.environ['A']",
        "from os import getenv\ngetenv('A')",
        "import asyncio\nasyncio.run(f())",
        "open('a')",
        "print('a')",
        "read = input\nread()",
        "def f(path): return path.read_text()",
        "import sys\nsys.stdout.write('a')",
        "import importlib\nimportlib.import_module('time')",
        "from shared.somewhere import time\ntime.time()",
        "from shared import somewhere\nsomewhere.os.environ",
        "def f():\n    from time import sleep\n    sleep(1)",
    ],
)
def test_a_planted_call_is_seen(planted: str) -> None:
    assert list(impure_calls(planted, set()))


@pytest.mark.parametrize(
    "harmless",
    [
        "import datetime as dt\ndt.datetime.fromtimestamp(1, dt.UTC)",
        "from datetime import datetime\ndatetime.fromisoformat('2026-01-01')",
        "def f(print): print('a')",
        "from uuid import UUID, uuid5\nuuid5(UUID(int=0), 'a')",
        "def f(report): return report.time, report.random",
        "import numpy as np\nnp.zeros(3)",
    ],
)
def test_what_is_pure_is_let_through(harmless: str) -> None:
    assert list(impure_calls(harmless, set())) == []


def test_leave_to_use_one_thing_is_none_to_use_another() -> None:
    both = "import time\nimport random\ntime.time()\nrandom.random()"
    assert [each.partition(": ")[2] for each in impure_calls(both, {"time"})] == ["random.random"]
