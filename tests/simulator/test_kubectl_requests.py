"""kubectl's own requests, replayed in the order of a user's session: every answer has the recorded
status and shape.

Two kubectl versions (1.32.5 and 1.36.2) with cold caches, aggregated discovery, Tables, protobuf
bodies and watch-lists.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx2
import pytest

from services.simulator.api.core import kinds
from services.simulator.api.http.protobuf import fields_of
from tests.simulator.contract import Api, normal, recordings

Json = dict[str, Any]

SESSION = (
    "version",
    "get_nodes",
    "get_nodes_wide",
    "get_nodes_json",
    "get_pods_empty",
    "create_f",
    "create_f_validate_false",
    "create_f_again_409",
    "create_f_unknown_field",
    "create_f_unknown_field_warn",
    "get_pods",
    "get_pods_all_wide",
    "get_pod_one",
    "get_pod_yaml",
    "get_pod_missing",
    "annotate_pod",
    "patch_pod_merge",
    "patch_pod_default",
    "describe_pod",
    "wait_condition",
    "get_pods_watch",
    "get_pods_watch_json",
    "get_pods_watch_only_all",
    "apply_f_new",
    "apply_f_nochange",
    "apply_f_change",
    "apply_ssa_new",
    "apply_ssa_change",
    "apply_ssa_conflict",
    "apply_ssa_force",
    "delete_pod_unbound",
    "delete_f_missing",
    "delete_pod_force",
    "wait_jsonpath",
    "delete_pod_bound",
    "describe_node",
    "cordon",
    "uncordon",
    "taint_node",
    "taint_node_remove",
    "label_node",
    "label_node_remove",
    "get_events",
    "events",
    "get_leases",
    "get_nrt",
    "get_nrt_shortname_yaml",
    "can_i",
    "can_i_list",
    "whoami",
    "create_namespace",
    "delete_namespace_nowait",
    "get_raw_readyz",
)


@pytest.mark.parametrize("version", ["k132", "k136"])
async def test_a_kubectl_session(api: Api, version: str) -> None:
    await _scene(api)
    for name in SESSION:
        for exchange in recordings("kubectl")[f"{version}_{name}"]["exchanges"]:
            if "resource.k8s.io" in exchange["request"]["path"]:
                continue
            answer = await _send(api, exchange["request"])
            _compare(
                f"{version}_{name} {exchange['request']['path']}", answer, exchange["response"]
            )
        if name in _AFTER:
            await _AFTER[name](api)


async def _scene(api: Api) -> None:
    for name in ("rec-n1", "rec-n2"):
        await api.ask(
            "POST",
            "/api/v1/nodes",
            {
                "metadata": {"name": name},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            },
        )
    topology = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "vm0"},
        "zones": [],
    }
    await api.ask("POST", "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies", topology)
    lease = {"metadata": {"name": "vm0"}, "spec": {"holderIdentity": "vm0"}}
    await api.ask("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease)
    event = {
        "metadata": {"name": "e.1"},
        "involvedObject": {"kind": "Pod", "name": "kc1", "namespace": "apirec"},
        "count": 1,
    }
    await api.ask("POST", "/api/v1/namespaces/apirec/events", event)


async def _bind_first(api: Api) -> None:
    api.store.bind("kc1", "apirec", "rec-n1")


async def _bind_second(api: Api) -> None:
    api.store.bind("kc2", "apirec", "rec-n2")


_AFTER = {"patch_pod_default": _bind_first, "create_f_validate_false": _bind_second}


async def _send(api: Api, request: Json) -> httpx2.Response:
    body = request.get("body")
    content = None if body is None else json.dumps(body).encode()
    if isinstance(body, dict) and "_protobuf_base64" in body:
        content = base64.b64decode(body["_protobuf_base64"])
    headers = {
        key: value for key, value in request["headers"].items() if key in ("Accept", "Content-Type")
    }
    if "watch=true" in request["path"]:
        return await _begin_watch(api, _from_now(api, request["path"]), headers)
    return await api.client.request(
        request["method"], request["path"], content=content, headers=headers
    )


async def _begin_watch(api: Api, path: str, headers: dict[str, str]) -> httpx2.Response:
    """Return a watch's status and headers. The stream itself is not read, because other tests do
    that.
    """
    async with api.client.stream("GET", path, headers=headers) as answer:
        return answer


def _from_now(api: Api, path: str) -> str:
    """Return the path of a recorded watch, from this server's version instead of the
    recorded one.
    """
    head, separator, tail = path.partition("resourceVersion=")
    if not separator:
        return path
    return f"{head}resourceVersion={api.store.version}{tail[len(tail.partition('&')[0]) :]}"


def _compare(what: str, answer: httpx2.Response, recorded: Json) -> None:
    assert answer.status_code == recorded["status"], (what, answer.text[:800])
    body = recorded["body"]
    if not isinstance(body, dict) or "_see" in body:
        return
    if body.get("kind") == "Table":
        columns = ("name", "type", "format", "priority")
        ours, real = (
            [{key: item[key] for key in columns} for item in table["columnDefinitions"]]
            for table in (answer.json(), body)
        )
        assert ours == real, what
        assert all(len(row["cells"]) == len(ours) for row in answer.json()["rows"]), what
    elif body.get("kind") == "Status" and body.get("status") == "Failure":
        assert normal(answer.json())["reason"] == body["reason"], what
    elif "kind" in body and answer.headers["Content-Type"].startswith("application/json"):
        assert answer.json()["kind"] == body["kind"], what


@pytest.mark.parametrize("version", ["k132", "k136"])
async def test_drain_evicts_and_waits_until_the_pod_is_gone(api: Api, version: str) -> None:
    await _scene(api)
    await api.bound_pod("kc1", "rec-n1")
    for exchange in recordings("kubectl")[f"{version}_drain"]["exchanges"]:
        if exchange["response"]["status"] == 404:
            api.store.delete("pods", "kc1", "apirec", grace_s=0)
        answer = await _send(api, exchange["request"])
        _compare(exchange["request"]["path"], answer, exchange["response"])
    node = api.store.get("nodes", "rec-n1")
    assert node is not None
    assert node.obj["spec"]["unschedulable"] is True


async def test_discovery_names_every_resource_that_is_served(api: Api) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    for root in ("/api", "/apis"):
        answer = await api.ask("GET", root, headers={"Accept": accept})
        assert answer.headers["Content-Type"] == accept
        for group in answer.json()["items"]:
            for version in group["versions"]:
                name = group["metadata"].get("name")
                base = (
                    f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
                )
                plain = (await api.ask("GET", base)).json()["resources"]
                listed = {item["name"] for item in plain if "/" not in item["name"]}
                assert listed == {item["resource"] for item in version["resources"]}
                for item in version["resources"]:
                    if "list" in item["verbs"]:
                        assert (
                            await api.ask("GET", f"{base}/{item['resource']}")
                        ).status_code == 200


async def test_older_kubectls_find_a_patch_operation_for_every_kind_in_openapi_v2(api: Api) -> None:
    answer = await api.client.get("/openapi/v2")
    assert (
        answer.headers["Content-Type"]
        == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    )
    document = fields_of(answer.content)
    paths = [fields_of(_bytes(item)) for item in fields_of(_bytes(document[8][0]))[2]]
    operations = {
        _bytes(path[1][0]).decode(): fields_of(_bytes(fields_of(_bytes(path[2][0]))[8][0]))
        for path in paths
    }
    assert b"fieldValidation" in _bytes(
        operations["/api/v1/namespaces/{namespace}/pods/{name}"][8][0]
    )
    extensions = [fields_of(_bytes(operation[13][0])) for operation in operations.values()]
    named = {
        _bytes(fields_of(_bytes(extension[2][0]))[2][0]).decode().split("kind: ")[1].split()[0]
        for extension in extensions
    }
    assert named == {kind.kind for kind in kinds.KINDS}


def _bytes(value: bytes | int) -> bytes:
    assert isinstance(value, bytes)
    return value
