"""Pods that wait for a zone, not for a node: counted by resource and request, shown by doctor."""

from __future__ import annotations

import pytest

from services.doctor import pods
from services.scheduler.state import totals
from tests.ledger.given import pod, zone
from tests.scheduler.default.story import Story


async def test_pods_are_counted_by_resource_and_request_until_they_are_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story()
    await story.node("n1", allocatable={"cpu": 10_000, "memory": 1 << 34, "pods": 110})
    await story.report(zone(0, 8, free=3), zone(1, 8, free=3))
    one, two, large = pod("one", cpus=4), pod("two", cpus=4), pod("large", cpus=20)
    await story.arrives(one, two, large)
    await story.decide()
    ledger = story.cores[0].ledger
    (((resource, request), count),) = totals.zone_waits(ledger).items()
    assert (resource, count) == ("cpu", 2)
    assert request.startswith("cpu 4")
    (finding,) = pods.judge(ledger)
    assert finding.severity == "warning"
    assert finding.seen.startswith(
        "2 pod(s) wait for a zone, not for a node: cpu (they request cpu 4"
    )
    assert finding.remedy
    monkeypatch.setattr(totals, "MOST_CLASSES", 0)
    assert totals.zone_waits(ledger) == {("cpu", totals.OTHERS): 2}
    await story.report(zone(0, 8, free=3), zone(1, 8, free=4), at=2)
    await story.decide()
    assert totals.zone_waits(ledger) == {("cpu", totals.OTHERS): 1}
