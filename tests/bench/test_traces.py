"""Made-up traces are the same every time, and the quality bench can play each."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.comparison.cells import Cell
from services.comparison.workloads import workload
from tests.bench.traces import NODES, TRACES, main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("traces")
    main([str(made)])
    return made


def test_traces_are_the_same_every_time(folder: Path, tmp_path: Path) -> None:
    main([str(tmp_path)])
    files = sorted(path.relative_to(folder) for path in folder.rglob("*.csv"))
    assert len(files) == 2 * len(TRACES)
    assert all((folder / path).read_bytes() == (tmp_path / path).read_bytes() for path in files)


@pytest.mark.parametrize("name", sorted(TRACES))
def test_every_task_of_a_made_trace_fits_some_machine_of_it(folder: Path, name: str) -> None:
    played = workload(Cell(name, NODES, 0, 0.9, "10", "ledger, proof", 60), folder / name)
    assert len(played.nodes) == NODES
    assert played.arrivals
    assert played.infeasible == 0
