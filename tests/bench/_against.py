"""Compare two commits: the same bench here and in a worktree of the other commit, in paired runs,
one after the other.

Prints a JSON line per figure and size with the medians of both. A figure is `worse` if the median
ratio of the pairs exceeds the tolerance; the command then exits with 1. If the other commit's code
does not run with today's bench, its own bench is used.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAIRS = 5
BUILD = "scripts/build_kernel.py"
TOLERANCE = 0.1

# Result lines by number of nodes, and by kind of pod if there are several.
Rows = dict[tuple[int, str], dict[str, Any]]


def compare(bench: str, argv: Sequence[str], commit: str, figures: Mapping[str, bool]) -> None:
    """Run the pairs, print the lines and end the process. `figures` says for each name whether more
    is better.
    """
    arguments = _without(argv, "--against")
    with _worktree(commit) as other_tree:
        own_bench = _prepared(bench, other_tree)
        pairs = []
        for _ in range(PAIRS):
            own_rows, other_rows = _run(bench, ROOT, arguments), _run(bench, other_tree, arguments)
            pairs.append((own_rows, other_rows))
    lines = [_line(key, name, more, pairs) for key in pairs[0][0] for name, more in figures.items()]
    for line in lines:
        print(
            json.dumps({"against": commit, "own_bench": own_bench, "pairs": PAIRS, **line}),
            flush=True,
        )
    sys.exit(1 if any(line["worse"] for line in lines) else 0)


def _line(
    key: tuple[int, str], name: str, more: bool, pairs: Sequence[tuple[Rows, Rows]]
) -> dict[str, Any]:
    own_values, other_values = (
        [float(rows[key][name]) for rows in side] for side in zip(*pairs, strict=True)
    )
    ratio = statistics.median(
        one / other for one, other in zip(own_values, other_values, strict=True)
    )
    worse = ratio < 1 - TOLERANCE if more else ratio > 1 + TOLERANCE
    medians = {"here": statistics.median(own_values), "there": statistics.median(other_values)}
    row = {"nodes": key[0], **({"pods": key[1]} if key[1] else {}), "figure": name}
    return {**row, **medians, "ratio": round(ratio, 3), "worse": worse}


@contextmanager
def _worktree(commit: str) -> Iterator[Path]:
    """Yield a worktree of the commit, which is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="bench-against-"))
    try:
        _git("worktree", "add", "--quiet", "--detach", str(folder / "tree"), commit)
        if (folder / "tree" / BUILD).exists():
            subprocess.run([sys.executable, BUILD], cwd=folder / "tree", check=True)
        yield folder / "tree"
    finally:
        shutil.rmtree(folder)
        _git("worktree", "prune")


def _git(*arguments: str) -> None:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"git {' '.join(arguments)}: {done.stderr.strip()}")


def _prepared(bench: str, other: Path) -> bool:
    """Copy the current bench into the worktree. Return True if the commit can only run its own."""
    parts = sorted(path.name for path in (ROOT / "tests/bench").glob(f"_{bench}_*.py"))
    names = [f"{bench}.py", "_against.py", *parts]
    old = {name: (other / "tests/bench" / name) for name in names}
    kept = {name: path.read_bytes() for name, path in old.items() if path.exists()}
    for name, path in old.items():
        shutil.copy(ROOT / "tests/bench" / name, path)
    if _started(bench, other, ["--help"]).returncode == 0:
        return False
    for name, data in kept.items():
        old[name].write_bytes(data)
    return True


def _run(bench: str, where: Path, arguments: Sequence[str]) -> Rows:
    done = _started(bench, where, arguments)
    if done.returncode:
        sys.exit(f"the bench failed in {where}: {done.stderr.strip()[-2000:]}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {(row["nodes"], row.get("pods", "")): row for row in rows}


def _started(bench: str, where: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.bench", bench, *arguments]
    return subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)


def _without(argv: Sequence[str], flag: str) -> list[str]:
    kept = list(argv)
    for index, argument in enumerate(argv):
        if argument == flag:
            return kept[:index] + kept[index + 2 :]
        if argument.startswith(f"{flag}="):
            return kept[:index] + kept[index + 1 :]
    return kept
