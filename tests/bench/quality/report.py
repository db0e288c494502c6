"""Results of the quality bench: a table on the terminal, the generated part of docs/quality.md, and
its plot (scripts/quality_page.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from services.comparison.cells import DENSE, REPORTS, ROWS, Result, RowName
from tests.bench.quality.aims import Group, Runs, aims, groups, mean

BEGIN = "<!-- results: made by scripts/quality_page.py from docs/quality.jsonl -->"
END = "<!-- end of results -->"
PAGE_COLUMNS = ("row", "ran", "rejected", "unexplained", "mean wait s", "p99 wait s", "withheld")
RANKED: tuple[RowName, ...] = (
    "ledger, proof",
    "ledger, proof, LeastAllocated",
    "ledger, proof, MostAllocated",
)
WIDTH = 0.8 / len(ROWS)
COLUMNS = (
    "row",
    "tasks",
    "ran",
    "rejected",
    "after an end",
    "overtaken",
    "unexplained",
    "mean wait s",
    "p99 wait s",
    "withheld",
    "hidden",
    "zones/pod",
    "aligned",
    "infeasible",
)


def table(results: Sequence[Result]) -> Table:
    """Return a table of all results, group by group."""
    made = Table(
        title="quality of placement, virtual time; means over seeds, waits with least and most"
    )
    for column in ("cell", *COLUMNS):
        made.add_column(column, justify="left" if column in ("cell", "row") else "right")
    for group in groups(results):
        for runs in group.rows.values():
            made.add_row(group.title, *values(runs))
        made.add_section()
    return made


def values(runs: Runs) -> list[str]:
    """Return one row of the table: counts are summed over the seeds, other values are means."""
    counts = (_tasks, _ran, _rejected, _after_end, _overtaken, _unexplained)
    return [
        runs[0].cell.row,
        *(str(sum(map(count, runs))) for count in counts),
        _spread([each.wait_mean_s for each in runs], 2),
        _spread([each.wait_p99_s for each in runs], 1),
        f"{sum(each.withheld_cpu_h for each in runs) / len(runs):.2f}",
        f"{sum(each.hidden_cpu_h for each in runs) / len(runs):.2f}",
        f"{sum(each.zones_per_pod for each in runs) / len(runs):.3f}",
        f"{sum(each.aligned_share for each in runs) / len(runs):.3f}",
        str(sum(each.infeasible for each in runs)),
    ]


def _spread(values: list[float], digits: int) -> str:
    shown = f"{sum(values) / len(values):.{digits}f}"
    return (
        shown
        if len(values) == 1
        else f"{shown} ({min(values):.{digits}f} to {max(values):.{digits}f})"
    )


def _tasks(result: Result) -> int:
    return result.tasks


def _ran(result: Result) -> int:
    return result.admitted


def _after_end(result: Result) -> int:
    return result.rejected_after_end


def _overtaken(result: Result) -> int:
    return result.rejected_overtaken


def _unexplained(result: Result) -> int:
    return result.rejected - result.rejected_after_end - result.rejected_overtaken


def in_order(results: Sequence[Result]) -> list[Result]:
    """Return the groups in order: dense cells first, small before large, then traces by name."""
    return sorted(results, key=_place)


def _place(result: Result) -> tuple[bool, str, int, int, float, int, int]:
    cell = result.cell
    return (
        cell.workload != DENSE,
        cell.workload,
        cell.zones,
        cell.nodes,
        cell.load,
        REPORTS.index(cell.reports),
        cell.seed,
    )


def block(results: Sequence[Result]) -> str:
    """Return the generated part of docs/quality.md: missed aims and two tables."""
    cells = groups(in_order(results))
    judged = [line for group in cells for line in aims(group)]
    missed = [line for line in judged if ": met: " not in line]
    lines = [BEGIN, f"{len(judged) - len(missed)} of {len(judged)} aims are met. Not met:", ""]
    lines += [f"- {line}" for line in missed]
    ranked = [group for group in cells if group.rows.keys() == set(RANKED)]
    lines += ["", f"|{'|'.join(PAGE_COLUMNS)}|", "|---|---:|---:|---:|---:|---:|---:|"]
    for group in cells:
        if group not in ranked:
            lines.append(f"|**{group.title}**|")
            lines += [f"|{'|'.join(_page_row(runs))}|" for runs in group.rows.values()]
    lines += ["", "Mean and p99 wait in s by strategy; ran and rejected by the default:", ""]
    lines += [
        "|cell|KeepRoom|Least|Most|ran|rejected|",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for group in ranked:
        waits = [f"{row[4]}, {row[5].partition(' ')[0]}" for row in map(_page_row, _by_rank(group))]
        lines.append(f"|{group.title}|{'|'.join([*waits, *_page_row(_by_rank(group)[0])[1:3]])}|")
    for group in cells:
        lines += _stories(group)
    return "\n".join([*lines, END])


def _by_rank(group: Group) -> list[Runs]:
    return [group.rows[row] for row in RANKED]


def with_block(page: str, results: Sequence[Result]) -> str:
    """Return the page with its generated part replaced."""
    head, _, rest = page.partition(BEGIN)
    return head + block(results) + rest.partition(END)[2]


def _page_row(runs: Runs) -> list[str]:
    p99_s = [run.wait_p99_s for run in runs]
    spread = f" ({min(p99_s):.1f}–{max(p99_s):.1f})" if len(p99_s) > 1 else ""
    return [
        runs[0].cell.row,
        f"{sum(map(_ran, runs))}/{sum(map(_tasks, runs))}",
        str(sum(map(_rejected, runs))),
        str(sum(map(_unexplained, runs))),
        f"{sum(run.wait_mean_s for run in runs) / len(runs):.2f}",
        f"{sum(p99_s) / len(p99_s):.1f}{spread}",
        f"{sum(run.withheld_cpu_h for run in runs) / len(runs):.2f}",
    ]


def _stories(group: Group) -> list[str]:
    """Return the rejections of the ledger without an explanation. They are listed, because there
    should be none.
    """
    runs_told = [
        (row, run.unexplained)
        for row, runs in group.rows.items()
        if row.startswith("ledger")
        for run in runs
    ]
    lines = [f"- {row}: {story}" for row, stories in runs_told for story in stories]
    return ["Unexplained rejections of the ledger:", "", *lines, ""] if lines else []


def plot(results: Sequence[Result], path: Path) -> None:
    """Plot rejections, p99 wait and withheld capacity in one panel each, with a cluster of bars for
    each group of cells.
    """
    by_cell = groups(in_order(results))
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "quality"
    from matplotlib import pyplot

    panels = (
        ("admission rejections", _rejected),
        ("p99 wait, s", _wait),
        ("withheld, zone-CPU-hours", _withheld),
    )
    figure, axes = pyplot.subplots(
        len(panels), 1, figsize=(max(8, len(by_cell) * 1.6), 10), sharex=True
    )
    colours = [pyplot.get_cmap("tab20")(at) for at in range(len(ROWS))]
    for axis, (title, value) in zip(axes, panels, strict=True):
        for number, row in enumerate(ROWS):
            places = [
                where + (number - len(ROWS) / 2) * WIDTH
                for where, group in enumerate(by_cell)
                if row in group.rows
            ]
            heights = [mean(group.rows[row], value) for group in by_cell if row in group.rows]
            axis.bar(places, heights, WIDTH, label=row, color=colours[number])
        axis.set_yscale("symlog")
        axis.set_title(title, loc="left", fontsize=10)
    axes[-1].set_xticks(
        range(len(by_cell)), [group.title for group in by_cell], rotation=20, ha="right", fontsize=8
    )
    shown = [row for row in ROWS if any(row in group.rows for group in by_cell)]
    bars = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
    # Below the title and above the panels: over the bars, it hid the highest of them.
    figure.legend([bars[row] for row in shown], shown, loc="upper center", ncols=3, fontsize=8)
    figure.tight_layout(rect=(0, 0, 1, 0.92))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _rejected(result: Result) -> int:
    return result.rejected


def _wait(result: Result) -> float:
    return result.wait_p99_s


def _withheld(result: Result) -> float:
    return result.withheld_cpu_h
