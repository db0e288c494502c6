"""The table of the quality bench for people: on the terminal, in docs/quality.md, and as a plot in docs/quality.svg."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from tests.bench.quality import delays
from tests.bench.quality.aims import Group, aims, groups
from tests.bench.quality.cells import ROWS, Result

DOCS = Path("docs")
_FINDINGS = Path(__file__).with_name("findings.md")
"""Written by hand, for the reader of the numbers; the aims above them are computed."""
COLUMNS = (
    "row", "tasks", "ran", "rejected", "after an end", "overtaken", "unexplained", "mean wait s", "p99 wait s",
    "withheld", "hidden",
)  # fmt: skip


def table(results: Sequence[Result]) -> Table:
    """All results, group by group."""
    made = Table(title="quality of placement, virtual time")
    for column in ("cell", *COLUMNS):
        made.add_column(column, justify="left" if column in ("cell", "row") else "right")
    for group in groups(results):
        for result in group.rows.values():
            made.add_row(group.title, *values(result))
        made.add_section()
    return made


def values(result: Result) -> list[str]:
    """One row of the table."""
    unexplained = result.rejected - result.rejected_after_end - result.rejected_overtaken
    return [
        result.cell.row, str(result.tasks), str(result.admitted), str(result.rejected), str(result.rejected_after_end),
        str(result.rejected_overtaken), str(unexplained), f"{result.wait_mean_s:.2f}", f"{result.wait_p99_s:.1f}",
        f"{result.withheld_cpu_h:.2f}", f"{result.hidden_cpu_h:.2f}",
    ]  # fmt: skip


def write(results: Sequence[Result], command: str) -> None:
    """docs/quality.md and docs/quality.svg."""
    DOCS.mkdir(exist_ok=True)
    found = groups(results)
    (DOCS / "quality.md").write_text("\n".join(_page(found, results, command)) + "\n")
    plot(found, DOCS / "quality.svg")


def _page(found: list[Group], results: Sequence[Result], command: str) -> list[str]:
    seconds = sum(result.real_s for result in results)
    lines = [_HEAD.format(command=command, cells=len(results), seconds=seconds)]
    lines += ["## Aims", "", *[f"- {line}" for group in found for line in aims(group)], ""]
    lines += ["![The same as a plot](quality.svg)", "", "## Table", "", _LEGEND]
    for group in found:
        lines += [f"### {group.title}", "", "| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
        lines += ["| " + " | ".join(values(result)) + " |" for result in group.rows.values()]
        lines += ["", *_stories(group)]
    lines += [_FINDINGS.read_text(), "## How it is measured", "", _METHOD, *_delays(), "", _LIMITS]
    return lines


def _stories(group: Group) -> list[str]:
    """Rejections of the ledger that nothing explains: named, because there should be none."""
    told = [(row, result.unexplained) for row, result in group.rows.items() if row.startswith("ledger")]
    lines = [f"- {row}: {story}" for row, stories in told for story in stories]
    return ["Unexplained rejections of the ledger:", "", *lines, ""] if lines else []


def _delays() -> list[str]:
    lines = ["| what | seconds, uniform | one in twenty |", "|---|---|---|"]
    for kind, (usual, rare) in delays.KINDS.items():
        tail = f"{rare[0]:g} to {rare[1]:g}" if rare else ""
        lines.append(f"| {delays.MEANING[kind]} | {usual[0]:g} to {usual[1]:g} | {tail} |")
    return lines


def plot(found: list[Group], path: Path) -> None:
    """Rejections, p99 wait and withheld capacity: a panel each, a cluster of bars for each group of cells."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "quality"
    from matplotlib import pyplot

    panels = (
        ("admission rejections", _rejected),
        ("p99 wait, s", _wait),
        ("withheld, zone-CPU-hours", _withheld),
    )
    figure, axes = pyplot.subplots(len(panels), 1, figsize=(max(8, len(found) * 1.6), 10), sharex=True)
    colours = [pyplot.get_cmap("tab10")(at) for at in range(len(ROWS))]
    for axis, (title, value) in zip(axes, panels, strict=True):
        for at, row in enumerate(ROWS):
            places = [where + (at - len(ROWS) / 2) * 0.1 for where, group in enumerate(found) if row in group.rows]
            heights = [value(group.rows[row]) for group in found if row in group.rows]
            axis.bar(places, heights, 0.1, label=row, color=colours[at])
        axis.set_yscale("symlog")
        axis.set_title(title, loc="left", fontsize=10)
    axes[-1].set_xticks(range(len(found)), [group.title for group in found], rotation=20, ha="right", fontsize=8)
    axes[0].legend(fontsize=7, ncols=4)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _rejected(result: Result) -> float:
    return result.rejected


def _wait(result: Result) -> float:
    return result.wait_p99_s


def _withheld(result: Result) -> float:
    return result.withheld_cpu_h


_HEAD = """# Quality of placement

How often kubelets reject pods, how long pods wait, and how much capacity stays unused out of caution, by eight ways of
scheduling the same pods on the same machines. Everything runs in virtual time with fixed seeds, so that the numbers are the
same on every machine. This page is written by

    {command}

from {cells} cells, which took {seconds:.0f} s of one core.
"""

_LEGEND = """`ran`: tasks admitted by a kubelet before the end. `rejected`: admissions that a kubelet refused. Of these, those
`after an end` would have been admitted had no pod ended that the scheduler did not know of when it decided; those
`overtaken` had moreover no pod that was decided later reached the kubelet earlier; `unexplained` is the rest. Waits run
from a task's arrival to its admission, through rejections; tasks that still wait at the end count as long as they waited.
`withheld`: zone-CPU-hours free in the kubelets' truth (what is on its way taken off) that the row did not take for
free, while pods waited; `hidden`: the same at all times.
"""

_METHOD = """Two workloads. *Traces*: the Alibaba GPU trace of 2023 with a NUMA overlay (2 zones from 32 CPUs on, lifetimes of at
most 600 s, Poisson arrivals that offer the given share of all GPUs), on a cluster that is already at work at the start; scored
by LeastAllocated. *Dense*: 24 nodes of 2, 4 or 8 zones with 12 CPUs each, GPUs in the last zone (two zones from 4 on) while
CPUs are free elsewhere, pods of one and two containers, init containers smaller and larger than what follows, members of
sets that come back under their names, offered load 0.9 of all CPUs; scored by MostAllocated.

Kubelets admit with the model in `shared/kubelet` (static CPU Manager, Static Memory Manager, single-numa-node, container
scope), one pod at a time, and list a pod before and half-way through its admission. Reports come from the production
exporter's core, for the rows by proof with the kubelet's CPU checkpoint, for all others without. A rejected task is
created again after 5 s. Rows:

- *no awareness*: node-level requests alone.
- *passthrough*, *discardreserved*, *overreserve*: a vectorised equivalent of `services/scheduler/compat` that a test holds equal
  to it, with kube-scheduler's queue (back-off 1 to 10 s, woken by ended pods and changed objects, flushed after 5
  minutes) and a resync every 5 s. All nodes are looked at for every pod, and a decision takes no time: kinder than reality,
  where a decision of the plugin at 5,000 nodes takes half a second.
- *ledger, fingerprint*: the production `SchedulerCore` and ledger, reports stripped of placements; N = 3.
- *ledger, proof*: the same with placements. *Trusted prediction*: charges narrowed to the zones that the model predicts.
- *oracle*: sees at every moment what kubelets hold and what is on its way, and is woken by every release.

Delays:
"""

_LIMITS = """## What this does not show

Foreign pods, nodes that fail, lost reports and restarts are left to the fault simulation and to the tests. Decisions take
no virtual time in any row. The capacity that the ledger withholds is counted by its lower bound; what the cycle gains by telling
alternatives of unsettled pods apart is not credited. One seed a cell.
"""
