"""Bindings answer as the real server did, word for word."""

from __future__ import annotations

import asyncio

from tests.simulator.contract import Api, normal, recordings


async def test_a_binding_is_accepted_once(api: Api) -> None:
    await api.pod(
        "b1", labels={"keep": "old", "over": "old"}, annotations={"keep": "old", "over": "old"}
    )
    for name in (
        "pod_before_binding",
        "bind_201",
        "pod_after_binding",
        "bind_again_same_node_409",
        "bind_again_other_node_409",
    ):
        await api.same("bindings", name)
    await api.same("bindings", "binding_get_405")


async def test_uid_and_version_are_preconditions_and_labels_and_annotations_overwrite(
    api: Api,
) -> None:
    pod = await api.pod(
        "b2", labels={"keep": "old", "over": "old"}, annotations={"keep": "old", "over": "old"}
    )
    live = {
        "5414036b-909f-40cd-8e4e-40040c8731af": pod["metadata"]["uid"],
        '"1860"': f'"{pod["metadata"]["resourceVersion"]}"',
    }
    await api.same("bindings", "bind_wrong_uid_409", live)
    await api.same("bindings", "bind_wrong_resourceVersion_409", live)
    await api.same("bindings", "bind_right_uid_annotations_labels", live)
    await api.same("bindings", "pod_after_binding_annotations_labels")


async def test_a_pod_is_given_its_nodes_region_and_zone_as_labels(api: Api) -> None:
    """PodTopologyLabels of kube-apiserver 1.36.2: the node's values replace the pod's own
    labels."""
    topology = {"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "a"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "zoned", "labels": {**topology, "disk": "ssd"}},
    }
    await api.ask("POST", "/api/v1/nodes", node)
    await api.pod("b20", labels={"keep": "old", "topology.kubernetes.io/zone": "own"})
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "b20"},
        "target": {"kind": "Node", "name": "zoned"},
    }
    await api.ask("POST", "/api/v1/namespaces/apirec/pods/b20/binding", binding)
    bound = (await api.ask("GET", "/api/v1/namespaces/apirec/pods/b20")).json()
    assert bound["metadata"]["labels"] == {"keep": "old", **topology}


async def test_wrong_bindings_are_refused(api: Api) -> None:
    for name in ("b3", "b4", "b5", "b6", "b7", "b14"):
        await api.pod(name)
    for recording in (
        "bind_missing_pod_404",
        "bind_name_mismatch_400",
        "bind_no_name_400",
        "pod_after_bind_no_name",
        "bind_no_target_500",
        "bind_ns_mismatch_400",
        "bind_target_kind_pod_500",
        "bind_target_no_kind",
        "bind_unknown_node_201",
        "pod_after_bind_unknown_node",
        "bind_legacy_collection",
        "pod_after_bind_legacy",
        "bind_dryrun",
        "pod_after_bind_dryrun",
        "patch_nodeName_422",
    ):
        await api.same("bindings", recording)


async def test_a_gated_pod_is_bound_only_after_its_gate_is_gone(api: Api) -> None:
    await api.pod("b8", spec={"schedulingGates": [{"name": "example.com/g"}]})
    for name in (
        "pod_gated",
        "bind_gated_409",
        "pod_after_bind_gated",
        "ungate_patch",
        "bind_ungated",
    ):
        await api.same("bindings", name)


async def test_a_terminating_or_replaced_pod_is_not_bound(api: Api) -> None:
    await api.pod("b9", finalizers=["example.com/f"])
    await api.ask("DELETE", "/api/v1/namespaces/apirec/pods/b9")
    for name in ("pod_terminating_unbound", "bind_terminating_409", "pod_after_bind_terminating"):
        await api.same("bindings", name)
    await api.same("bindings", "bind_deleted_404")
    first = await api.pod("b11")
    await api.ask("DELETE", "/api/v1/namespaces/apirec/pods/b11")
    await api.pod("b11")
    recorded = "207b909f-dade-43af-88bd-b5d2343a7fac"
    await api.same("bindings", "bind_recreated_wrong_uid_409", {recorded: first["metadata"]["uid"]})


async def test_a_binding_clears_the_nominated_node(api: Api) -> None:
    await api.pod("b16")
    await api.set_status("b16", {"nominatedNodeName": "rec-n3"})
    for name in ("pod_nominated", "bind_nominated_201", "pod_after_bind_nominated"):
        await api.same("bindings", name)


async def test_no_pod_is_bound_or_evicted_in_a_namespace_that_ends(api: Api) -> None:
    await api.pod("b17", finalizers=["example.com/f"])
    await api.ask("DELETE", "/api/v1/namespaces/apirec")
    for name in ("bind_namespace_ends_403", "bind_namespace_ends_missing_403"):
        await api.same("bindings", name)
    await api.same("deletions", "evict_namespace_ends_403")


async def test_a_failed_pod_and_one_created_with_a_node(api: Api) -> None:
    await api.pod("b12")
    await api.set_status("b12", {"phase": "Failed"})
    await api.same("bindings", "bind_failed_phase_201")
    await api.pod("b13", spec={"nodeName": "rec-n3"})
    await api.same("bindings", "pod_created_with_nodeName")


async def test_of_four_racing_bindings_exactly_one_wins(api: Api) -> None:
    await api.pod("b15")
    wanted = recordings("bindings")["bind_race_4"]["results"]
    path = "/api/v1/namespaces/apirec/pods/b15/binding"

    async def bind(node: str) -> tuple[int, object]:
        answer = await api.ask(
            "POST", path, {"metadata": {"name": "b15"}, "target": {"kind": "Node", "name": node}}
        )
        return answer.status_code, normal(answer.json())

    answers = await asyncio.gather(*(bind(result["node"]) for result in wanted))
    assert sorted(code for code, _ in answers) == sorted(result["status"] for result in wanted)
    winner = api.store.get("pods", "b15", "apirec")
    assert winner is not None
    node = winner.obj["spec"]["nodeName"]
    for code, body in answers:
        if code == 409:
            assert f'already assigned to node "{node}"' in str(body)
