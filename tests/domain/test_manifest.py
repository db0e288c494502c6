"""Manifests become pods with Kubernetes' own defaults and class of service; bad ones a refusal,
never an exception.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lightkube.models.core_v1 import PodSpec

from shared.domain.constraints import KNOWN_FIELDS
from shared.domain.manifest import ManifestError, pod_from_manifest
from shared.domain.pod import Pod, Toleration
from tests.fixtures.examples import examples

Json = dict[str, Any]


def manifest(*containers: Json, **spec: Any) -> Json:
    """Return a minimal pod object with the given containers."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n", "uid": "u-1"},
        "spec": {"containers": list(containers) or [{"name": "c"}], **spec},
    }


def container(
    name: str = "c", requests: Json | None = None, limits: Json | None = None, **more: Any
) -> Json:
    """A container with resources."""
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def pod(doc: Json) -> Pod:
    """Return the pod of a valid manifest."""
    read = pod_from_manifest(doc)
    assert isinstance(read, Pod), read
    return read


def refused(doc: Any) -> ManifestError:
    """Return the refusal of an invalid manifest."""
    read = pod_from_manifest(doc)
    assert isinstance(read, ManifestError), read
    assert read.remedy
    return read


def test_amounts_and_order_of_containers() -> None:
    read = pod(
        manifest(
            container("app", {"cpu": "1500m", "memory": "1Gi", "vendor.example/gpu": 2}),
            initContainers=[
                container("first", {"cpu": 1}),
                container("mesh", restartPolicy="Always"),
            ],
        )
    )
    assert [(c.name, c.kind) for c in read.containers] == [
        ("first", "init"),
        ("mesh", "sidecar"),
        ("app", "app"),
    ]
    assert read.containers[2].requests == {"cpu": 1500, "memory": 2**30, "vendor.example/gpu": 2}
    assert (read.uid, read.key) == ("u-1", "n/p")


def test_a_limit_without_request_is_the_request() -> None:
    doc = manifest(container(requests={"cpu": "1"}, limits={"cpu": "2", "memory": "1Gi"}))
    assert pod(doc).containers[0].requests == {"cpu": 1000, "memory": 2**30}
    bare = pod_from_manifest(doc, defaults=False)
    assert isinstance(bare, Pod)
    assert bare.containers[0].requests == {"cpu": 1000}


def test_a_file_without_uid_and_namespace_gets_both() -> None:
    doc = manifest()
    doc["metadata"] = {"name": "p"}
    assert (pod(doc).uid, pod(doc).namespace) == ("default/p", "default")


BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("doc", "qos"),
    [
        (manifest(container(limits=BOTH)), "Guaranteed"),
        (manifest(container(requests=BOTH, limits=BOTH)), "Guaranteed"),
        (manifest(container(requests=BOTH)), "Burstable"),
        (manifest(container(limits={"cpu": "1"})), "Burstable"),
        (manifest(container(requests={"cpu": "500m", "memory": "1Gi"}, limits=BOTH)), "Burstable"),
        (manifest(container(limits=BOTH), container("two")), "Burstable"),
        (manifest(container(limits=BOTH), initContainers=[container("i")]), "Burstable"),
        (
            manifest(container(limits=BOTH), initContainers=[container("i", limits=BOTH)]),
            "Guaranteed",
        ),
        (manifest(container()), "BestEffort"),
        (manifest(container(limits={"vendor.example/gpu": 1})), "BestEffort"),
        (manifest(container(requests={"cpu": 0, "memory": 0})), "BestEffort"),
        (manifest(container(), resources={"limits": BOTH}), "Guaranteed"),
        (manifest(container(), resources={"requests": BOTH}), "Burstable"),
        (manifest(container(limits=BOTH), resources={"limits": {"cpu": "1"}}), "Burstable"),
        (manifest(container(limits=BOTH), resources={}), "BestEffort"),
        ({**manifest(container()), "status": {"qosClass": "Guaranteed"}}, "Guaranteed"),
        ({**manifest(container()), "status": {"qosClass": "Odd"}}, "BestEffort"),
    ],
)
def test_class_of_service(doc: Json, qos: str) -> None:
    assert pod(doc).qos == qos


def test_pod_level_requests_are_defaulted_from_containers_then_limits() -> None:
    huge = container(requests={"cpu": "1"}, limits={"hugepages-2Mi": "4Mi"})
    read = pod(manifest(huge, resources={"limits": {"cpu": "4", "memory": "1Gi"}}))
    assert read.pod_level == {"cpu": 1000, "hugepages-2Mi": 4 * 2**20, "memory": 2**30}
    assert pod(manifest(container())).pod_level is None


def test_constraints_that_are_supported() -> None:
    terms = [
        {
            "matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}],
            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["bad"]}],
        }
    ]
    node_affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
    }
    read = pod(
        manifest(
            nodeName="node-a",
            nodeSelector={"zone": "west"},
            affinity={"nodeAffinity": node_affinity},
            tolerations=[
                {"operator": "Exists"},
                {"key": "k", "value": "v", "effect": "NoSchedule"},
            ],
            priority=7,
            schedulerName="topolog",
        )
    ).constraints
    assert (read.node_name, read.node_selector, read.unsupported) == (
        "node-a",
        {"zone": "west"},
        (),
    )
    assert read.required_affinity[0].expressions == (("disk", "In", ("ssd", "nvme")),)
    assert read.required_affinity[0].fields == (("metadata.name", "NotIn", ("bad",)),)
    assert read.tolerations == (
        Toleration(operator="Exists"),
        Toleration("k", "Equal", "v", "NoSchedule"),
    )


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"affinity": {"podAffinity": {REQUIRED: [{}]}}}, f"spec.affinity.podAffinity.{REQUIRED}"),
        (
            {"affinity": {"podAntiAffinity": {REQUIRED: [{}]}}},
            f"spec.affinity.podAntiAffinity.{REQUIRED}",
        ),
        ({"affinity": {"moonAffinity": {}}}, "spec.affinity.moonAffinity"),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "spec.topologySpreadConstraints",
        ),
        ({"topologySpreadConstraints": [{}]}, "spec.topologySpreadConstraints"),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]},
            "spec.volumes.persistentVolumeClaim",
        ),
        ({"volumes": [{"name": "v", "ephemeral": {}}]}, "spec.volumes.ephemeral"),
        (
            {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]},
            "spec.containers.ports.hostPort",
        ),
        (
            {"containers": [{"name": "c", "ports": [{}]}], "hostNetwork": True},
            "spec.containers.ports.hostPort",
        ),
        (
            {"containers": [{"name": "c", "resources": {"claims": [{"name": "x"}]}}]},
            "spec.containers.resources.claims",
        ),
        ({"resourceClaims": [{"name": "x"}]}, "spec.resourceClaims"),
        (
            {"schedulingGroup": {"podGroupName": "x", "rank": 1}},
            "spec.schedulingGroup.rank",
        ),
        ({"workloadRef": {"name": "x"}}, "spec.workloadRef"),
        ({"os": {"name": "windows"}}, "spec.os.name"),
        ({"placementOfTomorrow": 1}, "spec.placementOfTomorrow"),
    ],
)
def test_what_is_not_implemented_is_named(spec: Json, named: str) -> None:
    assert pod(manifest(**spec)).constraints.unsupported == (named,)


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]},
        {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "t", "projected": {}}]},
        {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]},
        {
            "hostNetwork": True,
            "os": {"name": "linux"},
            "resourceClaims": [],
            "terminationGracePeriodSeconds": 3,
        },
    ],
)
def test_what_restricts_nothing_is_not_named(spec: Json) -> None:
    assert pod(manifest(**spec)).constraints.unsupported == ()


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": []}, "spec.containers"),
        ({"containers": {"name": "c"}}, "spec.containers"),
        ({"containers": ["c"]}, "spec.containers[0]"),
        ({"containers": [{"name": ""}]}, "spec.containers[0].name"),
        ({"containers": [{"name": "a/b"}]}, "spec.containers[0].name"),
        ({"containers": [{"name": "c"}, {"name": "c"}]}, "spec.containers"),
        (
            {"containers": [container(requests={"cpu": "-1"})]},
            "spec.containers[0].resources.requests.cpu",
        ),
        (
            {"containers": [container(requests={"cpu": "1 core"})]},
            "spec.containers[0].resources.requests.cpu",
        ),
        (
            {"containers": [container(requests={"cpu": None})]},
            "spec.containers[0].resources.requests.cpu",
        ),
        (
            {"containers": [container(requests={"cpu": True})]},
            "spec.containers[0].resources.requests.cpu",
        ),
        (
            {"containers": [container(limits={"memory": "9e63"})]},
            "spec.containers[0].resources.limits.memory",
        ),
        (
            {"containers": [container(limits={"memory": "100Pi"})]},
            "spec.containers[0].resources.limits.memory",
        ),
        (
            {"containers": [container(limits={"memory": 10**400})]},
            "spec.containers[0].resources.limits.memory",
        ),
        (
            {"containers": [container(limits={"a.b/c": []})]},
            'spec.containers[0].resources.limits["a.b/c"]',
        ),
        ({"nodeSelector": {"k": 1}}, "spec.nodeSelector.k"),
        ({"nodeName": 5}, "spec.nodeName"),
        ({"priority": "high"}, "spec.priority"),
        ({"priority": True}, "spec.priority"),
        ({"tolerations": [{"effect": "Sometimes"}]}, "spec.tolerations[0].effect"),
        ({"hostNetwork": "yes"}, "spec.hostNetwork"),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k"}]}]}
                    }
                }
            },
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].operator",
        ),
        (
            {"affinity": {"nodeAffinity": {REQUIRED: {}}}},
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms",
        ),
    ],
)
def test_bad_fields_are_named_with_a_remedy(spec: Json, field: str) -> None:
    assert refused(manifest(**spec)).field == field


@pytest.mark.parametrize(
    "doc", [None, 5, "pod", [], {"metadata": "x"}, {"metadata": {}}, {"kind": "Node"}, {1: 2}]
)
def test_documents_that_are_no_pods(doc: Any) -> None:
    refused(doc)


def test_a_total_beyond_measure_is_refused() -> None:
    containers = [container(f"c{i}", {"memory": "60Pi"}) for i in range(40)]
    assert refused(manifest(*containers)).field.endswith("memory")


def test_half_a_surrogate_pair_is_refused_before_it_reaches_an_encoder() -> None:
    doc = manifest()
    doc["metadata"]["labels"] = {"k": json.loads('"\\ud800"')}
    assert refused(doc).field == "metadata.labels.k"


def test_every_field_that_kubernetes_has_for_a_pod_is_known() -> None:
    """The newest release that the client's models describe is 1.37. Pods with unknown fields wait,
    because such a field may be a restriction.
    """
    assert set(PodSpec.__annotations__) <= KNOWN_FIELDS


junk = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)

FULL = manifest(
    container("c", BOTH, BOTH, ports=[{"hostPort": 1}]),
    initContainers=[container("i", BOTH, restartPolicy="Always")],
    affinity={
        "nodeAffinity": {
            REQUIRED: {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
                ]
            }
        },
        "podAffinity": {REQUIRED: []},
    },
    tolerations=[{"key": "k"}],
    nodeSelector={"a": "b"},
    volumes=[{"name": "v", "emptyDir": {}}],
    topologySpreadConstraints=[{"whenUnsatisfiable": "ScheduleAnyway"}],
    resources={"limits": BOTH},
    overhead={"cpu": "1"},
    priority=1,
)


def _places(doc: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = doc.keys() if isinstance(doc, dict) else range(len(doc)) if isinstance(doc, list) else ()
    return (
        [path, *(place for key in keys for place in _places(doc[key], (*path, key)))]
        if path or keys
        else [path]
    )


@settings(max_examples=examples(150))
@given(st.sampled_from(_places(FULL)[1:]), junk)
def test_junk_in_any_field_is_read_or_refused_but_never_raises(
    place: tuple[Any, ...], value: Any
) -> None:
    doc = copy.deepcopy(FULL)
    spot: Any = doc
    for step in place[:-1]:
        spot = spot[step]
    spot[place[-1]] = value
    read = pod_from_manifest(doc)
    assert isinstance(read, Pod | ManifestError)
    msgspec.json.encode(read)


def test_gates_hold_a_pod_back_and_are_no_missing_constraint() -> None:
    read = pod(manifest(schedulingGates=[{"name": "example.com/one"}, {"name": "two"}])).constraints
    assert (read.gates, read.unsupported) == (("example.com/one", "two"), ())
