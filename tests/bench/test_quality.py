"""The quality bench can be believed: its fast equivalent of the plugin is equal, its runs repeat,
its results resume.
"""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest

from plugins.upstream_compat import pod as compat
from plugins.upstream_compat.cache import View
from plugins.upstream_compat.filter import filter_node
from plugins.upstream_compat.node import offered
from plugins.upstream_compat.nrt import parse_nrt
from plugins.upstream_compat.score import score_node
from services.comparison import columns
from services.comparison.backoff import BackoffQueue
from services.comparison.cells import (
    HOLDING,
    OWNERS,
    ROWS,
    WIDE,
    Cell,
    Grid,
    Result,
    RowName,
    full,
    quick,
)
from services.comparison.measures import as_line
from services.comparison.truth import TrueNode
from services.simulator.cluster import GPU, NodeShape, Policies, lay_out
from shared.domain.pod import Container, ContainerKind, Pod
from shared.domain.policies import POLICIES, Policy
from tests.bench.quality.aims import aims, groups
from tests.bench.quality.command import main, read
from tests.bench.quality.runner import run_cell

GIB = 2**30
NOWHERE = Path("nowhere")


def _pod(chance: random.Random) -> Pod:
    kinds: list[ContainerKind] = [
        *(("init",) if chance.random() < 0.3 else ()),
        *(("app", "app") if chance.random() < 0.4 else ("app",)),
    ]
    parts = []
    for number, kind in enumerate(kinds):
        asked = {"cpu": chance.randint(1, 8) * 1000, "memory": chance.randint(1, 8) * GIB}
        if chance.random() < 0.4:
            asked[GPU] = chance.randint(1, 2)
        parts.append(Container(f"c{number}", kind, asked, asked))
    return Pod("u", "bench", "p", "Guaranteed", tuple(parts))


def _free(chance: random.Random, zones: int) -> dict[int, dict[str, int]]:
    free = {}
    for zone in range(zones):
        free[zone] = {"cpu": chance.randint(0, 9) * 1000, "memory": chance.randint(0, 9) * GIB}
        if chance.random() < 0.6:
            free[zone][GPU] = chance.randint(0, 3)
    return free


def _view(free: dict[int, dict[str, int]]) -> View:
    def text(name: str, amount: int) -> str:
        return f"{amount}m" if name == "cpu" else str(amount)

    zones = [
        {
            "name": f"node-{zone}",
            "type": "Node",
            "resources": [
                {
                    "name": name,
                    **dict.fromkeys(("capacity", "allocatable", "available"), text(name, amount)),
                }
                for name, amount in amounts.items()
            ],
        }
        for zone, amounts in free.items()
    ]
    attributes = [
        {"name": "topologyManagerPolicy", "value": "single-numa-node"},
        {"name": "topologyManagerScope", "value": "container"},
    ]
    return View(parse_nrt({"metadata": {"name": "n"}, "attributes": attributes, "zones": zones}))


@pytest.mark.parametrize("seed", range(400))
def test_the_vectorised_plugin_filters_and_scores_as_the_compat_mode_does(seed: int) -> None:
    chance = random.Random(seed)
    tested, frees = _pod(chance), [_free(chance, 3) for _ in range(4)]
    theirs = compat.from_domain(tested)
    stacked = np.stack([columns.zone_column(free, 3) for free in frees], axis=2)
    inits, apps = columns.requests(tested)
    passed = columns.aligned(stacked, inits, apps)
    least, most = (columns.score(stacked, [*inits, *apps], each) for each in (False, True))
    for index, free in enumerate(frees):
        view = _view(free)
        assert filter_node(theirs, offered([GPU]), view).passes == passed[index]
        assert score_node(theirs, view, "LeastAllocated", {}) == least[index]
        assert score_node(theirs, view, "MostAllocated", {}) == most[index]


def _cell(row: RowName, horizon_s: int = 20) -> Cell:
    return Cell("dense", 24, 2, 0.9, "1", row, horizon_s)


def test_nodes_whose_zones_topolog_owns_play_the_same_tasks_without_a_rejection() -> None:
    cells = [Cell("openb", 130, 0, 0.9, "10", "ledger, proof", 30, owner=owner) for owner in OWNERS]
    by_kubelet, by_topolog = (run_cell(cell, Path("tests/simulator/traces")) for cell in cells)
    assert cells[0].key != cells[1].key
    assert by_topolog.tasks == by_kubelet.tasks > 0
    assert by_topolog.rejected == 0
    # Pods that run from the start hold what the kubelet would have given them, not every zone.
    assert by_topolog.admitted >= by_kubelet.admitted - 1


def test_only_rows_of_the_ledger_by_proof_play_nodes_that_topolog_owns() -> None:
    rows = {cell.row for cell in quick(Grid(owner="topolog"))}
    assert rows == {row for row in ROWS if row.startswith("ledger, proof")} - {HOLDING}


@pytest.mark.parametrize("row", ROWS)
def test_every_row_plays_a_small_cell_and_repeats_itself(row: RowName) -> None:
    once, again = (
        msgspec.structs.replace(run_cell(_cell(row), NOWHERE), real_s=0.0) for _ in range(2)
    )
    assert once == again
    assert 0 < once.admitted <= once.tasks
    assert once.rejected >= once.rejected_after_end + once.rejected_overtaken


def test_the_ledger_by_proof_is_never_refused_but_for_an_end() -> None:
    measured = run_cell(_cell("ledger, proof", 60), NOWHERE)
    assert measured.rejected == measured.rejected_after_end


def test_the_truth_of_an_empty_node_is_what_it_reports() -> None:
    node = TrueNode(lay_out("n", NodeShape(2, 16, 64 * GIB, {GPU: 2}), Policies()))
    shown = {
        zone.id: {name: each.available for name, each in zone.resources.items()}
        for zone in node.report(0.0).zones
    }
    assert shown == node.free()


def test_results_are_read_again_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    made = run_cell(_cell("oracle", 5), NOWHERE)
    path = tmp_path / "results.jsonl"
    path.write_bytes(as_line(made) + as_line(made)[:40])
    assert read(path) == [made]
    assert read(tmp_path / "none.jsonl") == []


def test_every_cell_has_a_key_of_its_own() -> None:
    for cells in (list(full(Grid())), list(quick(Grid()))):
        assert len({cell.key for cell in cells}) == len(cells)
    assert {cell.row for cell in full(Grid())} == set(ROWS)
    traces = {cell.row for cell in full(Grid(policy="none")) if cell.workload != WIDE}
    assert traces == {*ROWS} - {HOLDING, "oracle"}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "nodes.csv").write_text(
        "name,cpu_milli,memory_mib,gpu,rdma,zones\n" + "n,34000,64000,4,4,2\n" * 2
    )
    tasks = "".join(f"t{at},4000,1000,1,1,0,{20 + at}\n" for at in range(9))
    (folder / "tasks.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,rdma,creation_time,deletion_time\n" + tasks
    )
    return folder


def _play(trace: Path, out: Path, *more: str) -> int:
    chosen = (
        "--workload",
        "traces",
        "--reports",
        "change",
        "--seed",
        "5",
        "--load",
        "0.9",
        "--row",
        "ledger, proof",
    )
    with pytest.raises(SystemExit) as done:
        main(["--trace", str(trace), "--out", str(out), "--horizon", "20", *chosen, *more])
    return int(str(done.value.code))


def test_a_trace_with_rdma_is_played_and_resumed(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    assert _play(trace, out) == 0
    first = capsys.readouterr().out
    made = msgspec.json.decode(first, type=Result)
    assert (made.cell.seed, made.cell.reports, made.cell.nodes, made.rejected) == (
        5,
        "change",
        2,
        0,
    )
    assert made.admitted > 0
    assert made.cell.workload.startswith("mine-")
    assert _play(trace, out) == 0
    assert capsys.readouterr().out == first
    (trace / "tasks.csv").write_text((trace / "tasks.csv").read_text() + "t,1000,1000,0,0,0,9\n")
    assert _play(trace, out, "--policy", "restricted") == 0
    assert len(out.read_text().splitlines()) == 2


def test_a_folder_that_is_no_trace_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _play(tmp_path, tmp_path / "out.jsonl") == 2
    assert "give the folder of the trace" in capsys.readouterr().err


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_is_played_without_a_rejection_by_proof(policy: Policy) -> None:
    measured = run_cell(
        msgspec.structs.replace(_cell("ledger, proof", 30), policy=policy, reports="change"),
        NOWHERE,
    )
    assert measured.admitted > 0
    assert measured.rejected == measured.rejected_after_end


def test_aims_are_judged_by_the_numbers() -> None:
    def result(row: RowName, **fields: object) -> Result:
        empty = Result(_cell(row), 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0, (), 0.0)
        return msgspec.structs.replace(empty, **fields)

    proof = result(
        "ledger, proof", rejected=2, rejected_after_end=1, wait_p99_s=9.0, withheld_cpu_h=2.0
    )
    lines = aims(
        groups(
            [proof, result("oracle", wait_p99_s=8.5), result("overreserve", withheld_cpu_h=3.9)]
        )[0]
    )
    assert ["**missed**" in line for line in lines] == [True, False, True]


def test_wide_pods_are_feasible_and_their_waits_are_measured_by_size() -> None:
    cells = [
        cell
        for cell in full(Grid(seeds=(1,), sizes=(), horizon_s=60))
        if cell.workload == WIDE and cell.zones == 2 and cell.row == "ledger, proof"
    ]
    assert {cell.policy for cell in cells} == {"restricted", "best-effort", "none"}
    for cell in cells:
        result = run_cell(cell, NOWHERE)
        assert result.infeasible == 0
        assert sorted(result.waits_by_gpus) == [1, 4, 8]
        assert sum(waits.tasks for waits in result.waits_by_gpus.values()) == result.tasks


def test_every_row_counts_the_same_tasks() -> None:
    """Also rows under which members of sets wait, and tasks back off after a rejection."""
    rows: tuple[RowName, ...] = ("no awareness", "overreserve", "ledger, proof", "oracle")
    results = [run_cell(_cell(row, 60), NOWHERE) for row in rows]
    assert results[0].rejected > 0
    assert len({(result.tasks, result.infeasible) for result in results}) == 1
    assert min(result.aligned_share for result in results) > 0.0


def test_the_back_off_ends_at_its_limit_whatever_the_attempts() -> None:
    """1,100 attempts: two to their power is no float."""
    queue = BackoffQueue()
    queue.add(_pod(random.Random(1)), 0.0)
    waits = []
    for attempt in range(1100):
        queue.refused("u", float(attempt))
        queue.wake(float(attempt))
        due_s = queue.next_s()
        assert due_s is not None
        waits.append(queue._pods["u"].ready_s - attempt)
    assert waits[:6] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert set(waits[6:]) == {10.0}
