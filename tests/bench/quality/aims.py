"""Cells that differ only in row and seed, side by side, and what the aims say of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from services.comparison.cells import DENSE, ROWS, WIDE, Result, RowName

# One cell under each of its seeds.
Runs = tuple[Result, ...]

# The length of "one interval" if reports follow changes: a report shows a change within a second.
NEWS_S = 1


class Group(msgspec.Struct, frozen=True):
    """Results of one workload, size, load and kind of reports, by row in the table's order."""

    title: str
    rows: dict[RowName, Runs]


def groups(results: Sequence[Result]) -> list[Group]:
    """Return the groups in the order of their first cells."""
    by_cell: dict[str, dict[RowName, list[Result]]] = {}
    for result in results:
        by_cell.setdefault(_title(result), {}).setdefault(result.cell.row, []).append(result)
    return [
        Group(title, {row: tuple(rows[row]) for row in ROWS if row in rows})
        for title, rows in by_cell.items()
    ]


def _title(result: Result) -> str:
    cell = result.cell
    where = (
        f"{cell.workload}, {cell.zones} zones"
        if cell.workload in (DENSE, WIDE)
        else f"{cell.workload}, {cell.nodes} nodes"
    )
    policy = "" if cell.policy == "single-numa-node" else f", {cell.policy}"
    policy += "" if cell.owner == "kubelet" else ", owned"
    return (
        f"{where}{policy}, load {cell.load:g}, "
        f"{'on change' if cell.on_change else f'{cell.interval_s} s'}"
    )


def mean(runs: Runs, value: Callable[[Result], float]) -> float:
    """Return the mean of the value over the seeds."""
    return sum(map(value, runs)) / len(runs)


def aims(group: Group) -> list[str]:
    """Return one line for each goal that applies to the group. A value is the mean over the
    seeds.
    """
    proof = group.rows.get("ledger, proof")
    if proof is None:
        return []
    judged = [
        _no_rejections(proof),
        _wait(group, proof),
        _withheld(group, proof),
        *_ranking(group, proof),
    ]
    return [f"{group.title}: {line}" for line in judged if line]


def _no_rejections(proof: Runs) -> str:
    ends = sum(each.rejected_after_end for each in proof)
    rest = sum(each.rejected for each in proof) - ends
    return f"{_verdict(rest == 0)}: {rest} unexplained rejections, {ends} after an end"


def _wait(group: Group, proof: Runs) -> str:
    oracle = group.rows.get("oracle")
    if oracle is None:
        return ""
    interval_s = NEWS_S if proof[0].cell.on_change else proof[0].cell.interval_s
    limit, reached = mean(oracle, _p99) + interval_s, mean(proof, _p99)
    verdict = _verdict(reached <= limit, _same_news(group, _p99), limit)
    return (
        f"{verdict}: p99 wait {reached:.1f} s, limit {limit:.1f} s (the oracle plus one interval)"
    )


def _withheld(group: Group, proof: Runs) -> str:
    over = group.rows.get("overreserve")
    if over is None:
        return ""
    limit, reached = mean(over, _hidden) / 2, mean(proof, _hidden)
    verdict = _verdict(reached <= limit, _same_news(group, _hidden), limit)
    return f"{verdict}: withheld {reached:.2f} zone-CPU-h, limit {limit:.2f} (half of overreserve)"


def _ranking(group: Group, proof: Runs) -> list[str]:
    """Compare the default strategy with the better of the two usual ones."""
    least, most = (
        group.rows.get("ledger, proof, LeastAllocated"),
        group.rows.get("ledger, proof, MostAllocated"),
    )
    if least is None or most is None:
        return []
    lines = []
    for what, value in (("mean", _mean), ("p99", _p99)):
        reached, best = mean(proof, value), min(mean(least, value), mean(most, value))
        lines.append(
            f"{_verdict(reached <= best)}: {what} wait {reached:.2f} s, better of Least and Most "
            f"{best:.2f} s"
        )
    return lines


def _same_news(group: Group, value: Callable[[Result], float]) -> float | None:
    same_news = group.rows.get("oracle, same news")
    return mean(same_news, value) if same_news else None


def _verdict(met: bool, attainable: float | None = None, limit: float = 0.0) -> str:
    """A missed aim is unattainable if an oracle with the same information misses it, too."""
    if met:
        return "met"
    beyond = attainable is not None and attainable > limit
    return (
        f"not attainable (oracle with the same news {attainable:.1f})" if beyond else "**missed**"
    )


def _p99(result: Result) -> float:
    return result.wait_p99_s


def _mean(result: Result) -> float:
    return result.wait_mean_s


def _hidden(result: Result) -> float:
    return result.withheld_cpu_h
