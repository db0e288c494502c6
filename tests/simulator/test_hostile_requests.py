"""Whatever is sent, the server answers with a Status of the client's error and goes on working."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.core import kinds
from services.simulator.api.http import objects
from services.simulator.api.http.negotiate import Form
from services.simulator.api.http.request import Request
from services.simulator.api.http.routes import Missing, Target, Virtual, place_of
from tests.fixtures.examples import examples
from tests.simulator.contract import Api

METADATA = (
    "name",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "uid",
    "resourceVersion",
    "generateName",
)
SPEC = (
    "containers",
    "initContainers",
    "nodeName",
    "schedulingGates",
    "tolerations",
    "overhead",
    "terminationGracePeriodSeconds",
    "priority",
    "nodeSelector",
    "restartPolicy",
    "selector",
    "minAvailable",
    "maxUnavailable",
    "leaseDurationSeconds",
    "renewTime",
    "taints",
    "unschedulable",
    "ports",
    "volumes",
    "holderIdentity",
)
STATUS = (
    "conditions",
    "phase",
    "containerStatuses",
    "capacity",
    "allocatable",
    "addresses",
    "nodeInfo",
    "podIPs",
    "nominatedNodeName",
)
TOP = (
    "zones",
    "attributes",
    "topologyPolicies",
    "involvedObject",
    "regarding",
    "series",
    "source",
    "eventTime",
    "count",
    "message",
    "note",
    "type",
    "reason",
    "firstTimestamp",
    "kind",
    "apiVersion",
    "target",
    "deleteOptions",
    "preconditions",
    "dryRun",
    "gracePeriodSeconds",
)
INNER = (
    "name",
    "image",
    "resources",
    "limits",
    "requests",
    "cpu",
    "memory",
    "x.y/z",
    "type",
    "status",
    "namespace",
    "component",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
    "costs",
    "capacity",
    "ready",
    "state",
    "uid",
    "$patch",
)
KEYS = st.sampled_from(INNER)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.sampled_from(["x", "1", "2Gi", "a-b"]),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=25,
)


def _some(fields: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(fields), VALUES, min_size=1, max_size=3)


PARTS: st.SearchStrategy[Any] = st.one_of(
    VALUES,
    _some(TOP),
    st.builds(lambda part: {"metadata": part}, _some(METADATA)),
    st.builds(lambda part: {"spec": part}, _some(SPEC)),
    st.builds(lambda part: {"status": part}, _some(STATUS)),
    st.builds(
        lambda part: {"spec": {"containers": [{"name": "c", "image": "i", **part}]}}, _some(INNER)
    ),
    st.lists(
        st.fixed_dictionaries(
            {
                "op": st.sampled_from(["add", "test", "copy"]),
                "path": st.sampled_from(
                    ["/spec", "/metadata/labels", "/spec/containers/0/image", "/metadata", ""]
                ),
                "value": VALUES,
                "from": st.just("/metadata"),
            }
        ),
        max_size=2,
    ),
)
FORMS = st.sampled_from(["merge", "strategic", "json", "apply"])
CONTENT = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
}
CONTROLLER: dict[str, Any] = {
    "metadata": {"name": "x"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "x"}},
        "template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    },
}
BASES: dict[str, dict[str, Any]] = {
    "pods": {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    "nodes": {"metadata": {"name": "x"}},
    "namespaces": {"metadata": {"name": "x"}},
    "services": {"metadata": {"name": "x"}},
    "events": {"metadata": {"name": "x"}, "involvedObject": {"namespace": "default"}},
    "leases": {"metadata": {"name": "x"}},
    "configmaps": {"metadata": {"name": "x"}, "data": {"key": "value"}},
    "priorityclasses": {"metadata": {"name": "x"}, "value": 1},
    "deployments": CONTROLLER,
    "replicasets": CONTROLLER,
    "statefulsets": CONTROLLER,
    "jobs": {"metadata": {"name": "x"}, "spec": {"template": TEMPLATE}},
    "persistentvolumes": {
        "metadata": {"name": "x"},
        "spec": {"csi": {"driver": "d", "volumeHandle": "h"}},
    },
    "persistentvolumeclaims": {
        "metadata": {"name": "x"},
        "spec": {"accessModes": ["ReadWriteOnce"]},
    },
    "runtimeclasses": {
        "metadata": {"name": "x"},
        "handler": "h",
        "overhead": {"podFixed": {"cpu": "1"}},
        "scheduling": {
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
        },
    },
    "csinodes": {"metadata": {"name": "x"}, "spec": {"drivers": [{"name": "d", "nodeID": "x"}]}},
    "poddisruptionbudgets": {
        "metadata": {"name": "x"},
        "spec": {"minAvailable": 1, "selector": {}},
    },
    "devices": {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": "x"},
        "spec": {"devices": [{"type": "gpu", "minor": 0}]},
    },
    "reservations": {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "x"},
        "spec": {"template": {"spec": {}}, "owners": [{"labelSelector": {}}]},
    },
    "noderesourcetopologies": {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "x"},
        "zones": [],
    },
}


def _ask(
    store: ClusterStore,
    method: str,
    target: Target,
    body: Any,
    content_type: str = "application/json",
) -> int:
    query = {"fieldManager": "m", "force": "true"}
    request = Request(method, "", query, "", content_type, json.dumps(body).encode())
    for shape in ("object", "Table"):
        answer = objects.answer(store, target, request, Form(shape))
        assert json.loads(answer.body)
        assert answer.code < 600
    return answer.code


def _mixed(base: Any, noise: Any) -> Any:
    """Return a valid body with one part replaced by noise."""
    if isinstance(base, dict) and isinstance(noise, dict):
        return {**base, **{key: _mixed(base.get(key), value) for key, value in noise.items()}}
    return noise


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(kinds.KINDS), PARTS, PARTS, FORMS, st.sampled_from(["", "status"]))
def test_no_body_breaks_a_create_or_a_patch(
    kind: kinds.Kind, noise: Any, patch: Any, form: str, subresource: str
) -> None:
    store = ClusterStore(seed=1)
    namespace = "default" if kind.namespaced else ""
    base = BASES[kind.storage]
    if kind is kinds.EVENTS_V1:
        base = {"metadata": {"name": "x"}, "regarding": {"namespace": "default"}}
    _ask(store, "POST", Target(kind, namespace), noise)
    _ask(store, "POST", Target(kind, namespace), _mixed(base, noise))
    if store.get(kind.storage, "x", namespace) is None:
        store.create(kind, BASES[kind.storage] if kind is not kinds.EVENTS_V1 else base, namespace)
    where = Target(kind, namespace, "x", subresource if kind.has_status else "")
    _ask(store, "PATCH", where, patch, CONTENT[form])
    _ask(store, "PUT", where, _mixed(base, patch))
    _ask(store, "GET", Target(kind, namespace), None)
    _ask(store, "DELETE", Target(kind, namespace, "x"), patch)
    for entry in store.list(kind.storage):
        assert json.loads(entry.body)["metadata"]["name"] == entry.name


@settings(max_examples=examples(150), deadline=None)
@given(PARTS, st.sampled_from(["binding", "eviction"]))
def test_no_body_breaks_a_binding_or_an_eviction(noise: Any, subresource: str) -> None:
    store = ClusterStore(seed=1)
    store.create("pods", BASES["pods"], "default")
    where = Target(kinds.PODS, "default", "x", subresource)
    _ask(store, "POST", where, noise)
    _ask(store, "POST", where, _mixed({"metadata": {"name": "x"}, "target": {"name": "n"}}, noise))


@given(st.text(max_size=60))
def test_every_path_is_understood_or_missing(path: str) -> None:
    for root in (
        "/api/v1/",
        "/apis/",
        "/",
        "/apis/topology.node.k8s.io/v1alpha2/",
        "/api/v1/namespaces/",
    ):
        place = place_of(root + path)
        assert place is None or isinstance(place, Target | Virtual | Missing)


@pytest.mark.parametrize(
    "query",
    [
        "limit=-1",
        "limit=abc",
        "limit=99999999999999999999",
        "watch=1&timeoutSeconds=0&resourceVersion=99999999999999999999",
        "continue=%ff",
        "labelSelector=%28",
        "labelSelector=a+in+%28",
        "labelSelector=%2C%2C",
        "fieldSelector=%3D",
        "fieldSelector=a",
        "resourceVersion=-1",
        "resourceVersion=1e3",
        "resourceVersion=%00",
        "includeObject=x",
    ],
)
async def test_odd_queries_get_an_answer(api: Api, query: str) -> None:
    answer = await api.ask("GET", f"/api/v1/pods?{query}")
    assert answer.status_code in (200, 400, 422, 500)
    assert answer.json()["kind"] in ("PodList", "Status")


@pytest.mark.parametrize(
    "form", ["application/json", "application/yaml", "application/merge-patch+json"]
)
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"metadata":{"name":"\xff"}}',
        b"\xff",
    ],
    ids=lambda body: f"{len(body)} bytes",
)
async def test_text_that_is_no_text_and_endless_nesting_are_bad_requests(
    api: Api, body: bytes, form: str
) -> None:
    method, path = ("PATCH", "pods/p") if "patch" in form else ("POST", "pods")
    await api.bound_pod("p")
    path = f"/api/v1/namespaces/apirec/{path}"
    answer = await api.client.request(
        method, path, content=body, headers={"Content-Type": form, "Accept": "application/json"}
    )
    assert answer.status_code == 400, answer.text
    assert answer.json()["kind"] == "Status"


async def test_a_grace_period_beyond_all_measure_is_bounded(api: Api) -> None:
    await api.bound_pod("p")
    answer = await api.ask(
        "DELETE", "/api/v1/namespaces/apirec/pods/p", {"gracePeriodSeconds": 10**18}
    )
    assert answer.status_code == 200
    assert answer.json()["metadata"]["deletionTimestamp"].startswith("20")
