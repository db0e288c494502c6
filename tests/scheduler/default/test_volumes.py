"""Volumes of claims: from PersistentVolumes, claims and CSINodes as the observer reads them to the
node that the pod gets, or the reason."""

from __future__ import annotations

from typing import Any

import pytest

from services.replay.deciding_state import placing_at
from services.scheduler.extender.verbs import Texts, filtered
from services.scheduler.snapshot.pod_class import key_of
from services.scheduler.watch import cluster_objects
from shared.events import streams
from shared.events.cluster_events import PodObserved
from shared.events.surroundings_events import Surrounding, SurroundingEnded, stream_of
from tests.scheduler.default.story import Story
from tests.scheduler.default.test_constraints import HOST, ZONE, placed, seen, world

Json = dict[str, Any]


async def shown(story: Story, kind: Surrounding, obj: Json, deleted: bool = False) -> None:
    """Append an object that the observer sees."""
    objects = story.cores[0].folded.cluster_objects
    event = (cluster_objects.deleted if deleted else cluster_objects.event_of)(objects, kind, obj)
    if event is not None:
        await story.tell(stream_of(event), event)


def volume(name: str, claim: str = "c", labels: Json | None = None, **spec: Any) -> Json:
    spec = {
        "claimRef": {"namespace": "ns", "name": claim},
        "csi": {"driver": "d", "volumeHandle": f"h-{name}"},
        **spec,
    }
    return {
        "metadata": {"name": name, "resourceVersion": "3", "labels": labels or {}},
        "spec": spec,
    }


def claim(
    name: str, of: str, phase: str = "Bound", mode: str = "ReadWriteOnce", **metadata: Any
) -> Json:
    metadata = {"name": name, "namespace": "ns", "resourceVersion": "4", **metadata}
    return {
        "metadata": metadata,
        "spec": {"volumeName": of, "accessModes": [mode]},
        "status": {"phase": phase},
    }


def only(key: str, *values: str) -> Json:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}


def using(name: str, *claims: str, **more: Any) -> PodObserved:
    return seen(
        name,
        volumes=[{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims],
        **more,
    )


async def bound(story: Story, name: str, mode: str = "ReadWriteOnce", **spec: Any) -> None:
    """Append a claim and its volume."""
    await shown(story, "volume", volume(f"pv-{name}", name, **spec))
    await shown(story, "claim", claim(name, f"pv-{name}", mode=mode))


def takes(node: str, count: int | None, driver: str = "d") -> Json:
    allocatable = {} if count is None else {"allocatable": {"count": count}}
    drivers = [{"name": driver, "nodeID": node, **allocatable}]
    return {"metadata": {"name": node, "resourceVersion": "9"}, "spec": {"drivers": drivers}}


async def test_a_pod_goes_only_where_all_its_volumes_are_reached() -> None:
    story = await world()
    await bound(story, "a", **only(ZONE, "b"))
    await bound(story, "b", **only(HOST, "n1", "n2"))
    assert await placed(story, using("p", "a")) == "n3"
    assert await placed(story, using("q", "b")) in ("n1", "n2")
    assert (
        await placed(story, using("r", "a", "b"))
        == "0/3 nodes are available: 3 node(s) had volume node affinity conflict."
    )


async def test_a_pod_waits_for_its_claim_and_goes_once_it_is_bound_and_its_volume_known() -> None:
    story = await world("n1")
    text = "0/1 nodes are available: 1 pod has unbound immediate PersistentVolumeClaims (ns/c)."
    assert await placed(story, using("p", "c")) == text
    await shown(story, "claim", claim("c", "", phase="Pending"))
    assert await story.decide() == {}
    await shown(story, "claim", claim("c", "pv"))
    assert await story.decide() == {}, "where the volume is, nobody knows yet"
    await shown(story, "volume", volume("pv"))
    assert await story.decide() == {"uid-p": "n1"}


async def test_each_of_many_pods_that_wait_for_claims_of_their_own_is_woken_by_its_own() -> None:
    """The pods have one pod class, but the queue wakes each of them."""
    story = await world("n1")
    for number in range(4):
        assert "unbound" in await placed(story, using(f"p{number}", f"c{number}"))
    for number in (2, 0, 3, 1):
        await bound(story, f"c{number}")
        assert await story.decide() == {f"uid-p{number}": "n1"}
    assert len(story.cores[0].cluster.evaluator._pod_classes) == 1  # type: ignore[attr-defined]
    assert key_of(using("x", "a").pod) != key_of(using("x", "b").pod)


async def test_a_claim_that_is_lost_or_being_deleted_takes_no_new_pod() -> None:
    story = await world("n1")
    await bound(story, "a")
    await shown(story, "claim", claim("a", "pv-a", phase="Lost"))
    assert "unbound immediate PersistentVolumeClaims (ns/a)" in await placed(story, using("p", "a"))
    await bound(story, "b")
    await shown(story, "claim", claim("b", "pv-b", deletionTimestamp="2026-11-22T00:00:00Z"))
    assert "being deleted" in await placed(story, using("q", "b"))
    await bound(story, "c")
    await shown(story, "volume", volume("pv-c"), deleted=True)
    assert "unbound immediate PersistentVolumeClaims (ns/c)" in await placed(story, using("r", "c"))


UNREADABLE: list[Any] = [
    {"required": {"nodeSelectorTerms": []}},
    {"required": {"nodeSelectorTerms": 1}},
    {"required": {}},
    {"required": [1]},
    "n1",
]


@pytest.mark.parametrize("affinity", UNREADABLE)
async def test_a_volume_whose_affinity_cannot_be_read_is_not_known(affinity: Any) -> None:
    story = await world("n1")
    await shown(story, "claim", claim("a", "pv-a"))
    await shown(story, "volume", volume("pv-a", nodeAffinity=affinity))
    assert "unbound immediate PersistentVolumeClaims (ns/a)" in await placed(story, using("p", "a"))


async def test_a_node_attaches_no_more_volumes_of_a_driver_than_its_csinode_says() -> None:
    story = await world("n1", "n2")
    await shown(story, "csinode", takes("n1", 2))
    await shown(story, "csinode", takes("n2", None))
    for number in range(2):
        await bound(story, f"c{number}")
        foreign = using(f"x{number}", f"c{number}", node="n1", schedulerName="default-scheduler")
        await story.tell(streams.pod(foreign.pod.uid), foreign)
    await bound(story, "new")
    assert await placed(story, using("p", "new")) == "n2", "it names no limit"
    await shown(story, "csinode", takes("n2", 0))
    await bound(story, "more")
    await bound(story, "other", csi={"driver": "e", "volumeHandle": "h"})
    assert (
        await placed(story, using("q", "more"))
        == "0/2 nodes are available: 2 node(s) exceed max volume count."
    )
    assert await placed(story, using("r", "other")) in ("n1", "n2")
    await shown(story, "csinode", takes("n2", 2))
    assert await story.decide() == {"uid-q": "n2"}
    await bound(story, "late")
    assert "exceed max volume count" in await placed(story, using("s", "late"))
    await story.ends(using("x0").pod)
    assert await story.decide() == {"uid-s": "n1"}


async def test_a_claim_of_a_pod_on_the_node_counts_once_if_it_is_bound_later() -> None:
    """Pods of other schedulers may be observed before their claims."""
    story = await world("n1")
    await shown(story, "csinode", takes("n1", 2))
    for name in ("x", "y"):
        await story.tell(streams.pod(f"uid-{name}"), using(name, name, node="n1"))
    await bound(story, "x")
    await bound(story, "a")
    assert "didn't match Pod's node affinity/selector" in await placed(
        story, using("p", "a", nodeSelector={"other": "node"})
    ), "judged, and not placed"
    await bound(story, "y")
    assert "exceed max volume count" in await placed(story, using("q", "a"))


async def test_a_volume_that_is_already_on_the_node_counts_once() -> None:
    story = await world("n1")
    await shown(story, "csinode", takes("n1", 1))
    await bound(story, "shared", mode="ReadWriteMany")
    for name in ("p", "q"):
        assert await placed(story, using(name, "shared")) == "n1"
    await bound(story, "own")
    assert "exceed max volume count" in await placed(story, using("r", "own"))


async def test_a_claim_for_one_pod_is_used_by_one_at_a_time() -> None:
    story = await world("n1", "n2")
    await bound(story, "c", mode="ReadWriteOncePod")
    assert await placed(story, using("p", "c")) in ("n1", "n2")
    assert await placed(story, using("q", "c")) == (
        "0/2 nodes are available: 2 node has pod using "
        "PersistentVolumeClaim with the same name and "
        "ReadWriteOncePod access mode."
    )
    await story.ends(using("p").pod)
    assert list(await story.decide()) == ["uid-q"]


async def test_two_pods_of_one_batch_do_not_share_a_claim_for_one_pod() -> None:
    story = await world("n1", "n2")
    await bound(story, "c", mode="ReadWriteOncePod")
    for name in ("p", "q"):
        event = using(name, "c")
        await story.tell(streams.pod(event.pod.uid), event)
    assert len(await story.decide()) == 1


async def test_an_ephemeral_volumes_claim_is_the_pods_own() -> None:
    story = await world("n1")
    claim_spec: Json = {
        "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]
    }
    assert await placed(story, seen("p", **claim_spec)) == (
        "0/1 nodes are available: 1 pod has unbound immediate "
        "PersistentVolumeClaims (ns/p-scratch)."
    )
    await shown(story, "volume", volume("pv"))
    owner: Json = {
        "ownerReferences": [{"kind": "Pod", "uid": "uid-of-another", "controller": True}]
    }
    await shown(story, "claim", claim("p-scratch", "pv", **owner))
    assert await story.decide() == {}
    owner["ownerReferences"][0]["uid"] = "uid-p"
    await shown(story, "claim", claim("p-scratch", "pv", **owner))
    assert await story.decide() == {"uid-p": "n1"}


@pytest.mark.parametrize(
    ("labels", "goes"),
    [
        ({ZONE: "b"}, {"n3"}),
        ({ZONE: "a__b"}, {"n1", "n2", "n3"}),
        ({"failure-domain.beta.kubernetes.io/zone": "b"}, {"n3"}),
        ({"topology.kubernetes.io/region": "r"}, set()),
    ],
)
async def test_zone_labels_of_a_volume_hold(labels: Json, goes: set[str]) -> None:
    story = await world()
    await bound(story, "c", labels=labels)
    got = await placed(story, using("p", "c"))
    assert got in goes if goes else "3 node(s) had volume node affinity conflict" in got


async def test_zone_labels_bar_no_node_without_such_labels() -> None:
    story = Story()
    await story.node("n1")
    await story.report(node="n1")
    await bound(story, "c", labels={ZONE: "b"})
    made = using("p", "c", container={"resources": {}})
    assert await placed(story, made) == "n1"


async def test_a_cycle_without_the_constraint_would_place_these_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scenes above have room, so only the volume refuses the pods."""
    story = await world("n1")
    made = using("p", "c")
    assert "unbound" in await placed(story, made)
    placing = placing_at(story.cores[0].folded, story.cores[0].config.cycle)
    assert filtered(placing, made.pod, ["n1"], Texts()).passing == ["n1"], (
        "the extender leaves volumes to kube-scheduler"
    )


async def test_what_surrounds_pods_survives_a_snapshot() -> None:
    from services.scheduler.state import state as scheduler_state

    story = await world("n1")
    await bound(story, "c", **only(HOST, "n1"))
    await shown(story, "csinode", takes("n1", 3))
    await shown(story, "namespace", {"metadata": {"name": "ns", "labels": {"team": "red"}}})
    followed = story.cores[0].folded
    assert scheduler_state.load(scheduler_state.dump(followed)) == followed


async def test_a_recorded_object_is_recorded_again_only_if_it_changed() -> None:
    story = await world("n1")
    await bound(story, "c")
    objects = story.cores[0].folded.cluster_objects
    assert cluster_objects.event_of(objects, "volume", volume("pv-c", "c")) is None
    again = volume("pv-c", "c") | {"metadata": {"name": "pv-c", "resourceVersion": "77"}}
    assert cluster_objects.event_of(objects, "volume", again) is None, (
        "a new version alone is no news"
    )
    assert (
        cluster_objects.event_of(objects, "volume", volume("pv-c", "c", **only(ZONE, "a")))
        is not None
    )
    assert cluster_objects.deleted(objects, "volume", volume("never-seen")) is None
    assert [
        event.name
        for event in cluster_objects.absent(objects, "claim", set(), "9")
        if isinstance(event, SurroundingEnded)
    ] == ["ns/c"]
    assert cluster_objects.absent(objects, "claim", {"ns/c"}, "9") == []
    assert cluster_objects.absent(objects, "claim", set(), "3") == [], "it is younger than the list"
