"""What a constraint says of all nodes at once is what it says of each, after any history.

Nodes, pods and cluster objects change in any order, and after each change some pods are asked for.
The array forms have followed all changes, and are compared with the plain rules, which compute
everything again (S13).
"""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.filter.constraints import registry
from services.scheduler.filter.constraints.given_by_drivers import BY_CLASS
from services.scheduler.filter.constraints.predicates import allowed_nodes, constraint_refusal
from services.scheduler.snapshot import node_columns
from services.scheduler.state.exclusions import Exclusion, namespaced, shape_of
from services.scheduler.state.holds import Hold
from shared.domain.constraints import REQUIRED
from shared.domain.pod import NodeSelectorTerm, Pod
from shared.events.cluster_events import NodeObserved, Taint
from shared.events.surroundings_events import (
    ClaimObserved,
    DeviceClassObserved,
    NamespaceObserved,
    NodeVolumesLimited,
    NominationObserved,
    SurroundingEnded,
    SurroundingEvent,
    VolumeObserved,
)
from shared.ledger.state import LedgerPod
from tests.scheduler.cycle_worlds import GIB, World, amounts, report, zone
from tests.scheduler.default.test_constraints import (
    HOST,
    OWN_USERS_ON_THE_HOSTS_NETWORK,
    RESTARTS_ALL,
    ZONE,
    apart,
    asking,
    port,
    seen,
    spread,
)

SPEC = "scheduling.koordinator.sh/resource-spec"
NAMES = ("n1", "n2", "n3", "n4", "n5")
ALLOCATABLE = {"cpu": 64_000, "memory": 256 * GIB, "pods": 110}
WEB = {"app": "web"}
RED: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"team": "red"}}}


def requiring(*expressions: dict[str, Any], field: str = "matchExpressions") -> dict[str, Any]:
    terms = [{field: [expression]} for expression in expressions]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def claims(*names: str) -> dict[str, Any]:
    return {
        "volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    }


GONE: dict[str, Any] = {"tolerations": [{"key": "gone", "operator": "Exists"}]}
IN_A: dict[str, Any] = {"nodeSelector": {ZONE: "a"}}
Specs = list[dict[str, Any]]
# Example pods by constraint.
SPECS: dict[str, Specs] = {
    "excludedNodes": [{}],
    "heldNodes": [{}],
    "nominated": [{}],
    "declaredFeatures": [RESTARTS_ALL, OWN_USERS_ON_THE_HOSTS_NETWORK],
    "givenByDrivers": [asking("a.com/gpu"), asking(f"{BY_CLASS}nic.a.com")],
    "schedulerKeys": [
        {"annotations": {SPEC: '{"requiredCPUBindPolicy": "FullPCPUs"}'}},
        asking("koordinator.sh/gpu-core"),
    ],
    "hostPorts": [port(80), port(80, hostIP="10.0.0.1"), port(80, hostIP="10.0.0.2"), port(81)],
    "podAffinity": [
        apart(ZONE, kind="podAffinity"),
        apart(HOST, kind="podAffinity", app="db"),
        apart(ZONE, kind="podAffinity", **RED),
    ],
    "podAntiAffinity": [
        apart(HOST),
        apart(ZONE),
        apart(ZONE, app="db"),
        apart(HOST, **RED),
        apart(HOST, namespaceSelector={}),
    ],
    "topologySpread": [
        spread(ZONE),
        spread(HOST, skew=2, **IN_A),
        spread(ZONE, minDomains=3),
        {**spread(ZONE, nodeTaintsPolicy="Honor"), **IN_A},
        {**spread(ZONE, nodeTaintsPolicy="Honor"), **GONE},
        {**spread(ZONE, nodeAffinityPolicy="Ignore"), **IN_A},
        spread(ZONE, labelSelector={}),
        {
            "topologySpreadConstraints": spread(ZONE)["topologySpreadConstraints"]
            + spread(HOST)["topologySpreadConstraints"]
        },
    ],
    "volumes": [claims("c1"), claims("c2"), claims("c1", "c2"), claims("c3"), claims("c4")],
    "unusableResources": [asking("example.com/gpu")],
}
LABELS: tuple[dict[str, str], ...] = ({}, WEB, {"app": "db"})
EXAMPLES = {
    name: [
        seen(f"{name}-{number}-{at}", labels=labels, **spec).pod
        for number, spec in enumerate(specs)
        for at, labels in enumerate(LABELS)
    ]
    for name, specs in SPECS.items()
}
PODS = [pod for pods in EXAMPLES.values() for pod in pods]
# Pods whose place matters to other pods.
NOTICED = [*EXAMPLES["hostPorts"], *EXAMPLES["podAntiAffinity"], *EXAMPLES["volumes"]]
# Rules of the node's own object.
SELECTING = [
    seen(f"selecting-{number}", **spec).pod
    for number, spec in enumerate(
        [
            {},
            IN_A,
            GONE,
            {"tolerations": [{"operator": "Exists"}]},
            requiring({"key": ZONE, "operator": "NotIn", "values": ["a"]}),
            requiring({"key": "rack", "operator": "Exists"}),
            requiring({"key": "rack", "operator": "DoesNotExist"}),
            requiring({"key": "rack", "operator": "Gt", "values": ["1"]}),
            requiring(
                {"key": "rack", "operator": "Lt", "values": ["2"]},
                {"key": ZONE, "operator": "In", "values": ["b", "c"]},
            ),
            requiring(
                {"key": "metadata.name", "operator": "In", "values": ["n2"]}, field="matchFields"
            ),
        ]
    )
]

TERM = NodeSelectorTerm(((ZONE, "In", ("a",)),), ())
CLUSTER_OBJECTS: list[SurroundingEvent] = [
    *(NamespaceObserved("ns", labels={"team": team}) for team in ("red", "blue")),
    *(VolumeObserved("v1", driver="d", handle="h1", terms=terms) for terms in ((), (TERM,))),
    VolumeObserved("v2", driver="d", handle="h2", zones=((ZONE, ("a", "b")),)),
    VolumeObserved("v2", driver="e", handle="h1"),
    VolumeObserved("v3", driver="d", handle="h3"),
    ClaimObserved("ns/c4", "v3"),
    *(ClaimObserved(name, volume) for name, volume in (("ns/c1", "v1"), ("ns/c2", "v2"))),
    ClaimObserved("ns/c2", "v1"),
    ClaimObserved("ns/c3", "v1", alone=True),
    *(NodeVolumesLimited(name, limits={"d": most}) for name in NAMES[:3] for most in (0, 1)),
    NodeVolumesLimited("n1", limits={"d": 1, "e": 0}),
    *(
        NominationObserved("uid-x", "ns/x", node, priority=priority, requests={"cpu": 64_000})
        for node in NAMES[:2]
        for priority in (-1, 0)
    ),
    DeviceClassObserved("gpu.a.com", "a.com/gpu"),
    SurroundingEnded("nomination", "uid-x"),
    SurroundingEnded("csinode", "n1"),
    SurroundingEnded("claim", "ns/c1"),
    SurroundingEnded("namespace", "ns"),
]


class Scene:
    """A cluster with a history. It begins with three nodes."""

    def __init__(self) -> None:
        self.world = World()
        self.cluster: ColumnarPlacing = self.world.cluster
        self.reports = 0
        for kind, name in enumerate(NAMES[:3], start=1):
            self.node(name, kind, kind - 1)
        self.report("n1", 3)
        for event in CLUSTER_OBJECTS:
            if not isinstance(event, SurroundingEnded | NominationObserved | NodeVolumesLimited):
                self.cluster.view.cluster_objects.fold(event)

    def node(self, name: str, kind: int, features: int) -> None:
        """Observe a node with the labels and other values of its kind."""
        labels = ({}, {ZONE: "a"}, {ZONE: "b", "rack": "1"}, {ZONE: "c", "rack": "2"})[kind % 4]
        taints = ((), (Taint("gone", "", "NoSchedule"),), (Taint("x", "y", "NoExecute"),))
        offers = ({}, {"a.com/gpu": 1}, {"example.com/gpu": 0})[features % 3]
        self.world.fold(
            f"node/{name}",
            NodeObserved(
                name,
                name,
                allocatable={**ALLOCATABLE, **offers},
                labels={HOST: name, **labels} if kind < 8 else labels,
                taints=taints[features % 3],
                unschedulable=features % 7 == 6,
                ready=features % 5 != 4,
                declared_features=("RestartAllContainersOnContainerExits",) if kind % 2 else (),
                unhealthy={"example.com/gpu": 1} if features % 3 == 2 else {},
            ),
        )

    def report(self, name: str, kind: int) -> None:
        """Append a report of a node, or its expiry."""
        if name not in self.world.ledger.nodes:
            return
        tracked = ("cpu",) if kind % 2 else ("memory",)
        options = {"full-pcpus-only": "true"} if kind % 4 == 3 else {}
        zones = (zone(0, amounts(cpu=64, memory=256)),)
        self.reports += 1
        self.world.report(
            report(name, zones, time_ms=self.reports, tracked=tracked, options=options)
        )

    def drop(self, name: str) -> None:
        self.cluster.drop_node(name)

    def place(self, index: int, name: str, terminating: bool) -> None:
        pod = NOTICED[index % len(NOTICED)]
        self.cluster.follow(pod.uid, LedgerPod(pod, node=name, terminating=terminating))

    def end(self, index: int) -> None:
        self.cluster.follow(NOTICED[index % len(NOTICED)].uid, None)

    def hear(self, index: int) -> None:
        self.cluster.view.cluster_objects.fold(CLUSTER_OBJECTS[index % len(CLUSTER_OBJECTS)])

    def exclude(self, index: int, name: str, in_namespace: bool) -> None:
        pod = PODS[index % len(PODS)]
        key = namespaced(pod) if in_namespace else shape_of(pod)
        exclusions = self.cluster.view.exclusions.nodes.setdefault(name, {})
        exclusions[key] = Exclusion("rejected", "detail", 1)

    def readmit(self, name: str) -> None:
        self.cluster.view.exclusions.nodes.pop(name, None)

    def hold(self, index: int, name: str) -> None:
        """Hold the node for one of the pods, or for another pod."""
        pod = [*PODS, *NOTICED][index % len([*PODS, *NOTICED])]
        self.cluster.view.holds.by_node[name] = Hold(pod.uid, pod.key, pod.priority)

    def release(self, name: str) -> None:
        self.cluster.view.holds.by_node.pop(name, None)

    def ask(self, constraint: str) -> None:
        """Ask for all examples of a constraint."""
        for pod in EXAMPLES[constraint]:
            self.compare(pod)

    def mixed(self, pod: Pod) -> set[str]:
        """Return the constraints that pass some nodes and refuse others."""
        view = self.cluster.view
        names = set()
        for constraint in registry._ALL:
            kept = pod.constraints.kept.get(constraint.name)
            check = constraint.check(pod, kept, view) if kept or constraint.depends_on else None
            if check is not None:
                passes = [check(node_info) is None for node_info in view.nodes.values()]
                names |= {constraint.name} if len({*passes}) > 1 else set()
        return names

    def compare(self, pod: Pod) -> None:
        """Compare the array form, for all nodes at once, with the rule for each node."""
        checks, view = self.cluster.checks(pod), self.cluster.view
        passing = checks.passing()
        for name, node_info in view.nodes.items():
            refusal = checks.refusal(node_info)
            passes = passing is None or bool(passing[node_info.slot])
            assert passes == (refusal is None), (pod.name, name, refusal)
        allowed = allowed_nodes(pod.constraints, view.columns)
        kept = self.cluster._constraints.allowed(pod.constraints).read()
        for name, node_info in view.nodes.items():
            refused = constraint_refusal(pod.constraints, node_info.observed, name) is not None
            assert allowed[node_info.slot] != refused, (pod.name, name)
            assert kept[node_info.slot] != refused, (pod.name, name)


INDEX, NAME = st.integers(0, 500), st.sampled_from(NAMES)
STEPS: st.SearchStrategy[tuple[str, tuple[Any, ...]]] = st.one_of(
    st.tuples(st.just("node"), st.tuples(NAME, st.integers(0, 9), st.integers(0, 34))),
    st.tuples(st.just("report"), st.tuples(NAME, st.integers(0, 3))),
    st.tuples(st.just("drop"), st.tuples(NAME)),
    st.tuples(st.just("place"), st.tuples(INDEX, NAME, st.booleans())),
    st.tuples(st.just("place"), st.tuples(INDEX, NAME, st.just(False))),
    st.tuples(st.just("end"), st.tuples(INDEX)),
    st.tuples(st.just("hear"), st.tuples(INDEX)),
    st.tuples(st.just("hear"), st.tuples(st.integers(0, 1))),
    st.tuples(st.just("exclude"), st.tuples(INDEX, NAME, st.booleans())),
    st.tuples(st.just("readmit"), st.tuples(NAME)),
    st.tuples(st.just("hold"), st.tuples(INDEX, NAME)),
    st.tuples(st.just("release"), st.tuples(NAME)),
    st.tuples(st.just("ask"), st.tuples(st.sampled_from([*SPECS]))),
)


# Limits of what the arrays keep, from nearly nothing to the usual ones.
LIMITS = st.sampled_from(
    [
        {"REMEMBERED": 2, "MOST_COLUMNS": 1, "SPARE_CODES": -3, "SPARSE": 1},
        {"REMEMBERED": 3, "SPARE_CODES": 0, "SPARSE": 2},
        {},
    ]
)


@settings(max_examples=200)
@given(
    st.lists(STEPS, min_size=12, max_size=30),
    LIMITS,
)
def test_all_nodes_at_once_are_each_node(
    steps: list[tuple[str, tuple[Any, ...]]], limits: dict[str, int]
) -> None:
    with mock.patch.dict(vars(node_columns), limits):
        scene = Scene()
        for number, (name, arguments) in enumerate(steps):
            getattr(scene, name)(*arguments)
            if number in (len(steps) // 2, len(steps) - 1):
                for pod in [*PODS, *SELECTING]:
                    scene.compare(pod)


def test_each_constraint_refuses_nodes_of_some_scene_and_passes_others() -> None:
    """Otherwise the comparison would be worth nothing."""
    mixed = set[str]()

    @settings(max_examples=200, derandomize=True, database=None)
    @given(st.lists(STEPS, min_size=10, max_size=20), st.lists(st.sampled_from(PODS), min_size=8))
    def collect(steps: list[tuple[str, tuple[Any, ...]]], pods: list[Pod]) -> None:
        scene = Scene()
        for name, arguments in steps:
            getattr(scene, name)(*arguments)
        for pod in pods:
            mixed.update(scene.mixed(pod))

    collect()
    assert mixed == SPECS.keys() == {constraint.name for constraint in registry._ALL}
