"""Decisions of some kubelet versions were recorded. Of any other one the states are marked."""

from __future__ import annotations

import pytest

from services.scheduler.snapshot.config import CycleConfig
from shared.domain.resources import CPU
from shared.ledger.kubelet_states import OTHER_KUBELET, kubelet_states
from tests.kubelet.machines import kubelet
from tests.scheduler.kubelet_worlds import NODE, proven_world


@pytest.mark.parametrize(
    ("version", "marked"),
    [
        ("v1.36.2", False),
        ("v1.31.13", False),
        ("v1.30.14", True),
        ("v1.37.0-rc.1", True),
        ("v1.3.6", True),
        ("", True),
    ],
)
def test_another_kubelet_is_marked(version: str, marked: bool) -> None:
    world = proven_world(kubelet(2, "restricted", "container"), CycleConfig())
    node = world.ledger.nodes[NODE]
    assert node.observed is not None
    assert node.report is not None
    assert CPU in node.report.tracked
    world.observe(NODE, allocatable=node.observed.allocatable, kubelet_version=version)
    states = kubelet_states(node, node.report, (), {}, "restricted", "container", False)
    assert states is not None
    assert (OTHER_KUBELET in states.bounds) is marked
