"""Deletions and evictions answer as the real server did."""

from __future__ import annotations

from typing import Any

from tests.simulator.contract import Api, differences, normal, recordings

RUNNING: dict[str, Any] = {
    "phase": "Running",
    "conditions": [
        {"type": "Ready", "status": "True"},
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T02:42:56Z"},
    ],
    "containerStatuses": [
        {
            "name": "c",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            "lastState": {},
            "ready": True,
            "restartCount": 0,
            "image": "x",
            "imageID": "",
        }
    ],
}


async def _running(api: Api, name: str, node: str, labels: dict[str, str]) -> dict[str, Any]:
    pod = await api.bound_pod(name, node, labels=labels)
    await api.set_status(name, RUNNING)
    return pod


async def test_an_evicted_pod_terminates_and_a_second_eviction_is_welcome(api: Api) -> None:
    node = recordings("deletions")["pod_after_evict"]["response"]["body"]["spec"]["nodeName"]
    await _running(api, "e1", node, {"app": "e1"})
    for name in ("evict_201", "pod_after_evict", "evict_again"):
        await api.same("deletions", name)
    await api.ask("DELETE", "/api/v1/namespaces/apirec/pods/e1?gracePeriodSeconds=0")
    await api.same("deletions", "evict_404")


async def test_a_disruption_budget_blocks_evictions_but_not_deletes(api: Api) -> None:
    node = recordings("deletions")["pod_terminating_bound"]["response"]["body"]["spec"]["nodeName"]
    second = await _running(api, "e2", node, {"app": "e2"})
    await _running(api, "e3", node, {"app": "e2"})
    created = await api.replay("deletions", "pdb_create")
    assert created.status_code == 201
    await api.same("deletions", "pdb_status")
    await api.same("deletions", "evict_pdb_429")
    await api.same("deletions", "evict_pdb_dryrun_429")
    await api.same("deletions", "delete_ignores_pdb")
    twin = {
        "metadata": {"name": "other"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "e2"}}},
    }
    path = "/apis/policy/v1/namespaces/apirec/poddisruptionbudgets"
    assert (await api.ask("POST", path, twin)).status_code == 201
    await api.same("deletions", "evict_two_pdbs_500")
    for name in ("other", "pdb"):
        assert (await api.ask("DELETE", f"{path}/{name}")).status_code == 200
    await api.same("deletions", "evict_wrong_uid_409")
    await api.same(
        "deletions",
        "evict_right_uid_201",
        {"cb73a85e-96d5-4aad-877c-6187dbcd08d0": second["metadata"]["uid"]},
    )
    await api.same("deletions", "pod_after_evict_grace7")


async def test_an_unbound_pod_is_evicted_at_once(api: Api) -> None:
    await api.pod("e4")
    await api.same("deletions", "evict_unbound")
    await api.same("deletions", "pod_after_evict_unbound")


async def test_a_bound_pod_stays_until_its_kubelet_confirms(api: Api) -> None:
    wanted = recordings("deletions")["delete_bound_graceful"]["response"]["body"]
    await _running(api, "e3", wanted["spec"]["nodeName"], {"app": "e2"})
    await api.same("deletions", "evict_v1beta1_body")
    await api.same("deletions", "delete_wrong_uid_409")
    await api.same("deletions", "delete_wrong_rv_409")
    for name in (
        "delete_bound_graceful",
        "pod_terminating_bound",
        "delete_bound_again",
        "delete_grace0",
        "delete_missing_404",
    ):
        await api.same("deletions", name)


async def test_an_unbound_pod_and_a_collection_go_at_once(api: Api) -> None:
    await api.pod("e5")
    await api.same("deletions", "delete_unbound")
    await api.same("deletions", "get_after_delete_unbound")
    for name in ("e6", "e7"):
        await api.pod(name, labels={"app": "e6"})
    await api.same("deletions", "deletecollection")
    assert api.store.get("pods", "e6", "apirec") is None


async def test_a_watch_sees_the_steps_of_both_kinds_of_deletion(api: Api) -> None:
    version_before = api.store.version
    await api.bound_pod("e8", "rec-n4", labels={"app": "e8"})
    await api.ask("DELETE", "/api/v1/namespaces/apirec/pods/e8")
    await api.ask("DELETE", "/api/v1/namespaces/apirec/pods/e8", {"gracePeriodSeconds": 0})
    await api.pod("e9", labels={"app": "e8"})
    await api.ask("DELETE", "/api/v1/namespaces/apirec/pods/e9")
    query = f"watch=1&resourceVersion={version_before}&labelSelector=app%3De8&timeoutSeconds=1"
    where = f"/api/v1/namespaces/apirec/pods?{query}"
    events = await api.watch(where)
    wanted = recordings("deletions")["watch_deleted_forms"]["response"]["body"]
    assert differences(normal(events), normal(wanted)) == []
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    times = [event["object"]["metadata"].get("deletionTimestamp") for event in events[2:5]]
    assert times[1] == times[2] < times[0]


async def test_a_budget_guards_no_unready_pod_if_the_rest_suffices_or_it_says_so(
    api: Api,
) -> None:
    for name, app, ready in (("u1", "u", "True"), ("u2", "u", "False"), ("u3", "w", "False")):
        await api.bound_pod(name, labels={"app": app})
        await api.set_status(
            name, {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
        )
    budgets = "/apis/policy/v1/namespaces/apirec/poddisruptionbudgets"
    for app in "uw":
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": app},
            "spec": spec,
        }
        assert (await api.ask("POST", budgets, body)).status_code == 201
    for name in (
        "evict_ready_guarded_429",
        "evict_unready_rest_suffices_201",
        "evict_unready_too_few_429",
    ):
        await api.same("deletions", name)
    always = {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}
    headers = {"Content-Type": "application/merge-patch+json"}
    assert (await api.ask("PATCH", f"{budgets}/w", always, headers)).status_code == 200
    await api.same("deletions", "evict_unready_always_allow_201")
