"""Arguments, progress and results of the quality bench. Results are JSON lines; a finished cell is not run again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from services.simulator.traces import NODES_FILE, TraceError
from tests.bench.quality import report
from tests.bench.quality.cells import ROWS, Cell, Result, full, quick
from tests.bench.quality.measures import as_line
from tests.bench.quality.runner import run_cell

OWN_SAMPLES = ("tests/simulator/traces", "tests/data/traces", "tests/bench/quality/traces")
DEFAULT_OUT = Path("build/quality.jsonl")


def main(argv: list[str]) -> None:
    """Run the chosen cells, then print the table; `--report` also writes docs/quality.md and docs/quality.svg."""
    options = _parser().parse_args(argv)
    traces = options.traces or _own_traces()
    cells = [cell for cell in (quick() if options.quick else full()) if _chosen(cell, options)]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = {result.cell.key: result for result in read(options.out)}
    todo = [cell for cell in cells if cell.key not in done]
    try:
        for result in _run(todo, traces, options.jobs):
            done[result.cell.key] = result
            with options.out.open("ab") as out:
                out.write(as_line(result))
    except TraceError as error:
        sys.exit(f"{error}; give the folder with --traces FOLDER, or only the other workload with --workload dense")
    found = [done[cell.key] for cell in cells if cell.key in done]
    Console(width=160 if not sys.stdout.isatty() else None).print(report.table(found))
    if options.report:
        report.write(found, _command(argv))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench quality", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a part of the grid, in a few minutes")
    parser.add_argument("--traces", type=Path, default=None, help="folder of the cluster trace")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="results, one JSON line a cell; finished cells are skipped")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--workload", choices=("traces", "dense"), default=None)
    parser.add_argument("--row", choices=ROWS, action="append", default=None, help="only these rows")
    parser.add_argument("--nodes", type=int, default=None, help="only cells of so many nodes")
    parser.add_argument("--report", action="store_true", help="write docs/quality.md and docs/quality.svg")
    return parser


def _chosen(cell: Cell, options: argparse.Namespace) -> bool:
    return (
        options.workload in (None, cell.workload)
        and (options.row is None or cell.row in options.row)
        and options.nodes in (None, cell.nodes)
    )


def _own_traces() -> Path:
    for folder in map(Path, OWN_SAMPLES):
        if any((folder / name).is_file() for name in (NODES_FILE, f"{NODES_FILE}.gz")):
            return folder
    return Path(OWN_SAMPLES[0])


def _command(argv: list[str]) -> str:
    """The command without the folder of this machine."""
    shown = ["FOLDER" if at and argv[at - 1] in ("--traces", "--out") else word for at, word in enumerate(argv)]
    return " ".join(["python -m tests.bench quality", *shown])


def read(path: Path) -> list[Result]:
    """Results of earlier runs; a torn last line is left out."""
    if not path.is_file():
        return []
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Result))
        except msgspec.MsgspecError:
            continue
    return found


def _run(cells: list[Cell], traces: Path, jobs: int) -> Iterator[Result]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("quality", total=len(cells))
        if jobs > 1:
            yield from _in_processes(cells, traces, jobs, lambda: progress.advance(bar))
            return
        for cell in cells:
            progress.update(bar, description=cell.key)
            yield run_cell(cell, traces)
            progress.advance(bar)


def _in_processes(cells: list[Cell], traces: Path, jobs: int, advance: object) -> Iterator[Result]:
    with ProcessPoolExecutor(jobs) as pool:
        waiting = [pool.submit(run_cell, cell, traces) for cell in cells]
        for done in as_completed(waiting):
            advance()  # type: ignore[operator]
            yield done.result()
