"""Annotations of KAI-Scheduler's NUMA placement exporter, both ways; forms as in its documents and
source (d5bc503a).
"""

from __future__ import annotations

import pytest

from shared.domain.report import Placement, ZonedAmount
from shared.kube.kai import MEMORY_GROUPS, PLACEMENT, observed_placement, placement_annotations

DOCUMENTED = '[{"zone":"node-0","amount":{"nvidia.com/gpu":"2","cpu":"8","memory":"17179869184"}}]'
GROUPS = (
    '[{"memoryNodes":["node-0","node-1"],"amount":{"memory":"161061273600"}},'
    '{"memoryNodes":["node-2"],"amount":{"memory":"0"}}]'
)


def test_the_documented_annotation() -> None:
    assert observed_placement({PLACEMENT: DOCUMENTED}) == (
        ZonedAmount("cpu", (0,), 8000),
        ZonedAmount("memory", (0,), 16 << 30),
        ZonedAmount("nvidia.com/gpu", (0,), 2),
    )


def test_memory_groups_replace_the_memory_of_the_older_annotation() -> None:
    assert observed_placement({PLACEMENT: DOCUMENTED, MEMORY_GROUPS: GROUPS}) == (
        ZonedAmount("cpu", (0,), 8000),
        ZonedAmount("memory", (0, 1), 150 << 30),
        ZonedAmount("nvidia.com/gpu", (0,), 2),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{not json",
        "null",
        '[{"zone":"numa-0","amount":{"cpu":"1"}}]',
        '[{"zone":"node-0","amount":{"cpu":"many"}}]',
        "[" * 100_000,
    ],
)
@pytest.mark.parametrize("key", [PLACEMENT, MEMORY_GROUPS])
def test_what_cannot_be_read_says_nothing(key: str, text: str) -> None:
    assert observed_placement({PLACEMENT: DOCUMENTED, key: text}) == ()


def test_written_as_the_exporter_writes_and_read_again() -> None:
    holdings = (
        ZonedAmount("cpu", (10,), 2000, "2-3"),
        ZonedAmount("cpu", (9,), 1000, "1"),
        ZonedAmount("memory", (9, 10), 1 << 30),
    )
    annotations = placement_annotations([Placement("ns", "a", "c", holdings)])
    assert annotations[PLACEMENT] == (
        '[{"zone":"node-10","amount":{"cpu":"2"}},{"zone":"node-9","amount":{"cpu":"1"}}]'
    )
    assert set(observed_placement(annotations)) == {
        ZonedAmount(item.resource, item.zones, item.amount) for item in holdings
    }
