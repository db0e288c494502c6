"""A fault of one pod or one node is reported there, and the others are scheduled."""

from __future__ import annotations

import msgspec
import pytest

from services.binder import announcements
from services.binder.core import Identity
from services.scheduler.watch import pods_and_nodes
from services.scheduler.watch.seen_specs import SeenSpecs
from shared.domain.report import Zone, ZoneResource
from shared.events import streams
from shared.events.cluster_events import PodObserved
from shared.ledger.state import Ledger
from tests.ledger.given import GIB, pod, zone
from tests.scheduler.default.story import Story
from tests.scheduler.observer.test_news import pod as manifest


@pytest.fixture
def story() -> Story:
    return Story()


async def test_a_pod_with_an_unparsable_quantity_waits_with_an_event_that_names_field_and_remedy(
    story: Story,
) -> None:
    await story.node()
    await story.report(zone(0, 8))
    broken = pods_and_nodes.pod_event(
        Ledger(), "topolog", manifest("broken", cpu="2 cores"), SeenSpecs()
    )
    assert isinstance(broken, PodObserved)
    await story.tell(streams.pod("uid-broken"), broken)
    await story.arrives(pod("good", cpus=2))
    assert await story.decide() == {"uid-good": "n1"}
    (verdict,) = await story.verdicts(broken.pod)
    assert "spec.containers[0].resources" in verdict
    assert "'2 cores'" in verdict
    event = announcements.failed(Identity("ns", "broken"), "uid-broken", verdict, 0, 7)
    assert (event["type"], event["reason"], event["message"]) == (
        "Warning",
        "FailedScheduling",
        verdict,
    )


@pytest.mark.parametrize("name", [["topolog"], {"a": 1}, 5, None, ""])
def test_an_empty_scheduler_name_belongs_to_no_scheduler_and_stops_none(name: object) -> None:
    made = manifest("p")
    made["spec"]["schedulerName"] = name
    assert pods_and_nodes.pod_event(Ledger(), frozenset({"topolog"}), made, SeenSpecs()) is None


async def test_a_corrected_pod_is_scheduled(story: Story) -> None:
    await story.node()
    roomy = zone(0, 8)
    await story.report(
        Zone(0, {**roomy.resources, "memory": ZoneResource(8 * GIB, 8 * GIB, 8 * GIB)})
    )
    for cpu in ("two", "2"):
        seen = pods_and_nodes.pod_event(
            story.cores[0].ledger, "topolog", manifest("p", cpu=cpu), SeenSpecs()
        )
        assert isinstance(seen, PodObserved)
        await story.tell(streams.pod("uid-p"), seen)
        decided = await story.decide()
    assert decided == {"uid-p": "n1"}


async def test_a_zone_that_vanishes_takes_nothing_more_and_stops_no_pod(story: Story) -> None:
    await story.node()
    await story.report(zone(0, 4), zone(1, 8), at=1)
    await story.arrives(pod("was-there", cpus=6))
    assert await story.decide() == {"uid-was-there": "n1"}
    await story.report(zone(0, 4), at=2)
    await story.arrives(pod("large", cpus=6), pod("small", cpus=2))
    decided = await story.decide()
    assert "uid-large" not in decided
    assert decided.get("uid-small") in (None, "n1")
    await story.report(zone(0, 4), zone(1, 8), at=3)
    await story.ends(pod("was-there", cpus=6))
    assert "uid-large" in await story.decide()


async def test_a_full_queue_drops_no_pod(story: Story) -> None:
    """Thousands of pods wait. The end of a pod wakes those that fit, and none is forgotten."""
    await story.node()
    await story.report(zone(0, 8))
    made = [pod(f"p{number:04}", cpus=8) for number in range(400)]
    await story.arrives(*made)
    placed: list[str] = []
    for _ in range(5):
        decided = await story.decide()
        assert len(decided) == 1
        placed += decided
        uid = placed[-1]
        await story.ends(msgspec.structs.replace(made[0], uid=uid))
    assert placed == [one.uid for one in made[:5]]
    assert len(story.cores[0].queue) == 395
