"""Arguments, progress and results of the quality bench: JSON lines, one a cell; a finished cell is
not run again.

Exit status: 0 when measured, 1 when a kubelet rejected a pod of the row by proof and no pod's end
explains it, 2 for arguments or a trace that cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import msgspec
import xxhash
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from services.comparison.cells import (
    DENSE,
    LOADS,
    OPENB,
    OWNERS,
    REPORTS,
    ROWS,
    SEEDS,
    TRACE_NODES,
    WIDE,
    WIDE_LOADS,
    WIDE_POLICIES,
    Cell,
    Grid,
    Result,
    full,
    quick,
)
from services.comparison.measures import as_line
from services.simulator.traces import TraceError, is_trace, read_nodes
from shared.domain.policies import POLICIES, SINGLE_NUMA_NODE
from tests.bench.quality import report
from tests.bench.quality.runner import run_cell

OWN_SAMPLES = ("tests/simulator/traces", "tests/data/traces", "tests/bench/quality/traces")
DEFAULT_OUT = Path("build/quality.jsonl")
WRONG = 2


def main(argv: list[str]) -> None:
    """Run the chosen cells, a JSON line each; `--table` prints them side by side."""
    options = _parser().parse_args(argv)
    folder = options.trace or _own_traces()
    try:
        grid = _grid(options, folder)
        cells = [
            cell
            for owner in options.owner or OWNERS[:1]
            for cell in (quick if options.quick else full)(
                msgspec.structs.replace(grid, owner=owner)
            )
            if _chosen(cell, options)
        ]
        results = _measured(cells, folder, options)
    except TraceError as error:
        print(
            f"{error}; name another folder with --trace FOLDER, or only --workload dense",
            file=sys.stderr,
        )
        sys.exit(WRONG)
    if options.table:
        Console(width=180 if not sys.stdout.isatty() else None, stderr=True).print(
            report.table(results)
        )
    sys.exit(1 if any(_unexplained(result) for result in results) else 0)


def _measured(cells: list[Cell], folder: Path, options: argparse.Namespace) -> list[Result]:
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = {result.cell.key: result for result in read(options.out)}
    for cell in cells:
        if cell.key in done:
            print(as_line(done[cell.key]).decode().strip(), flush=True)
    for result in _run([cell for cell in cells if cell.key not in done], folder, options.jobs):
        done[result.cell.key] = result
        with options.out.open("ab") as out:
            out.write(as_line(result))
        print(as_line(result).decode().strip(), flush=True)
    return [done[cell.key] for cell in cells]


def _unexplained(result: Result) -> bool:
    return (
        result.cell.row.startswith("ledger, proof") and result.rejected > result.rejected_after_end
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench quality", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="a part of the grid, one seed, in a few minutes")
    add(
        "--trace",
        type=Path,
        default=None,
        help="folder of a trace in place of openb (services/simulator/traces.py has the format)",
    )
    add(
        "--out",
        type=Path,
        default=DEFAULT_OUT,
        help="results, one JSON line a cell; finished cells are skipped",
    )
    add("--jobs", type=_positive, default=1, help="processes")
    add("--workload", choices=("traces", DENSE, WIDE), default=None, help="only this workload")
    add("--row", choices=ROWS, action="append", default=None, help="only these rows")
    add(
        "--nodes",
        type=_positive,
        default=None,
        help="only cells of so many nodes; any number for a trace",
    )
    add("--zones", type=int, choices=(2, 4, 8), help="only made cells of so many zones")
    add(
        "--load",
        type=float,
        action="append",
        default=None,
        help=f"offered load of traces (default {LOADS}) and wide cells ({WIDE_LOADS})",
    )
    add("--reports", choices=REPORTS, action="append", help="seconds between reports, or on change")
    add("--seed", type=int, action="append", help=f"default {SEEDS}")
    add(
        "--policy",
        choices=POLICIES,
        default=None,
        help="the kubelets' Topology Manager policy (default single-numa-node; wide cells: the "
        "other three)",
    )
    help = (
        "who chooses zones: kubelets, or Topolog where they align nothing (`withheld` is 0 there)"
    )
    add("--owner", choices=OWNERS, action="append", help=help)
    add(
        "--horizon",
        type=_positive,
        default=0,
        help="virtual seconds of a cell (default: by its size)",
    )
    add("--table", action="store_true", help="the results side by side, on stderr")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 10**6:
        raise argparse.ArgumentTypeError(f"{text!r}; give a whole number above 0")
    return int(text)


def _grid(options: argparse.Namespace, folder: Path) -> Grid:
    wanted: Iterable[int] = TRACE_NODES
    if options.workload not in (DENSE, WIDE):
        listed = len(read_nodes(folder))
        wanted = (
            [options.nodes]
            if options.nodes
            else sorted({min(size, listed) for size in TRACE_NODES})
        )
    return Grid(
        trace=_name(folder),
        sizes=tuple(wanted),
        loads=tuple(options.load or LOADS),
        reports=tuple(options.reports or REPORTS),
        seeds=tuple(options.seed or SEEDS),
        policy=options.policy or SINGLE_NUMA_NODE,
        wide_loads=tuple(options.load or WIDE_LOADS),
        wide_policies=(options.policy,) if options.policy else WIDE_POLICIES,
        horizon_s=options.horizon,
    )


def _name(folder: Path) -> str:
    """Return `openb` for the sample in the repository, else the folder's name with a digest of its
    content, so that results of different traces have different names.
    """
    if folder in map(Path, OWN_SAMPLES):
        return OPENB
    digest = xxhash.xxh3_64()
    for path in sorted(folder.glob("*.csv*")):
        digest.update(path.read_bytes())
    return f"{folder.resolve().name}-{digest.hexdigest()[:6]}"


def _chosen(cell: Cell, options: argparse.Namespace) -> bool:
    made = cell.workload in (DENSE, WIDE) and cell.zones > 0
    return (
        options.workload in (None, cell.workload if made else "traces")
        and (options.row is None or cell.row in options.row)
        and options.nodes in (None, cell.nodes)
        and options.zones in (None, cell.zones)
    )


def _own_traces() -> Path:
    return next(
        (folder for folder in map(Path, OWN_SAMPLES) if is_trace(folder)), Path(OWN_SAMPLES[0])
    )


def read(path: Path) -> list[Result]:
    """Return the results of earlier runs, without an incomplete last line."""
    if not path.is_file():
        return []
    results = []
    for line in path.read_bytes().splitlines():
        try:
            results.append(msgspec.json.decode(line, type=Result))
        except msgspec.MsgspecError:
            continue
    return results


def _run(cells: list[Cell], traces: Path, jobs: int) -> Iterator[Result]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("quality", total=len(cells))
        if jobs > 1:
            for result in _in_processes(cells, traces, jobs):
                progress.advance(bar)
                yield result
            return
        for cell in cells:
            progress.update(bar, description=cell.key)
            yield run_cell(cell, traces)
            progress.advance(bar)


def _in_processes(cells: list[Cell], traces: Path, jobs: int) -> Iterator[Result]:
    with ProcessPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(run_cell, cell, traces) for cell in cells]):
            yield done.result()
