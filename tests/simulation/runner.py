"""Running seeds: quiet logs, one world per seed, and the output of a failure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from tests.simulation import liveness
from tests.simulation.profile import DRAWN, HOLDING, LATER, NEWEST, NOMINATING, THEMED, Fixed
from tests.simulation.world import Broken, World

SEEDS = Path(__file__).with_name("seeds.txt")
STEPS = 500
# Two files of tests play every other seed. The seeds with themes are in an order that gives both
# files all themes.
FRESH = (
    *range(20_000, 20_020),
    *range(LATER, LATER + 20),
    *(THEMED + at // 4 + 20 * (at % 4) for at in range(20)),
    *range(NEWEST + 200, NEWEST + 210),
    *range(NOMINATING, NOMINATING + 8),
    *range(HOLDING, HOLDING + 8),
)
COLUMNS = " step       ms  head action       about -> what came of it"


def run_seed(seed: int, steps: int = STEPS, fixed: Fixed = DRAWN) -> World:
    """Play this many steps with faults, then check liveness without faults. Raises Broken with the
    story.
    """
    with _quiet():
        world = World(seed, fixed)
        try:
            world.run(steps)
            liveness.check(world)
        except Exception as error:
            raise Broken(_story(world, error)) from error
        finally:
            world.close()
    return world


def _story(world: World, error: Exception) -> str:
    again = f"python -m tests.simulation --seeds {world.seed}"
    head = (
        f"seed {world.seed}, step {world.steps + 1}: {type(error).__name__}: "
        f"{error}\nagain: {again}"
    )
    return "\n".join([head, COLUMNS, *world.trace, head])


@contextmanager
def _quiet() -> Iterator[None]:
    """Services log every fault; that output is discarded here."""
    configuration = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        yield
    finally:
        structlog.configure(**configuration)


def keep(seed: int, why: str) -> bool:
    """Keep one more seed that every test run tries; return False if it is kept already."""
    if seed in kept_seeds():
        return False
    with SEEDS.open("a") as file:
        file.write(f"{seed} {why}\n")
    return True


def kept_seeds() -> dict[int, str]:
    """Return the seeds of seeds.txt, with the reason why each is kept."""
    by_options = {}
    for line in SEEDS.read_text().splitlines():
        seed, _, why = line.partition(" ")
        if seed.isdigit():
            by_options[int(seed)] = why.strip()
    return by_options
