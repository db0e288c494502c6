"""Nodes move between two cells under load and crashes: no pod is lost, none is placed twice."""

from __future__ import annotations

from tests.simulation.runner import _quiet, _story
from tests.simulation.two_cells import TwoCells
from tests.simulation.world import Broken

STEPS, SEEDS = 800, range(12)


def _played(seed: int) -> set[str]:
    """Play a seed to its rest, and return what happened in it."""
    with _quiet():
        world = TwoCells(seed)
        try:
            world.run(STEPS)
            world.rest()
        except Exception as error:
            raise Broken(_story(world, error)) from error
        finally:
            world.close()
    return world.marks


def test_nodes_move_without_loss() -> None:
    happened = set[str]().union(*map(_played, SEEDS))
    assert {"did move", "did crash", "did keep", "did append lost", "did answer lost"} <= happened
    assert {"pods moved", "late patch"} <= happened
    assert {"hop 1", "hop 2", "a gang goes", "late patch of a pod"} <= happened
