"""From a Kubernetes object to an event or to nothing: only changes that placement depends on are
events.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.state.cluster_objects import ClusterObjects
from services.scheduler.watch import cluster_objects, pods_and_nodes
from services.scheduler.watch.seen_specs import SeenSpecs
from shared.domain.gang import MATCH_POLICIES, NETWORK, GangRules, PodGroupApi
from shared.events.cluster_events import (
    NodeEnded,
    NodeObserved,
    PodEnded,
    PodObserved,
    PodRunning,
    Taint,
)
from shared.events.codec import encode
from shared.events.scheduling_events import NodeCharged, PodReserved
from shared.events.surroundings_events import (
    DeviceClassObserved,
    PodGroupObserved,
    Surrounding,
    SurroundingEnded,
    SurroundingEvent,
)
from tests.ledger.given import History

Json = dict[str, Any]


def pod(
    name: str = "a",
    version: int = 5,
    node: str = "",
    phase: str = "Pending",
    cpu: str = "2",
    **metadata: Any,
) -> Json:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    spec: Json = {
        "schedulerName": "topolog",
        "containers": [
            {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
        ],
    }
    if node:
        spec["nodeName"] = node
    meta = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        **metadata,
    }
    return {"metadata": meta, "spec": spec, "status": {"phase": phase}}


def node(name: str = "n1", uid: str = "node-1", version: int = 3, **status: Any) -> Json:
    return {
        "metadata": {"name": name, "uid": uid, "resourceVersion": str(version)},
        "spec": {},
        "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"}, **status},
    }


class Watched:
    """A ledger, and the events that the observer makes of watched objects. Every event is folded at
    once.
    """

    def __init__(self) -> None:
        self.history = History()
        self.sightings = SeenSpecs()

    def pod(self, obj: Json) -> object:
        event = pods_and_nodes.pod_event(self.history.ledger, "topolog", obj, self.sightings)
        if event is not None:
            uid = event.pod.uid if isinstance(event, PodObserved) else event.uid
            self.history.tell(f"pod/{uid}", event)
        return event

    def node(self, obj: Json) -> object:
        event = pods_and_nodes.node_event(self.history.ledger, obj)
        if event is not None:
            self.history.tell(f"node/{event.name}", event)
        return event

    def reserve(self, uid: str, name: str = "n1") -> None:
        self.history.tell(f"pod/{uid}", PodReserved(uid, name))
        self.history.tell(f"node/{name}", NodeCharged(name, uid))


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_life_seen_step_by_step_is_recorded_once_per_step(watched: Watched) -> None:
    events = []
    steps = [
        pod(),
        pod(version=6),
        pod(version=7, node="n1"),
        pod(version=8, node="n1", phase="Running"),
    ]
    for obj in [*steps[:2], *steps[:2]]:
        events.append(watched.pod(obj))
    watched.reserve("uid-a")
    for obj in [
        *steps[2:],
        *steps[2:],
        pod(version=9, node="n1", phase="Succeeded"),
        pod(version=9, phase="Succeeded"),
    ]:
        events.append(watched.pod(obj))
    kinds = [type(event) for event in events if event is not None]
    assert kinds == [PodObserved, PodRunning, PodEnded], events


@pytest.mark.parametrize("reserved", [False, True])
def test_a_status_that_says_running_of_a_pod_on_no_node_says_nothing(
    watched: Watched, reserved: bool
) -> None:
    """Any writer of statuses may write that; an event without a node would quarantine the pod's
    stream.
    """
    watched.pod(pod())
    if reserved:
        watched.reserve("uid-a")
    assert watched.pod(pod(version=6, phase="Running")) is None


def test_a_binding_that_merged_annotations_in_is_no_news(watched: Watched) -> None:
    watched.pod(pod())
    watched.reserve("uid-a")
    assert (
        watched.pod(pod(version=9, node="n1", annotations={"topolog.io/placement": "c=0"})) is None
    )


def test_a_resize_of_a_running_pod_is_news(watched: Watched) -> None:
    watched.pod(pod())
    watched.reserve("uid-a")
    watched.pod(pod(version=7, node="n1", phase="Running"))
    event = watched.pod(pod(version=8, node="n1", phase="Running", cpu="3"))
    assert isinstance(event, PodObserved)
    assert event.pod.containers[0].requests["cpu"] == 3000


def test_a_pod_on_another_node_than_reserved_is_news(watched: Watched) -> None:
    watched.pod(pod())
    watched.reserve("uid-a", "n1")
    event = watched.pod(pod(version=7, node="n2"))
    assert isinstance(event, PodObserved)
    assert event.node == "n2"


def test_the_beginning_of_a_deletion_is_news_once(watched: Watched) -> None:
    watched.pod(pod())
    gone = pod(version=6, deletionTimestamp="2030-01-01T00:00:00Z")
    assert isinstance(watched.pod(gone), PodObserved)
    assert watched.pod(gone) is None


def test_a_foreign_pod_is_an_event_only_once_it_is_on_a_node(watched: Watched) -> None:
    foreign = pod("f")
    foreign["spec"]["schedulerName"] = "default-scheduler"
    assert watched.pod(foreign) is None
    foreign["spec"]["nodeName"] = "n1"
    event = watched.pod(foreign)
    assert isinstance(event, PodObserved)
    assert event.node == "n1"


def test_a_static_pod_is_known_by_its_mirror(watched: Watched) -> None:
    event = watched.pod(pod("s", node="n1", annotations={"kubernetes.io/config.mirror": "h"}))
    assert isinstance(event, PodObserved)
    assert event.static


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ({"phase": "Succeeded"}, "succeeded"),
        ({"phase": "Failed"}, "failed"),
        ({"phase": "Failed", "reason": "TopologyAffinityError", "message": "cannot"}, "rejected"),
        ({"phase": "Failed", "reason": "Evicted", "containerStatuses": [{"name": "c"}]}, "failed"),
    ],
)
def test_every_end_has_its_cause(watched: Watched, status: Json, cause: str) -> None:
    watched.pod(pod())
    obj = pod(version=8, node="n1")
    obj["status"] = status
    event = watched.pod(obj)
    assert isinstance(event, PodEnded)
    assert (event.cause, event.reason, event.message) == (
        cause,
        status.get("reason", ""),
        status.get("message", ""),
    )


def test_the_end_of_an_unknown_pod_is_no_event(watched: Watched) -> None:
    assert watched.pod(pod(phase="Succeeded")) is None
    assert pods_and_nodes.pod_deleted(watched.history.ledger, pod()) is None


def test_an_unparsable_quantity_is_reported_with_field_value_and_remedy(watched: Watched) -> None:
    event = watched.pod(pod(cpu="two"))
    assert isinstance(event, PodObserved)
    assert "cpu" in event.problem
    assert "two" in event.problem
    assert event.pod.name == "a"
    assert isinstance(watched.pod(pod(version=6, cpu="2")), PodObserved), (
        "a corrected manifest is news"
    )


def test_after_a_list_absent_pods_end_unless_they_are_younger_than_it(watched: Watched) -> None:
    for name, version in (("old", 5), ("present", 6), ("young", 99)):
        watched.pod(pod(name, version))
    absent = pods_and_nodes.absent_pods(watched.history.ledger, {"uid-present"}, "50")
    assert [(event.uid, event.cause, event.resource_version) for event in absent] == [
        ("uid-old", "absent_from_list", "50")
    ]


def test_a_node_is_news_when_placement_depends_on_the_change(watched: Watched) -> None:
    assert isinstance(watched.node(node()), NodeObserved)
    heartbeat = node(
        version=4, conditions=[{"type": "Ready", "status": "True", "lastHeartbeatTime": "now"}]
    )
    assert watched.node(heartbeat) is None
    tainted = node(version=5)
    tainted["spec"] = {"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": True}
    event = watched.node(tainted)
    assert isinstance(event, NodeObserved)
    assert event.taints == (Taint("k", "", "NoSchedule"),)
    assert event.unschedulable
    unready = watched.node(node(version=6, conditions=[{"type": "Ready", "status": "Unknown"}]))
    assert isinstance(unready, NodeObserved)
    assert not unready.ready


def test_a_node_with_another_uid_is_news_although_nothing_else_changed(watched: Watched) -> None:
    watched.node(node(uid="node-1"))
    event = watched.node(node(uid="node-2"))
    assert isinstance(event, NodeObserved)
    assert event.uid == "node-2"


def test_an_unparsable_quantity_of_a_node_counts_as_none_of_it(watched: Watched) -> None:
    event = watched.node(node(allocatable={"cpu": "eight", "memory": "16Gi"}))
    assert isinstance(event, NodeObserved)
    assert event.allocatable.get("cpu", 0) == 0
    assert event.allocatable["memory"] == 16 * 2**30


def test_the_generation_of_a_spec_is_recorded_with_it_and_is_no_news_by_itself() -> None:
    watched = Watched()
    event = watched.pod(pod("a", generation=1))
    assert isinstance(event, PodObserved)
    assert event.generation == 1
    assert watched.pod(pod("a", version=6, generation=2)) is None, (
        "an image, say: nothing that placement depends on"
    )
    event = watched.pod(pod("a", version=7, cpu="3", generation=3))
    assert isinstance(event, PodObserved)
    assert event.generation == 3
    for strange in (None, "4", -1, 1 << 64):
        event = watched.pod(pod(f"b{strange}", generation=strange))
        assert isinstance(event, PodObserved)
        assert event.generation == 0


def test_what_a_nodes_kubelet_declares_is_a_event_in_any_order(watched: Watched) -> None:
    event = watched.node(node(declaredFeatures=["B", "A"]))
    assert isinstance(event, NodeObserved)
    assert event.declared_features == ("A", "B")
    assert watched.node(node(declaredFeatures=["A", "B"])) is None
    event = watched.node(node(declaredFeatures="A"))
    assert isinstance(event, NodeObserved)
    assert event.declared_features == ()


def test_devices_that_a_node_counts_and_does_not_offer_are_unhealthy() -> None:
    """The kubelet's reservations are not counted, nor amounts of an object that contradicts
    itself.
    """
    watched = Watched()
    offered = {
        "cpu": "7",
        "memory": "15Gi",
        "example.com/gpu": "3",
        "example.com/nic": "2",
        "example.com/fpga": "1",
    }
    counted = {
        "cpu": "8",
        "memory": "16Gi",
        "example.com/gpu": "4",
        "example.com/nic": "2",
        "example.com/tpu": "2",
    }
    event = watched.node(node(allocatable=offered, capacity=counted))
    assert isinstance(event, NodeObserved)
    assert event.unhealthy == {"example.com/gpu": 1, "example.com/tpu": 2}
    assert watched.node(node(allocatable=offered, capacity=counted)) is None
    healed = watched.node(node(allocatable=offered, capacity={**offered, "cpu": "8"}))
    assert isinstance(healed, NodeObserved)
    assert healed.unhealthy == {}


def test_nodes_that_a_list_lacks_end(watched: Watched) -> None:
    watched.node(node("n1"))
    watched.node(node("n2", uid="node-2"))
    ended = pods_and_nodes.absent_nodes(watched.history.ledger, {"n1"}, "1000")
    assert ended == [NodeEnded("n2", "node-2", "absent_from_list")]


def test_a_node_that_is_younger_than_a_list_is_not_missed_by_it(watched: Watched) -> None:
    """A slow list of a new leader, recorded after the leader before it had seen the node: its end
    would be final, because the same version of the node is never recorded twice.
    """
    watched.node(node("n1", version=12))
    assert pods_and_nodes.absent_nodes(watched.history.ledger, (), "8") == []
    assert pods_and_nodes.absent_nodes(watched.history.ledger, (), "12") == [
        NodeEnded("n1", "node-1", "absent_from_list")
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.data())
def test_no_object_whatsoever_raises(data: st.DataObject) -> None:
    """Any part of a pod or node may be anything."""
    made = copy.deepcopy(data.draw(st.sampled_from([pod(node="n1"), node()])))
    part = data.draw(st.sampled_from(sorted(made)))
    if data.draw(st.booleans()):
        made[part] = data.draw(JSON)
    else:
        made[part][data.draw(st.sampled_from(sorted(made[part]) or ["x"]))] = data.draw(JSON)
    watched = Watched()
    pods_and_nodes.pod_event(watched.history.ledger, "topolog", made, watched.sightings)
    pods_and_nodes.node_event(watched.history.ledger, made)
    pods_and_nodes.pod_deleted(watched.history.ledger, made)
    pods_and_nodes.node_deleted(watched.history.ledger, made)
    pods_and_nodes.absent_pods(watched.history.ledger, (str(made),), "5")


@given(
    st.lists(
        st.sampled_from(["pending", "bound", "running", "relabel", "resize", "deleting"]),
        max_size=12,
    )
)
def test_remembering_specs_changes_no_event(events: list[str]) -> None:
    """With a memory of specs and without one, the same objects give the same events."""
    with_memory, without = Watched(), Watched()
    state: Json = {"node": "", "phase": "Pending", "cpu": "2"}
    for version, event in enumerate(events, start=5):
        changes: dict[str, Json] = {
            "pending": {},
            "bound": {"node": "n1"},
            "running": {"node": "n1", "phase": "Running"},
            "relabel": {"labels": {"v": str(version)}},
            "resize": {"cpu": str(version)},
            "deleting": {"deletionTimestamp": "2030-01-01T00:00:00Z"},
        }
        state |= changes[event]
        obj = pod(version=version, **state)
        without.sightings.clear()
        assert with_memory.pod(obj) == without.pod(obj), (event, obj)


SURROUNDING_OBJECTS: dict[Surrounding, Json] = {
    "volume": {
        "metadata": {"name": "v", "labels": {"topology.kubernetes.io/zone": "a"}},
        "spec": {
            "claimRef": {"name": "c"},
            "csi": {"driver": "d", "volumeHandle": "h"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": []}]}},
        },
    },
    "claim": {
        "metadata": {
            "name": "c",
            "namespace": "n",
            "ownerReferences": [{"kind": "Pod", "controller": True}],
        },
        "spec": {"volumeName": "v", "accessModes": ["ReadWriteOncePod"]},
        "status": {"phase": "Bound"},
    },
    "csinode": {
        "metadata": {"name": "n"},
        "spec": {"drivers": [{"name": "d", "allocatable": {"count": 3}}]},
    },
    "namespace": {"metadata": {"name": "n", "labels": {"a": "b"}}},
    "deviceclass": {
        "metadata": {"name": "gpu.example.com"},
        "spec": {"extendedResourceName": "example.com/gpu"},
    },
    "podgroup": {
        "metadata": {"name": "g", "namespace": "n", "annotations": {NETWORK: "{}"}},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 3}},
            "schedulingConstraints": {"topology": [{"key": "rack"}]},
        },
    },
    "podgroup.volcano.sh": {
        "metadata": {"name": "g", "namespace": "n"},
        "spec": {"minMember": 3, "queue": "q"},
    },
}


def anything_in(data: st.DataObject, obj: Json) -> Json:
    """Return the object with one part, at any depth, replaced by any value."""
    made = copy.deepcopy(obj)
    place: Any = made
    while True:
        key = data.draw(
            st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place)))
        )
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(JSON | st.just(10**30))
            return made
        place = place[key]


def test_a_device_class_is_recorded_while_it_names_a_resource() -> None:
    objects, made = ClusterObjects(), SURROUNDING_OBJECTS["deviceclass"]
    events = cluster_objects.event_of(objects, "deviceclass", made)
    assert events == DeviceClassObserved("gpu.example.com", "example.com/gpu")
    objects.fold(events)
    assert cluster_objects.event_of(objects, "deviceclass", made) is None, "told once"
    silent = {"metadata": {"name": "gpu.example.com"}, "spec": {}}
    assert cluster_objects.event_of(objects, "deviceclass", silent) == SurroundingEnded(
        "deviceclass", "gpu.example.com", "unbound"
    )
    assert cluster_objects.event_of(ClusterObjects(), "deviceclass", silent) is None


@pytest.mark.parametrize(
    ("api", "spec", "minimum", "problem"),
    [
        ("podgroup", {"schedulingPolicy": {"gang": {"minCount": 3}}}, 3, ""),
        ("podgroup", {"schedulingPolicy": {"basic": {}}}, 0, ""),
        ("podgroup", {"schedulingPolicy": {"other": {}}}, 0, "spec.schedulingPolicy"),
        ("podgroup.x-k8s.io", {"minMember": 3, "scheduleTimeoutSeconds": 9}, 3, ""),
        (
            "podgroup.volcano.sh",
            {"minMember": 3, "minTaskMember": {"a": 1}},
            3,
            "spec.minTaskMember",
        ),
        (
            "podgroup",
            {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {"topology": [{}]}},
            0,
            "spec.schedulingConstraints",
        ),
    ],
)
def test_a_pod_group_is_recorded_with_its_minimum(
    api: PodGroupApi, spec: Json, minimum: int, problem: str
) -> None:
    objects, made = ClusterObjects(), {"metadata": {"name": "g", "namespace": "n"}, "spec": spec}
    event = cluster_objects.event_of(objects, api, made)
    assert isinstance(event, PodGroupObserved)
    assert (event.name, event.minimum, event.problem) == ("n/g", minimum, problem)
    objects.fold(event)
    assert cluster_objects.absent(objects, "claim", (), "5") == []
    assert [end.kind for end in map(_end, cluster_objects.absent(objects, api, (), "5"))] == [api]


@pytest.mark.parametrize(
    ("api", "spec", "annotations", "rules"),
    [
        (
            "podgroup",
            {"schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}},
            {},
            GangRules(required=("example.com/rack",)),
        ),
        (
            "podgroup.sigs.k8s.io",
            {"minMember": 3},
            {
                MATCH_POLICIES[1]: "only-waiting",
                NETWORK: '{"gatherStrategy": [{"layer": "Spine", "strategy": "MustGather"}, '
                '{"layer": "Block", "strategy": "PreferGather"}]}',
            },
            GangRules("only-waiting", ("Spine",), ("Block",)),
        ),
    ],
)
def test_a_pod_group_is_recorded_with_its_rules(
    api: PodGroupApi, spec: Json, annotations: Json, rules: GangRules
) -> None:
    metadata = {"name": "g", "namespace": "n", "annotations": annotations}
    made = {"metadata": metadata, "spec": {"schedulingPolicy": {"gang": {}}, **spec}}
    event = cluster_objects.event_of(ClusterObjects(), api, made)
    assert isinstance(event, PodGroupObserved)
    assert (event.rules, event.problem) == (rules, "")


def _end(event: SurroundingEvent) -> SurroundingEnded:
    assert isinstance(event, SurroundingEnded)
    return event


@given(st.data())
def test_no_cluster_object_raises_and_its_events_can_be_stored(
    data: st.DataObject,
) -> None:
    kind = data.draw(st.sampled_from(sorted(SURROUNDING_OBJECTS)))
    objects, made = ClusterObjects(), anything_in(data, SURROUNDING_OBJECTS[kind])
    for event in (
        cluster_objects.event_of(objects, kind, made),
        cluster_objects.deleted(objects, kind, made),
    ):
        if event is not None:
            encode(event)
            objects.fold(event)
    cluster_objects.event_of(objects, kind, SURROUNDING_OBJECTS[kind])
    cluster_objects.absent(objects, kind, (), "5")


@given(st.data())
def test_no_nomination_raises_and_its_events_can_be_stored(
    data: st.DataObject,
) -> None:
    foreign = pod("f", cpu="1")
    foreign["spec"]["schedulerName"] = "other"
    foreign["status"]["nominatedNodeName"] = "n1"
    event = cluster_objects.nomination_of(ClusterObjects(), "topolog", anything_in(data, foreign))
    if event is not None:
        encode(event)
