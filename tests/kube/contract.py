"""The behaviour of a Kubernetes API server on which Topolog relies. The same tests run against the
simulated API and against a real server.

A test module imports everything from here and has a fixture `world`.
"""

from __future__ import annotations

import pytest

from services.binder.announcements import condition, excluded, failed, nominated
from services.binder.core import NAMESPACE_ENDS, Identity
from shared.kube import client
from shared.kube.port import Answer, Kind
from shared.kube.rights import TOPOLOGY_GROUP, Right
from tests.kube.world import World

STRATEGIC = "application/strategic-merge-patch+json"


async def test_a_list_is_whole_over_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        await world.pod(f"p{number}")
    monkeypatch.setattr(client, "PAGE_LIMIT", 2)
    assert sorted(pod["metadata"]["name"] for pod in await world.mine()) == [
        "p0",
        "p1",
        "p2",
        "p3",
        "p4",
    ]


async def test_a_list_as_a_stream_is_whole_and_a_watch_goes_on_from_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await world.pod(f"p{number}")
    monkeypatch.setattr(client, "PAGE_LIMIT", 2)
    parts = [part async for part in world.kube.pages("pods", streamed=True)]
    listed = [
        pod
        for part in parts
        for pod in part.items
        if pod["metadata"]["namespace"] == world.namespace
    ]
    assert sorted(pod["metadata"]["name"] for pod in listed) == ["p0", "p1", "p2", "p3", "p4"]
    assert ("pods" in world.kube._in_pages) is not world.streams
    if world.streams:
        assert [part.resource_version for part in parts[:-1]] == [""] * (len(parts) - 1)
    await world.pod("after")
    (seen,) = await world.see("pods", parts[-1].resource_version, 1)
    assert (seen.type, seen.object["metadata"]["name"]) == ("ADDED", "after")


@pytest.mark.parametrize(
    "kind", ["namespaces", "nodes", "persistentvolumes", "persistentvolumeclaims", "csinodes"]
)
async def test_each_kind_that_is_followed_can_be_listed_both_ways(world: World, kind: Kind) -> None:
    streamed = {
        obj["metadata"]["uid"]
        async for part in world.kube.pages(kind, streamed=True)
        for obj in part.items
    }
    assert (kind in world.kube._in_pages) is not world.streams
    assert streamed == {obj["metadata"]["uid"] for obj in (await world.kube.list(kind)).items}


async def test_a_watch_from_a_lists_version_shows_exactly_the_later_changes(world: World) -> None:
    await world.pod("before")
    listed = await world.kube.list("pods")
    created_pod = await world.pod("after")
    await world.bind(created_pod)
    await world.ask("DELETE", f"{world.path('pods')}/after?gracePeriodSeconds=0")
    seen = await world.see("pods", listed.resource_version, 3)
    assert {event.object["metadata"]["name"] for event in seen} == {"after"}
    assert [event.type for event in seen[:2]] == ["ADDED", "MODIFIED"]
    assert seen[1].object["spec"]["nodeName"] == "n1"


async def test_versions_of_one_object_rise_as_numbers(world: World) -> None:
    """The ledger orders events of a pod by these versions."""
    created_pod = await world.pod()
    await world.bind(created_pod)
    assert int((await world.get())["metadata"]["resourceVersion"]) > int(
        created_pod["metadata"]["resourceVersion"]
    )


async def test_a_binding_sets_the_node_and_merges_its_annotations(world: World) -> None:
    created_pod = await world.pod()
    patch = {"metadata": {"annotations": {"own": "kept", "topolog.io/placement": "old"}}}
    await world.ask("PATCH", f"{world.path('pods')}/p", patch, STRATEGIC)
    answer = await world.bind(created_pod, **{"topolog.io/placement": "c=0"})
    assert answer.status == 201
    pod = await world.get()
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"]["annotations"] == {"own": "kept", "topolog.io/placement": "c=0"}
    (condition,) = [item for item in pod["status"]["conditions"] if item["type"] == "PodScheduled"]
    assert condition["status"] == "True"


async def test_a_binding_with_another_uid_is_a_conflict_and_binds_nothing(world: World) -> None:
    created_pod = await world.pod()
    answer = await world.bind(created_pod, uid="00000000-0000-0000-0000-000000000000")
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "uid" in answer.message.lower()
    assert not (await world.get())["spec"].get("nodeName")


@pytest.mark.parametrize("again", ["n1", "n2"])
async def test_a_bound_pod_is_not_bound_again_not_even_to_its_own_node(
    world: World, again: str
) -> None:
    created_pod = await world.pod()
    await world.bind(created_pod, "n1")
    answer = await world.bind(created_pod, again, later="1")
    assert (answer.status, answer.reason) == (409, "Conflict")
    pod = await world.get()
    assert pod["spec"]["nodeName"] == "n1"
    assert "later" not in pod["metadata"].get("annotations", {})


async def test_a_terminating_pod_is_not_bound(world: World) -> None:
    created_pod = await world.pod("p")
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    assert (await world.ask("PATCH", f"{world.path('pods')}/p", hold, STRATEGIC)).ok
    await world.ask("DELETE", f"{world.path('pods')}/p")
    answer = await world.bind(created_pod)
    assert answer.status == 409
    assert not (await world.get())["spec"].get("nodeName")
    free = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/hold"]}}
    await world.ask("PATCH", f"{world.path('pods')}/p", free, STRATEGIC)


async def test_a_binding_clears_the_nominated_node(world: World) -> None:
    created_pod = await world.pod()
    for node in ("n1", ""):
        assert (
            await world.kube.patch_pod_status(
                world.namespace, "p", nominated(created_pod["metadata"]["uid"], node)
            )
        ).ok  # type: ignore[union-attr]
        assert (await world.get())["status"].get("nominatedNodeName", "") == node
    await world.kube.patch_pod_status(
        world.namespace, "p", nominated(created_pod["metadata"]["uid"], "n1")
    )
    await world.bind(created_pod, "n2")
    assert "nominatedNodeName" not in (await world.get())["status"]


async def test_a_status_is_written_to_the_pod_of_that_uid_alone(world: World) -> None:
    await world.pod()
    another = "00000000-0000-0000-0000-000000000000"
    answer = await world.kube.patch_pod_status(
        world.namespace, "p", condition(another, "0/1 nodes", 0)
    )
    assert isinstance(answer, Answer)
    assert answer.status == 422
    assert not (await world.get())["status"].get("conditions")


async def test_no_pod_is_bound_or_evicted_in_a_namespace_that_ends(world: World) -> None:
    """The server answers 403, as an admission policy does. It refuses Events likewise, and accepts
    conditions.
    """
    created_pod = await world.pod()
    uid = created_pod["metadata"]["uid"]
    path, hold = f"{world.path('pods')}/p", ["example.com/hold"]
    assert (await world.ask("PATCH", path, {"metadata": {"finalizers": hold}}, STRATEGIC)).ok
    await world.ask("DELETE", f"/api/v1/namespaces/{world.namespace}")
    answers = [
        await world.bind(created_pod),
        await world.kube.evict(world.namespace, "p", uid),
        await world.kube.create_event(
            world.namespace, failed(Identity(world.namespace, "p"), uid, "0/1 nodes", 0, 1)
        ),
    ]
    assert [answer.status for answer in answers if isinstance(answer, Answer)] == [403] * 3
    assert all(NAMESPACE_ENDS in answer.message for answer in answers)
    assert (
        await world.kube.patch_pod_status(world.namespace, "p", condition(uid, "0/1 nodes", 0))
    ).ok  # type: ignore[union-attr]
    assert not (await world.get())["spec"].get("nodeName")
    await world.ask(
        "PATCH", path, {"metadata": {"$deleteFromPrimitiveList/finalizers": hold}}, STRATEGIC
    )


async def test_an_event_is_in_its_pods_namespace_and_a_nodes_event_in_default(world: World) -> None:
    event = excluded(f"{world.namespace}-n1", Identity("", ""), "why", 0, 1)
    wrong = await world.kube.create_event(world.namespace, event)
    right = await world.kube.create_event("default", event)
    assert [answer.status for answer in (wrong, right) if isinstance(answer, Answer)] == [400, 201]
    await world.ask("DELETE", f"/api/v1/namespaces/default/events/{event['metadata']['name']}")


async def test_what_does_not_exist_is_404(world: World) -> None:
    read = await world.kube.get_pod(world.namespace, "nobody")
    bound = await world.kube.bind(world.namespace, "nobody", "", "n1", {})
    evicted = await world.kube.evict(world.namespace, "nobody", "u")
    assert [answer.status for answer in (read, bound, evicted) if isinstance(answer, Answer)] == [
        404,
        404,
        404,
    ]


async def test_an_eviction_ends_the_pod(world: World) -> None:
    created_pod = await world.pod()
    answer = await world.kube.evict(world.namespace, "p", created_pod["metadata"]["uid"])
    assert isinstance(answer, Answer)
    assert answer.status == 201
    assert await world.mine() == [] or (await world.get())["metadata"].get("deletionTimestamp")


async def test_an_eviction_with_another_uid_is_a_conflict(world: World) -> None:
    await world.pod()
    answer = await world.kube.evict(world.namespace, "p", "00000000-0000-0000-0000-000000000000")
    assert isinstance(answer, Answer)
    assert answer.status == 409
    assert not (await world.get())["metadata"].get("deletionTimestamp")


async def test_a_disruption_budget_refuses_an_eviction_with_429(world: World) -> None:
    created_pod = await world.pod()
    await world.bind(created_pod)
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await world.kube.patch_pod_status(world.namespace, "p", ready)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}},
    }
    assert (
        await world.ask("POST", world.path("poddisruptionbudgets", "/apis/policy/v1"), budget)
    ).ok
    answer = await world.kube.evict(world.namespace, "p", created_pod["metadata"]["uid"])
    assert isinstance(answer, Answer)
    assert answer.status == 429
    assert not answer.definite
    assert "disruption budget" in answer.message
    assert not (await world.get())["metadata"].get("deletionTimestamp")


async def test_conditions_merge_by_type(world: World) -> None:
    await world.pod()
    for kind, message in (("PodScheduled", "first"), ("Other", "kept"), ("PodScheduled", "second")):
        condition = {"type": kind, "status": "False", "reason": "Unschedulable", "message": message}
        answer = await world.kube.patch_pod_status(
            world.namespace, "p", {"status": {"conditions": [condition]}}
        )
        assert isinstance(answer, Answer)
        assert answer.ok, answer
    conditions = {
        item["type"]: item["message"] for item in (await world.get())["status"]["conditions"]
    }
    assert conditions == {"PodScheduled": "second", "Other": "kept"}


async def test_an_event_of_the_same_name_is_a_conflict(world: World) -> None:
    created_pod = await world.pod()
    involved = {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": world.namespace,
        "name": "p",
        "uid": created_pod["metadata"]["uid"],
    }
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "p.1", "namespace": world.namespace},
        "involvedObject": involved,
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "0/1 nodes",
    }
    answers = [await world.kube.create_event(world.namespace, event) for _ in range(2)]
    assert [answer.status for answer in answers if isinstance(answer, Answer)] == [201, 409]


async def test_a_topology_is_created_and_replaced_by_one_call(world: World) -> None:
    """Needs the CustomResourceDefinition of NodeResourceTopology v1alpha2."""

    def topology(cpus: str, *zones: str) -> dict[str, object]:
        resource = {"name": "cpu", "capacity": cpus, "allocatable": cpus, "available": cpus}
        return {
            "apiVersion": "topology.node.k8s.io/v1alpha2",
            "kind": "NodeResourceTopology",
            "metadata": {"name": world.namespace},
            "zones": [{"name": name, "type": "Node", "resources": [resource]} for name in zones],
        }

    for cpus, zones in (("8", ("node-0", "node-1")), ("6", ("node-0",))):
        answer = await world.kube.apply_topology(world.namespace, topology(cpus, *zones))
        assert isinstance(answer, Answer)
        assert answer.ok, answer
    listed = await world.kube.list("noderesourcetopologies")
    (namespace,) = [item for item in listed.items if item["metadata"]["name"] == world.namespace]
    assert [(zone["name"], zone["resources"][0]["available"]) for zone in namespace["zones"]] == [
        ("node-0", "6")
    ]
    await world.ask(
        "DELETE", f"/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/{world.namespace}"
    )


async def test_a_topology_is_applied_over_the_version_that_was_seen_and_over_no_other_writers(
    world: World,
) -> None:
    """An object has one writer. Without `force` another writer gets a conflict, a version is an
    optimistic lock, and only the version that was seen is deleted.
    """
    name = f"{world.namespace}-owned"
    topology = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "zones": [{"name": "node-0", "type": "Node"}],
    }
    topologies = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
    path = f"{topologies}/{name}?fieldManager=other-exporter"
    assert (await world.ask("PATCH", path, topology, "application/apply-patch+yaml")).ok
    changed = {**topology, "zones": [{"name": "node-1", "type": "Node"}]}
    refused = await world.kube.apply_topology(name, changed, force=False)
    forced = await world.kube.apply_topology(name, changed)
    assert [answer.status for answer in (refused, forced) if isinstance(answer, Answer)] == [
        409,
        200,
    ]
    seen = forced.body["metadata"]  # type: ignore[union-attr]
    again = {**topology, "metadata": {"name": name, "resourceVersion": seen["resourceVersion"]}}
    answers = [
        await world.kube.apply_topology(name, again),
        await world.kube.apply_topology(name, {**again, "zones": []}),
    ]
    assert [answer.status for answer in answers if isinstance(answer, Answer)] == [200, 409]
    newest = answers[0].body["metadata"]  # type: ignore[union-attr]
    stale = await world.kube.delete_topology(name, seen["uid"], seen["resourceVersion"])
    exact = await world.kube.delete_topology(name, seen["uid"], newest["resourceVersion"])
    gone = await world.kube.delete_topology(name, seen["uid"], newest["resourceVersion"])
    assert [answer.status for answer in (stale, exact, gone) if isinstance(answer, Answer)] == [
        409,
        200,
        404,
    ]


async def test_groups_that_are_served_and_rights_that_are_held_can_be_asked(world: World) -> None:
    assert "v1alpha2" in await world.kube.served_versions(TOPOLOGY_GROUP)  # type: ignore[operator]
    assert await world.kube.served_versions("nothing.example.com") == ()
    answer = await world.kube.may(Right("", "pods/binding", "create"))
    assert isinstance(answer, Answer)
    assert answer.body["status"]["allowed"] is True
