"""How far scores surely drop: by the points of what is asked for, and never wrong after shapes or
resources came.
"""

from __future__ import annotations

import numpy as np

from services.scheduler.select.score_bounds import ScoreDrops

ROWS = {"cpu": 0, "memory": 1}


def test_a_shapes_score_drops_by_the_mean_of_its_resources_points() -> None:
    drops = ScoreDrops()
    drops.learn(0, ("cpu", "memory"), ROWS)
    drops.learn(1, ("cpu",), ROWS)
    drops.learn(2, (), ROWS)
    assert drops.of(np.array([70, 2]), np.array([1000, 100]), ROWS, 4).tolist() == [4, 7, 0, 0]


def test_a_resource_that_no_node_has_counts_for_nothing() -> None:
    drops = ScoreDrops()
    drops.learn(0, ("cpu", "example.com/gpu"), ROWS)
    assert drops.of(np.array([8, 8]), np.array([100, 100]), ROWS, 1).tolist() == [4]


def test_shapes_and_resources_that_come_later_are_learnt() -> None:
    drops, rows = ScoreDrops(), {"cpu": 0}
    drops.learn(0, ("cpu", "memory"), rows)
    assert drops.of(np.array([6]), np.array([100]), rows, 1).tolist() == [3]
    drops.learn(0, ("memory",), ROWS)
    drops.learn(1, ("memory", "cpu"), ROWS)
    assert drops.of(np.array([6, 9]), np.array([100, 100]), ROWS, 2).tolist() == [9, 7]
