"""The table of the quality bench for people: on the terminal, and as docs/quality.md with its plot
(scripts/quality_page.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from services.comparison import delays
from services.comparison.cells import DENSE, REPORTS, ROWS, Result
from tests.bench.quality.aims import Group, Runs, aims, groups, mean

_METHOD = Path(__file__).with_name("method.md")
_FINDINGS = Path(__file__).with_name("findings.md")
"""Written by hand, for the reader of the numbers; the aims above them are computed."""
WIDTH = 0.8 / len(ROWS)
COLUMNS = (
    "row", "tasks", "ran", "rejected", "after an end", "overtaken", "unexplained", "mean wait s", "p99 wait s",
    "withheld", "hidden",
)  # fmt: skip


def table(results: Sequence[Result]) -> Table:
    """All results, group by group."""
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
    """One row of the table: counts summed over the seeds, the rest as means."""
    counts = (_tasks, _ran, _rejected, _after_end, _overtaken, _unexplained)
    return [
        runs[0].cell.row,
        *(str(sum(map(count, runs))) for count in counts),
        _spread([each.wait_mean_s for each in runs], 2),
        _spread([each.wait_p99_s for each in runs], 1),
        f"{sum(each.withheld_cpu_h for each in runs) / len(runs):.2f}",
        f"{sum(each.hidden_cpu_h for each in runs) / len(runs):.2f}",
    ]


def _spread(found: list[float], digits: int) -> str:
    shown = f"{sum(found) / len(found):.{digits}f}"
    return (
        shown
        if len(found) == 1
        else f"{shown} ({min(found):.{digits}f} to {max(found):.{digits}f})"
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
    """Dense cells first, small before large; traces by name."""
    return sorted(results, key=_place)


def _place(result: Result) -> tuple[bool, str, int, int, float, int, int]:
    cell = result.cell
    return (
        cell.workload != DENSE, cell.workload, cell.zones, cell.nodes, cell.load, REPORTS.index(cell.reports), cell.seed,
    )  # fmt: skip


def page(results: Sequence[Result]) -> str:
    """docs/quality.md."""
    found = groups(in_order(results))
    lines = [
        _HEAD.format(cells=len(results)),
        "## Aims",
        "",
        *[f"- {line}" for group in found for line in aims(group)],
        "",
    ]
    lines += ["![The same as a plot](quality.svg)", "", "## Table", "", _LEGEND]
    for group in found:
        lines += [
            f"### {group.title}",
            "",
            "| " + " | ".join(COLUMNS) + " |",
            "|" + "---|" * len(COLUMNS),
        ]
        lines += ["| " + " | ".join(values(runs)) + " |" for runs in group.rows.values()]
        lines += ["", *_stories(group)]
    lines += [
        _FINDINGS.read_text(),
        "## How it is measured",
        "",
        _METHOD.read_text(),
        *_delays(),
        "",
        _LIMITS,
    ]
    return "\n".join(lines)


def _stories(group: Group) -> list[str]:
    """Rejections of the ledger that nothing explains: named, because there should be none."""
    told = [
        (row, run.unexplained)
        for row, runs in group.rows.items()
        if row.startswith("ledger")
        for run in runs
    ]
    lines = [f"- {row}: {story}" for row, stories in told for story in stories]
    return ["Unexplained rejections of the ledger:", "", *lines, ""] if lines else []


def _delays() -> list[str]:
    lines = ["| what | seconds, uniform | one in twenty |", "|---|---|---|"]
    for kind, (usual, rare) in delays.KINDS.items():
        tail = f"{rare[0]:g} to {rare[1]:g}" if rare else ""
        lines.append(f"| {delays.MEANING[kind]} | {usual[0]:g} to {usual[1]:g} | {tail} |")
    return lines


def plot(results: Sequence[Result], path: Path) -> None:
    """Rejections, p99 wait and withheld capacity: a panel each, a cluster of bars for each group of
    cells.
    """
    found = groups(in_order(results))
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
        len(panels), 1, figsize=(max(8, len(found) * 1.6), 10), sharex=True
    )
    colours = [pyplot.get_cmap("tab20")(at) for at in range(len(ROWS))]
    for axis, (title, value) in zip(axes, panels, strict=True):
        for at, row in enumerate(ROWS):
            places = [
                where + (at - len(ROWS) / 2) * WIDTH
                for where, group in enumerate(found)
                if row in group.rows
            ]
            heights = [mean(group.rows[row], value) for group in found if row in group.rows]
            axis.bar(places, heights, WIDTH, label=row, color=colours[at])
        axis.set_yscale("symlog")
        axis.set_title(title, loc="left", fontsize=10)
    axes[-1].set_xticks(
        range(len(found)), [group.title for group in found], rotation=20, ha="right", fontsize=8
    )
    axes[0].legend(fontsize=7, ncols=4)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _rejected(result: Result) -> int:
    return result.rejected


def _wait(result: Result) -> float:
    return result.wait_p99_s


def _withheld(result: Result) -> float:
    return result.withheld_cpu_h


_HEAD = """# Quality of placement

How often kubelets reject pods, how long pods wait, and how much capacity stays unused out of caution, by several ways of
scheduling the same pods on the same machines. Everything runs in virtual time with fixed seeds, so that the numbers are the
same on every machine. [quality.jsonl](quality.jsonl) has the {cells} cells of this page, as they came from

    python -m tests.bench quality --out docs/quality.jsonl [--workload dense --zones 4 --reports 60 --row "ledger, proof" ...]

which leaves out what is there already; `python scripts/quality_page.py` writes the page.
"""

_LEGEND = """`ran`: tasks admitted by a kubelet before the end. `rejected`: admissions that a kubelet refused. Of these, those
`after an end` would have been admitted but for ends, or one end, that the scheduler did not know of when it decided, or
would have been refused for these even if nobody who was decided later had come earlier; those `overtaken` would have been
admitted had moreover nobody who was decided later come earlier; `unexplained` is the rest. Waits run from a task's arrival
to its admission, through rejections; tasks that still wait at the end count as long as they waited.
`withheld`: zone-CPU-hours free in the kubelets' truth (what is on its way taken off) that the row did not take for
free, while pods waited; `hidden`: the same at all times.
"""

_LIMITS = """## What this does not show

Foreign pods, nodes that fail, lost reports and restarts are left to the fault simulation and to the tests. Decisions take
no virtual time in any row. The capacity that the ledger withholds is counted by its lower bound; what the cycle gains by telling
alternatives of unsettled pods apart is not credited.
"""
