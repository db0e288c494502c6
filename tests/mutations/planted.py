"""`python -m tests.mutations.planted NAME`: run the simulation with a planted bug until the
checker that is meant for the bug fails.

The bug is planted while its module is imported, so no file changes. The kept seed runs first, then
the 200 seeds in which a bug must be found. Prints the first line of each failure.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from tests.mutations.of_simulation import SEEDS, SIMULATED
from tests.mutations.table import Mutation

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 590


def stories(mutation: Mutation) -> list[str]:
    """Return the first line of each failure under the bug. If the checker that is meant for the
    bug failed, its line is the last.
    """
    command = [sys.executable, "-m", "tests.mutations.planted", mutation.name]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout.splitlines()


class Planting(MetaPathFinder):
    """Finds the one module, and gives it the bug."""

    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path)
        if spec is None or spec.origin != str(ROOT / self._mutation.file):
            return None
        spec.loader = _Planted(name, spec.origin, self._mutation)
        return spec


class _Planted(SourceFileLoader):
    def __init__(self, name: str, path: str, mutation: Mutation) -> None:
        super().__init__(name, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        """Compile the module: the cached one lacks the bug."""
        source = Path(self.path).read_text()
        assert source.count(self._mutation.old) == 1, (
            f"{self.path} has moved on; give the table its new words"
        )
        return compile(source.replace(self._mutation.old, self._mutation.new), self.path, "exec")


def main() -> None:
    """Plant, then import the simulation, and run."""
    mutation = next(each for each in SIMULATED if each.name == sys.argv[1])
    sys.meta_path.insert(0, Planting(mutation))
    from tests.simulation.__main__ import said_by
    from tests.simulation.runner import STEPS, run_seed
    from tests.simulation.world import Broken

    for seed, steps in [(mutation.seed, mutation.steps), *((seed, STEPS) for seed in SEEDS)]:
        try:
            run_seed(seed, steps)
        except Broken as broken:
            story = str(broken).splitlines()[0]
            print(story)
            if said_by(mutation.catcher, story):
                return


if __name__ == "__main__":
    main()
