"""Constraints that look beyond the node: from a manifest as the observer reads it to the node that
the pod gets, or the reason."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.scheduler.filter.constraints import registry
from services.scheduler.filter.constraints.constraint import (
    Check,
    ClusterView,
    Constraint,
    NotHandled,
    RefusalReason,
)
from services.scheduler.filter.constraints.given_by_drivers import BY_CLASS
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.watch import cluster_objects, pods_and_nodes
from services.scheduler.watch.seen_specs import SeenSpecs
from shared.domain.constraints import PREFERRED, REQUIRED
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.refusal import Refusal
from shared.events import streams
from shared.events.cluster_events import PodObserved, Taint
from shared.events.scheduling_events import PodReserved
from shared.events.surroundings_events import DeviceClassObserved
from tests.ledger.given import zone
from tests.scheduler.default.story import ROOMY, Story

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def seen(
    name: str,
    node: str = "",
    labels: dict[str, str] | None = None,
    terminating: bool = False,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> PodObserved:
    """Return the event of a pod object."""
    amounts = {"cpu": "1", "memory": "1Gi"}
    container = {
        "name": "c",
        "image": "x",
        "resources": {"requests": amounts, "limits": amounts},
        **spec.pop("container", {}),
    }
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": "5",
        "labels": labels or {},
        "annotations": annotations or {},
    }
    if terminating:
        metadata["deletionTimestamp"] = "2026-11-21T00:00:00Z"
    body = {
        "schedulerName": "topolog",
        "containers": [container],
        **spec,
        **({"nodeName": node} if node else {}),
    }
    event = pods_and_nodes.pod_event(
        Story().cores[0].ledger,
        "topolog",
        {"metadata": metadata, "spec": body, "status": {"phase": "Pending"}},
        SeenSpecs(),
    )
    assert isinstance(event, PodObserved)
    assert not event.problem, event.problem
    return event


async def world(*nodes: str, **fields: Any) -> Story:
    """Nodes n1, n2 in zone a, n3 in zone b."""
    story = Story()
    for name in nodes or ("n1", "n2", "n3"):
        labels = {HOST: name, ZONE: "b" if name == "n3" else "a", "memory": "9"}
        await story.node(name, labels=labels, **fields.get(name, {}))
        await story.report(zone(0, 16), node=name, tracked=("cpu",))
    return story


async def placed(story: Story, event: PodObserved) -> str:
    """Return the pod's node, or the message of the verdict."""
    await story.tell(streams.pod(event.pod.uid), event)
    node_name = (await story.decide()).get(event.pod.uid)
    return node_name or (await story.verdicts(event.pod))[-1]


def port(number: int, **more: Any) -> dict[str, Any]:
    return {"container": {"ports": [{"containerPort": 80, "hostPort": number, **more}]}}


async def test_a_host_port_is_taken_once_a_node() -> None:
    story = await world("n1", "n2")
    got = {await placed(story, seen(f"p{number}", **port(8080))) for number in range(2)}
    assert got == {"n1", "n2"}
    assert "2 node(s) didn't have free ports for the requested pod ports" in await placed(
        story, seen("late", **port(8080))
    )
    assert await placed(story, seen("other", **port(8081))) in got
    assert await placed(story, seen("udp", **port(8080, protocol="UDP"))) in got
    await story.ends(seen("p0").pod)
    assert list(await story.decide()) == ["uid-late"]


RESTARTS_ALL: dict[str, Any] = {
    "container": {
        "restartPolicyRules": [
            {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}
        ]
    }
}
OWN_USERS_ON_THE_HOSTS_NETWORK: dict[str, Any] = {"hostNetwork": True, "hostUsers": False}


@pytest.mark.parametrize(
    ("spec", "feature"),
    [
        (RESTARTS_ALL, "RestartAllContainersOnContainerExits"),
        (OWN_USERS_ON_THE_HOSTS_NETWORK, "UserNamespacesHostNetworkSupport"),
    ],
)
async def test_a_feature_that_a_pod_needs_is_declared_by_its_node(
    spec: dict[str, Any], feature: str
) -> None:
    story = await world(
        "n1", "n2", n2={"declared_features": ("ExtendWebSocketsToKubelet", feature)}
    )
    assert await placed(story, seen("p", **spec)) == "n2"
    story = await world("n1")
    assert (
        f"1 node declared features check failed - unsatisfied requirements: {feature}"
        in await placed(story, seen("p", **spec))
    )
    await story.node("n1", labels={HOST: "n1"}, declared_features=(feature,))
    assert await story.decide() == {"uid-p": "n1"}, "a kubelet that was upgraded"


def asking(resource: str) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "1Gi", resource: "1"}
    return {"container": {"resources": {"requests": amounts, "limits": amounts}}}


@pytest.mark.parametrize(
    ("resource", "name"), [("a.com/gpu", "gpu.a.com"), (f"{BY_CLASS}nic.a.com", "nic.a.com")]
)
async def test_what_a_driver_gives_is_kube_schedulers_unless_a_device_plugin_offers_it(
    resource: str, name: str
) -> None:
    story = await world("n1", "n2", n2={"allocatable": {**ROOMY, resource: 0}})
    await story.tell("deviceclass/gpu.a.com", DeviceClassObserved("gpu.a.com", "a.com/gpu"))
    message = await placed(story, seen("p", **asking(resource)))
    assert f"2 node(s) only had a DRA driver for {resource} (DeviceClass {name})" in message
    await story.node("n2", labels={HOST: "n2"}, allocatable={**ROOMY, resource: 1})
    assert await story.decide() == {"uid-p": "n2"}
    assert "Insufficient other.com/gpu" in await placed(story, seen("q", **asking("other.com/gpu")))


@pytest.mark.parametrize(
    "spec", [{"hostNetwork": True}, {"hostNetwork": True, "hostUsers": True}, {"hostUsers": False}]
)
async def test_other_pods_need_no_feature(spec: dict[str, Any]) -> None:
    assert await placed(await world("n1"), seen("p", **spec)) == "n1"


@pytest.mark.parametrize(
    ("host_ip", "taken"), [("", True), ("0.0.0.0", True), ("10.0.0.1", True), ("10.0.0.2", False)]
)
async def test_host_ports_of_other_addresses_do_not_clash(host_ip: str, taken: bool) -> None:
    story = await world("n1")
    await story.tell("pod/uid-x", seen("x", "n1", **port(53, hostIP="10.0.0.1")))
    assert (
        "didn't have free ports" in await placed(story, seen("a", **port(53, hostIP=host_ip)))
    ) is taken


async def test_with_the_hosts_network_every_port_is_a_host_port() -> None:
    story = await world("n1")
    net: dict[str, Any] = {"hostNetwork": True, "container": {"ports": [{"containerPort": 9100}]}}
    assert await placed(story, seen("a", **net)) == "n1"
    assert "didn't have free ports" in await placed(story, seen("b", **net))


def apart(key: str, app: str = "web", kind: str = "podAntiAffinity", **more: Any) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}
    return {"affinity": {kind: {REQUIRED: [term]}}}


async def test_anti_affinity_keeps_pods_of_one_batch_apart() -> None:
    story = await world()
    for number in range(4):
        event = seen(f"p{number}", labels={"app": "web"}, **apart(HOST))
        await story.tell(streams.pod(event.pod.uid), event)
    assert sorted((await story.decide()).values()) == ["n1", "n2", "n3"]
    assert (
        "3 node(s) didn't match pod anti-affinity rules"
        in (await story.verdicts(seen("p3").pod))[-1]
    )


async def test_anti_affinity_of_a_pod_that_runs_holds_against_newcomers_without_any() -> None:
    """A rule counts in both directions, also that of another scheduler's pod, and in its whole
    domain.
    """
    story = await world()
    await story.tell("pod/uid-x", seen("x", "n1", **apart(ZONE)))
    assert await placed(story, seen("a", labels={"app": "web"})) == "n3"
    assert await placed(story, seen("b", labels={"app": "db"})) in ("n1", "n2", "n3")
    await story.node_goes("n3")
    assert "existing pods anti-affinity rules" in await placed(
        story, seen("c", labels={"app": "web"})
    )


@pytest.mark.parametrize(
    "how", ["its pod ends", "its pod is redefined", "its node moves", "its node goes"]
)
async def test_a_rule_that_is_lifted_opens_its_whole_domain(how: str) -> None:
    """The domain opens also to pods without a rule, and on nodes that did not change."""
    story = await world("n1", "n2", n1={"unschedulable": True})
    ruling = seen("x", "n1", **apart(ZONE))
    await story.tell("pod/uid-x", ruling)
    assert "existing pods anti-affinity rules" in await placed(
        story, seen("a", labels={"app": "web"})
    )
    match how:
        case "its pod ends":
            await story.ends(ruling.pod)
        case "its pod is redefined":
            await story.tell("pod/uid-x", seen("x", "n1", **apart(ZONE, app="db")))
        case "its node moves":
            await story.node("n1", labels={HOST: "n1", ZONE: "b"}, unschedulable=True)
        case _:
            await story.node_goes("n1")
    assert await story.decide() == {"uid-a": "n2"}


async def test_a_running_pods_rule_selects_by_labels_whose_values_are_not_kept() -> None:
    story = await world("n1")
    rule = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"team.example": "red"}}}
    await story.tell("pod/uid-x", seen("x", "n1", affinity={"podAntiAffinity": {REQUIRED: [rule]}}))
    made = seen("a", labels={"team.example": "red"})
    assert "red" not in made.pod.labels.values()
    assert "existing pods anti-affinity rules" in await placed(story, made)
    assert await placed(story, seen("b", labels={"team.example": "blue"})) == "n1"


async def test_terms_look_into_their_namespaces_only() -> None:
    story = await world("n1")
    await story.tell("pod/uid-x", seen("x", "n1", labels={"app": "web"}))
    assert await placed(story, seen("a", **apart(HOST, namespaces=["elsewhere"]))) == "n1"
    assert "anti-affinity" in await placed(story, seen("b", **apart(HOST, namespaceSelector={})))


async def namespace(story: Story, name: str, **labels: str) -> None:
    """Append a namespace that the observer sees."""
    obj = {"metadata": {"name": name, "resourceVersion": "3", "labels": labels}}
    event = cluster_objects.event_of(story.cores[0].folded.cluster_objects, "namespace", obj)
    if event is not None:
        await story.tell(f"namespace/{name}", event)


AMONG: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"team": "red"}}}


@pytest.mark.parametrize(("labels", "barred"), [({"team": "red"}, True), ({"team": "blue"}, False)])
async def test_a_running_pods_rule_looks_into_namespaces_by_their_labels(
    labels: dict[str, str], barred: bool
) -> None:
    story = await world("n1")
    await story.tell("pod/uid-x", seen("x", "n1", **apart(HOST, **AMONG)))
    assert "existing pods anti-affinity rules" in await placed(
        story, seen("a", labels={"app": "web"})
    ), "its labels are not known yet"
    await namespace(story, "ns", **labels)
    assert await story.decide() == ({} if barred else {"uid-a": "n1"})
    await namespace(story, "ns", team="blue")
    assert await story.decide() == ({"uid-a": "n1"} if barred else {})


async def test_a_pods_own_rules_look_into_namespaces_by_their_labels() -> None:
    story = await world("n1", "n2")
    await story.tell("pod/uid-x", seen("x", "n1", labels={"app": "web"}))
    assert "labels of namespace ns are not known" in await placed(
        story, seen("a", **apart(HOST, **AMONG))
    )
    assert "labels of namespace ns are not known" in await placed(
        story, seen("b", **apart(HOST, kind="podAffinity", **AMONG))
    )
    await namespace(story, "ns", team="red")
    assert await story.decide() == {"uid-a": "n2", "uid-b": "n1"}
    await namespace(story, "ns", team="blue")
    assert await placed(story, seen("c", **apart(HOST, **AMONG))) in ("n1", "n2"), (
        "nobody is selected"
    )
    named = apart(HOST, namespaces=["ns"], **AMONG)
    assert await placed(story, seen("d", **named)) == "n2", (
        "namespaces by name are beside those by labels"
    )


async def test_namespaces_by_expressions_and_an_empty_selector() -> None:
    story = await world("n1")
    await namespace(story, "ns", team="red")
    await story.tell("pod/uid-x", seen("x", "n1", labels={"app": "web"}))
    absent = {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}
    assert await placed(story, seen("a", **apart(HOST, namespaceSelector=absent))) == "n1"
    assert "anti-affinity" in await placed(story, seen("b", **apart(HOST, namespaceSelector={})))


async def test_what_constraints_keep_of_a_pod_that_runs_is_news_after_an_upgrade() -> None:
    """The log was written by code that did not look at namespaces' labels."""
    story = await world("n1")
    made = seen("x", "n1", **apart(HOST, **AMONG))
    bare = msgspec.structs.replace(made.pod.constraints, kept={})
    await story.tell(
        "pod/uid-x",
        msgspec.structs.replace(made, pod=msgspec.structs.replace(made.pod, constraints=bare)),
    )
    body = {"schedulerName": "topolog", "nodeName": "n1", **apart(HOST, **AMONG)}
    amounts = {"cpu": "1", "memory": "1Gi"}
    body["containers"] = [
        {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    ]
    obj = {
        "metadata": {"name": "x", "namespace": "ns", "uid": "uid-x"},
        "spec": body,
        "status": {"phase": "Pending"},
    }
    event = pods_and_nodes.pod_event(story.cores[0].ledger, "topolog", obj, SeenSpecs())
    assert isinstance(event, PodObserved)
    assert event.pod.constraints.kept == made.pod.constraints.kept


async def test_affinity_follows_its_selection_and_the_first_of_a_group_goes_anywhere() -> None:
    story = await world()
    affinity = apart(ZONE, kind="podAffinity")
    assert "3 node(s) didn't match pod affinity rules" in await placed(
        story, seen("early", labels={"app": "db"}, **affinity)
    )
    first = await placed(story, seen("first", labels={"app": "web"}, **affinity))
    same = {"n3"} if first == "n3" else {"n1", "n2"}
    for number in range(3):
        assert await placed(story, seen(f"p{number}", labels={"app": "web"}, **affinity)) in same
    assert any(event.uid == "uid-early" for event in await story.events(PodReserved)), (
        "woken by the first"
    )


def rules(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def term(key: str, **labels: str) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}}


async def test_only_a_pod_that_matches_all_terms_of_an_affinity_satisfies_one() -> None:
    """As in kube-scheduler 1.36: one pod that matches by zone and another that matches by name do
    not satisfy the affinity together.
    """
    story = await world()
    await story.tell("pod/uid-x", seen("x", "n1", labels={"app": "web"}))
    await story.tell("pod/uid-y", seen("y", "n2", labels={"tier": "front"}))
    both = rules(term(ZONE, app="web"), term(ZONE, tier="front"))
    assert "3 node(s) didn't match pod affinity rules" in await placed(
        story, seen("a", labels={"app": "web"}, **both)
    )
    first = await placed(story, seen("b", labels={"app": "web", "tier": "front"}, **both))
    assert first in ("n1", "n2", "n3"), "the first of its group"
    assert dict(await story.reservations())["uid-a"] in ({"n3"} if first == "n3" else {"n1", "n2"})


async def test_terms_that_select_different_namespaces_have_no_pod_in_common() -> None:
    story = await world("n1")
    await story.tell("pod/uid-x", seen("x", "n1", labels={"app": "web"}))
    apart_from_each_other = rules(
        {**term(HOST, app="web"), "namespaces": ["ns"]},
        {**term(HOST, app="web"), "namespaces": ["b"]},
    )
    assert "node(s) didn't match pod affinity rules" in await placed(
        story, seen("a", labels={"app": "web"}, **apart_from_each_other)
    )
    everywhere = rules({**term(HOST, app="web"), "namespaceSelector": {}}, term(HOST, app="web"))
    assert await placed(story, seen("b", labels={"app": "web"}, **everywhere)) == "n1"


async def test_a_group_on_nodes_without_the_label_only_awaits_its_first_pod() -> None:
    story = await world("n1", "n2")
    await story.node("n1", labels={HOST: "n1"})
    await story.tell("pod/uid-x", seen("x", "n1", labels={"app": "web"}))
    assert (
        await placed(story, seen("a", labels={"app": "web"}, **rules(term(ZONE, app="web"))))
        == "n2"
    )


def spread(key: str, skew: int = 1, **more: Any) -> dict[str, Any]:
    rule = {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", **more}
    return {
        "topologySpreadConstraints": [{"labelSelector": {"matchLabels": {"app": "web"}}, **rule}]
    }


ANY: dict[str, Any] = {
    "matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["none"]}]
}


async def test_spread_keeps_domains_even() -> None:
    story = await world()
    got = [
        await placed(story, seen(f"p{number}", labels={"app": "web"}, **spread(ZONE)))
        for number in range(6)
    ]
    assert sorted(node == "n3" for node in got) == [False] * 3 + [True] * 3


async def test_spread_counts_neither_leaving_pods_nor_domains_that_the_pod_may_not_use() -> None:
    story = await world()
    web = {"app": "web"}
    await story.tell("pod/uid-x", seen("x", "n1", labels=web))
    await story.tell("pod/uid-y", seen("y", "n3", labels=web, terminating=True))
    assert await placed(story, seen("a", labels=web, **spread(ZONE))) == "n3"
    in_a: dict[str, Any] = {"nodeSelector": {ZONE: "a"}}
    assert await placed(story, seen("b", labels=web, **spread(ZONE), **in_a)) in ("n1", "n2")


async def test_spread_counts_nodes_as_its_policies_say() -> None:
    """The two node inclusion policies (KEP-3094). A pod runs in zone a, so zone b is chosen if its
    nodes count."""
    story = await world(n3={"taints": (Taint("gone", "", "NoSchedule"),)})
    web = {"app": "web"}
    await story.tell("pod/uid-x", seen("x", "n1", labels=web))
    assert "2 node(s) didn't match pod topology spread constraints" in await placed(
        story, seen("a", labels=web, **spread(ZONE))
    ), "b is emptier, and tainted"
    assert await placed(story, seen("b", labels=web, **spread(ZONE, nodeTaintsPolicy="Honor"))) in (
        "n1",
        "n2",
    )
    tolerant: dict[str, Any] = {"tolerations": [{"key": "gone", "operator": "Exists"}]}
    assert (
        await placed(
            story, seen("c", labels=web, **spread(ZONE, nodeTaintsPolicy="Honor"), **tolerant)
        )
        == "n3"
    )
    in_a: dict[str, Any] = {"nodeSelector": {ZONE: "a"}}
    assert await placed(story, seen("d", labels=web, **spread(ZONE), **in_a)) in ("n1", "n2"), (
        "b does not count"
    )
    anywhere = spread(ZONE, nodeAffinityPolicy="Ignore")
    assert "2 node(s) didn't match pod topology spread constraints" in await placed(
        story, seen("e", labels=web, **anywhere, **in_a)
    )


async def test_spread_by_an_empty_selector_counts_no_pod() -> None:
    """In kube-scheduler 1.36 an empty selector matches every pod, but counts no existing pod."""
    story = await world("n1", "n2", n2={"unschedulable": True})
    for number in range(3):
        await story.tell(f"pod/uid-x{number}", seen(f"x{number}", "n1"))
    assert "1 node(s) didn't match pod topology spread constraints" in await placed(
        story, seen("a", labels={"app": "web"}, **spread(HOST, labelSelector=ANY))
    )
    assert await placed(story, seen("b", **spread(HOST, labelSelector={}))) == "n1"


async def test_spread_with_too_few_domains_counts_from_nothing() -> None:
    story = await world()
    for name, node in (("x", "n1"), ("y", "n3")):
        await story.tell(f"pod/uid-{name}", seen(name, node, labels={"app": "web"}))
    assert "topology spread" in await placed(
        story, seen("a", labels={"app": "web"}, **spread(ZONE, minDomains=3))
    )


@pytest.mark.parametrize("free_node", ["n1", "n2", "n3"])
async def test_prefer_no_schedule_moves_a_pod_to_whichever_node_is_left(free_node: str) -> None:
    shunned = {"taints": (Taint("old", "", "PreferNoSchedule"),)}
    story = await world(**{name: shunned for name in ("n1", "n2", "n3") if name != free_node})
    assert await placed(story, seen("p")) == free_node


async def test_preferred_affinity_and_prefer_no_schedule_move_pods_that_could_go_anywhere() -> None:
    shunned = {"taints": (Taint("old", "", "PreferNoSchedule"),)}
    story = await world(n1=shunned, n2=shunned)
    assert {await placed(story, seen(f"p{number}")) for number in range(4)} == {"n3"}
    term = {
        "weight": 80,
        "preference": {"matchExpressions": [{"key": HOST, "operator": "In", "values": ["n2"]}]},
    }
    wish: dict[str, Any] = {
        "affinity": {"nodeAffinity": {PREFERRED: [term]}},
        "tolerations": [{"key": "old", "operator": "Exists"}],
    }
    assert {await placed(story, seen(f"q{number}", **wish)) for number in range(4)} == {"n2"}


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (
            {"volumes": [{"name": "v", "rbd": {"image": "i", "monitors": ["m"]}}]},
            "spec.volumes.rbd",
        ),
        ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims"),
    ],
)
async def test_a_form_that_is_not_handled_keeps_its_clear_verdict(
    spec: dict[str, Any], named: str
) -> None:
    story = await world("n1")
    assert await placed(story, seen("a", **spec)) == f"unsupported constraint: {named}"


OTHER_TENANT = RefusalReason(
    name="other tenant",
    phrase="node(s) had pods of tenant %s",
    remedy="wait until the pods of the other tenant end",
)


class Tenant(Constraint):
    """A constraint as in the recipe of CONTRIBUTING: pods of two tenants share no node."""

    name = "tenant"
    handles = frozenset(("spec.tenant",))
    reasons = (OTHER_TENANT,)

    def read(self, spec: Json, pod: Pod) -> Any:
        if isinstance(spec.get("tenant"), list):
            raise NotHandled("several tenants")
        return spec.get("tenant")

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        taken = {
            node: held for held, nodes in view.placed_pods.keeping(self.name) for node in nodes
        }

        def check(node_info: NodeInfo) -> Refusal | None:
            value = taken.get(node_info.name, kept)
            return None if value == kept else OTHER_TENANT.refusal(node_info.name, value)

        return check if kept else None


async def test_a_constraint_is_one_file_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    story = await world("n1", "n2")
    assert "unsupported constraint: spec.tenant" in await placed(
        story, seen("before", tenant="red")
    )
    monkeypatch.setattr(registry, "_ALL", (*registry._ALL, Tenant()))
    red = await placed(story, seen("a", tenant="red"))
    assert await placed(story, seen("b", tenant="blue")) == ({"n1", "n2"} - {red}).pop()
    green = seen("c", tenant="green")
    message = await placed(story, green)
    assert "1 node(s) had pods of tenant red" in message
    assert "1 node(s) had pods of tenant blue" in message
    columns = story.cores[0].columns
    assert columns is not None
    refusal = columns.verdict(green.pod, red)
    assert refusal is not None
    assert (refusal.reason, refusal.remedy) == (OTHER_TENANT.name, OTHER_TENANT.remedy)
    assert (
        await placed(story, seen("d", tenant=["red"])) == "unsupported constraint: spec.tenant"
    ), "a form that it has not"


async def test_what_a_newer_release_keeps_of_a_pod_is_not_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two releases share a log: the observing one knows a constraint that the deciding one does
    not.
    """
    story = await world("n1")
    monkeypatch.setattr(registry, "_ALL", (*registry._ALL, Tenant()))
    newer = seen("a", tenant="red")
    monkeypatch.undo()
    assert await placed(story, newer) == (
        "0/1 nodes are available: 1 node(s) had a scheduler that "
        "does not support tenant, of a newer release."
    )


def test_equal_specs_are_one_shape_whatever_the_order_of_their_fields() -> None:
    first_pod = seen("a", **apart(HOST, namespaces=["x", "y"])).pod
    right = seen("a", **apart(HOST, namespaces=["y", "x"])).pod
    assert msgspec.json.encode(first_pod) == msgspec.json.encode(right)
