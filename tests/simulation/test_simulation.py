"""The simulation itself: equal seeds give equal runs, and a broken rule in the code under it is
found.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from services.binder import core as binder
from services.scheduler.watch import pods_and_nodes
from shared.eventlog.memory import MemoryEventLog
from shared.events import binding_events
from shared.ledger import charging, confirmation
from tests.simulation import __main__ as command
from tests.simulation import runner
from tests.simulation.profile import NEWEST
from tests.simulation.world import Broken, World

ROOT = Path(__file__).resolve().parents[2]


def trace(hash_seed: str) -> str:
    """Return the trace of a run in a separate process."""
    asked = [sys.executable, "-m", "tests.simulation", "--seeds", "5", "--steps", "300", "--trace"]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        asked, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=True
    ).stdout


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    first = trace("1")
    assert len(first.splitlines()) > 300
    assert first == trace("2")


def test_a_failure_names_the_seed_the_step_and_every_step_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def breaks(world: World, steps: int) -> None:
        for _ in range(450):
            world.step()
        raise Broken("S0: something")

    monkeypatch.setattr(World, "run", breaks)
    with pytest.raises(Broken) as raised:
        runner.run_seed(7)
    lines = str(raised.value).splitlines()
    assert lines[0] == "seed 7, step 451: Broken: S0: something"
    assert lines[1] == "again: python -m tests.simulation --seeds 7"
    assert len([line for line in lines if line[:5].strip().isdigit()]) == 450


@pytest.fixture
def seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty file of kept seeds, and let every seed fail."""

    def breaks(seed: int, *_: object) -> World:
        raise Broken(f"seed {seed}, step 3: Broken: S0: something\nand its story")

    kept = tmp_path / "seeds.txt"
    kept.write_text("5 known\n")
    monkeypatch.setattr(runner, "SEEDS", kept)
    monkeypatch.setattr(command, "run_seed", breaks)
    return kept


def test_make_sim_plays_new_seeds_of_todays_worlds_and_keeps_one_that_fails(
    seeds: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    env = {
        "PATH": os.environ["PATH"]
    }  # Otherwise the inner make would inherit the variables of the make that runs this test.
    said = subprocess.run(
        ["make", "-n", "sim"], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    ).stdout
    arguments = said.rpartition("-m tests.simulation")[2].split()
    monkeypatch.setattr("sys.argv", ["simulation", *arguments])
    assert command.main() == 1
    output = capsys.readouterr()
    assert "for 5 minutes" in output.err
    first, second = seeds.read_text().splitlines()
    assert first == "5 known"
    kept = second.partition(" ")[0]
    assert int(kept) >= NEWEST
    assert f"seed {kept} is added" in output.err
    assert "and its story" in output.out


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["--seeds", "7"], "to keep it: python -m tests.simulation --seeds 7 --keep"),
        (["--seeds", "5", "--keep"], "seed 5 is there already: tests/simulation/seeds.txt"),
        (["--seeds", "7", "--keep", "--policy", "none"], "WITH_OPTIONS of test_kept_seeds.py"),
        (["--seeds", "7", "--keep", "--steps", "9"], "WITH_OPTIONS of test_kept_seeds.py"),
    ],
)
def test_a_seed_that_is_not_kept_is_printed_with_what_to_do(
    arguments: list[str],
    lines: str,
    seeds: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["simulation", *arguments])
    assert command.main() == 1
    assert lines in capsys.readouterr().err
    assert seeds.read_text() == "5 known\n"


def always(answer: object) -> Callable[..., object]:
    return lambda *_args, **_kwargs: answer


def hasty(work: binder.Work, reply: binder.Reply) -> object:
    """Treat a lost answer as a refusal."""
    if reply.status in (0, 503) and not reply.read:
        return binding_events.BindRefused(work.uid, work.node, "other_node", "no answer")
    return ORDINARY_JUDGE(work, reply)


ORDINARY_JUDGE = binder.judge

BROKEN_RULES: dict[str, tuple[object, str, object, str]] = {
    "a listing alone proves a pod": (confirmation, "covers", always(True), "S4|S11"),
    "a charge releases nothing": (charging, "restore", always(None), "ledger|S9|L2"),
    "a lost answer is taken for a no": (binder, "judge", hasty, "S4|S5|S7|L"),
    "pods that a list lacks live on": (pods_and_nodes, "absent_pods", always([]), "L|S9"),
    "a newer epoch fences nobody": (MemoryEventLog, "_refusal", None, "S3"),
}


def apply(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    where, name, instead, _ = BROKEN_RULES[rule]
    if rule == "a newer epoch fences nobody":
        refusal = MemoryEventLog._refusal

        def unfenced(self: MemoryEventLog, *given: object) -> object:
            epochs, self._epochs = self._epochs, {}
            try:
                return refusal(self, *given)  # type: ignore[arg-type]
            finally:
                self._epochs = epochs

        monkeypatch.setattr(MemoryEventLog, "_refusal", unfenced)
    else:
        monkeypatch.setattr(where, name, instead)


# Seeds that found a bug when they were last looked for; they are asked first.
KNOWN = {"a listing alone proves a pod": 1}


def run_all(rule: str) -> None:
    for seed in (KNOWN.get(rule, runner.FRESH[0]), *runner.FRESH):
        runner.run_seed(seed)


@pytest.mark.parametrize("rule", sorted(BROKEN_RULES))
def test_a_broken_rule_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    apply(monkeypatch, rule)
    expected = BROKEN_RULES[rule][3].split("|")
    with pytest.raises(Broken) as raised:
        run_all(rule)
    story = str(raised.value).splitlines()[0]
    assert any(f" {name}" in story for name in expected), story
