"""How far scores surely fall: by the points of what is asked for, and never wrong after shapes or resources came."""

from __future__ import annotations

import numpy as np

from services.scheduler.deciding.verdicts.score_bounds import Falls

ROWS = {"cpu": 0, "memory": 1}


def test_a_shape_falls_by_the_mean_of_its_resources_points() -> None:
    falls = Falls()
    falls.learn(0, ("cpu", "memory"), ROWS)
    falls.learn(1, ("cpu",), ROWS)
    falls.learn(2, (), ROWS)
    assert falls.of(np.array([70, 2]), np.array([1000, 100]), ROWS, 4).tolist() == [4, 7, 0, 0]


def test_a_resource_that_no_node_has_counts_for_nothing() -> None:
    falls = Falls()
    falls.learn(0, ("cpu", "example.com/gpu"), ROWS)
    assert falls.of(np.array([8, 8]), np.array([100, 100]), ROWS, 1).tolist() == [4]


def test_shapes_and_resources_that_come_later_are_learnt() -> None:
    falls, rows = Falls(), {"cpu": 0}
    falls.learn(0, ("cpu", "memory"), rows)
    assert falls.of(np.array([6]), np.array([100]), rows, 1).tolist() == [3]
    falls.learn(0, ("memory",), ROWS)
    falls.learn(1, ("memory", "cpu"), ROWS)
    assert falls.of(np.array([6, 9]), np.array([100, 100]), ROWS, 2).tolist() == [9, 7]
