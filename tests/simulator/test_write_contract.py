"""Patches, server-side apply, custom resources, events, leases and nodes answer as the real server
did.
"""

from __future__ import annotations

from typing import Any

from tests.simulator.contract import Api, recordings

NRT = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"


async def test_server_side_apply_of_a_topology(api: Api) -> None:
    for name in (
        "ssa_nrt_create",
        "ssa_nrt_noop",
        "ssa_nrt_change",
        "ssa_nrt_other_same",
        "ssa_nrt_conflict_409",
        "ssa_nrt_force",
        "ssa_nrt_no_manager_422",
        "ssa_nrt_unknown_field_500",
        "ssa_nrt_unknown_field_strict",
        "ssa_nrt_with_rv_409",
        "ssa_nrt_wrong_name",
    ):
        await api.same("writes", name)


async def test_the_version_moves_with_ownership_but_not_with_a_repeated_apply(api: Api) -> None:
    versions = []
    for name in ("ssa_nrt_create", "ssa_nrt_noop", "ssa_nrt_change", "ssa_nrt_other_same"):
        versions.append((await api.replay("writes", name)).json()["metadata"]["resourceVersion"])
    assert versions[0] == versions[1]
    assert len(set(versions)) == 3


async def test_managed_fields_of_an_applied_topology(api: Api) -> None:
    made = (await api.replay("writes", "ssa_nrt_create")).json()["metadata"]["managedFields"][0]
    real = recordings("writes")["ssa_nrt_create"]["response"]["body"]["metadata"]["managedFields"][
        0
    ]
    assert {**made, "time": ""} == {**real, "time": ""}


async def test_a_custom_resource_takes_merge_and_json_patches_and_guarded_puts(api: Api) -> None:
    for name in ("ssa_nrt_create", "ssa_nrt_change", "ssa_nrt_force"):
        await api.replay("writes", name)
    for name in (
        "crd_strategic_merge_415",
        "err_415_patch_application_json_crd",
        "crd_merge_patch",
        "crd_json_patch",
        "crd_json_patch_test_fail",
        "crd_merge_patch_missing_404",
        "crd_put_no_rv",
        "crd_put_stale_409",
        "crd_status_404",
        "crd_invalid_422",
        "crd_bad_quantity_422",
        "crd_create_no_zones_422",
        "crd_delete",
    ):
        await api.same("writes", name)


async def test_patches_of_a_pod_and_of_its_status(api: Api) -> None:
    await api.pod("s1", labels={"a": "b"})
    for name in (
        "pod_merge_patch",
        "pod_merge_patch_noop",
        "pod_patch_stale_rv_409",
        "pod_patch_wrong_uid",
        "pod_put_missing_404",
        "pod_spec_immutable_422",
        "pod_status_condition_strategic",
        "pod_status_condition_strategic_second",
        "pod_status_condition_merge",
        "pod_status_ssa_condition",
        "pod_status_via_main_resource",
        "pod_spec_via_status",
        "pod_status_get",
        "pod_resize_subresource",
        "pod_scale_404",
    ):
        await api.same("writes", name)


async def test_a_patch_without_effect_makes_no_version(api: Api) -> None:
    await api.pod("s1", labels={"a": "b"})
    first = (await api.replay("writes", "pod_merge_patch")).json()["metadata"]["resourceVersion"]
    again = (await api.replay("writes", "pod_merge_patch_noop")).json()["metadata"][
        "resourceVersion"
    ]
    assert first == again == str(api.store.version)


async def test_events_in_both_api_forms(api: Api) -> None:
    for name in (
        "event_core_create",
        "event_core_minimal",
        "event_core_patch_count",
        "event_core_read_as_v1",
        "event_v1_create",
        "event_v1_read_as_core",
        "event_v1_patch_series",
        "event_core_no_involved_422",
        "event_core_eventTime_needs_more_422",
        "event_v1_bad_type",
        "event_v1_note_too_long",
        "event_v1_ns_mismatch",
        "event_v1_without_action",
        "event_v1_without_eventTime",
        "event_v1_without_reason",
        "event_v1_without_regarding",
        "event_v1_without_reportingController",
        "event_v1_without_reportingInstance",
        "event_v1_without_type",
    ):
        await api.same("writes", name)


async def test_events_are_selected_by_their_object(api: Api) -> None:
    for name in ("event_core_create", "event_core_minimal", "event_v1_create"):
        await api.replay("writes", name)
    path = "/api/v1/namespaces/apirec/events?fieldSelector=involvedObject.name%3Ds1"
    assert len((await api.ask("GET", path)).json()["items"]) == 3
    listed = (await api.replay("writes", "events_v1_list_fs")).json()
    real: dict[str, Any] = recordings("writes")["events_v1_list_fs"]["response"]["body"]
    assert [item["note"] for item in listed["items"]] == [item["note"] for item in real["items"]]
    assert "continue" in listed["metadata"]
    assert "remainingItemCount" not in listed["metadata"]


async def test_leases(api: Api) -> None:
    await api.same("writes", "lease_get_404")
    made = (await api.same("writes", "lease_create")).json()
    live = {'"1997"': f'"{made["metadata"]["resourceVersion"]}"'}
    await api.same("writes", "lease_create_again_409")
    await api.same("writes", "lease_update", live)
    for name in (
        "lease_update_stale_409",
        "lease_update_no_rv_422",
        "lease_time_without_micros_400",
        "lease_bad_422",
        "lease_put_creates",
    ):
        await api.same("writes", name)


async def test_nodes(api: Api) -> None:
    await api.same("reads_and_errors", "node_create_gets_not_ready_taint")
    second = recordings("writes")["node_put_stale_409"]["request"]["body"]
    await api.ask("POST", "/api/v1/nodes", {**second, "metadata": {"name": "rec-n2"}})
    await api.same("writes", "node_put_stale_409")
    patched = (await api.replay("writes", "node_heartbeat_status_patch")).json()
    real = recordings("writes")["node_heartbeat_status_patch"]["response"]["body"]
    assert patched["status"]["conditions"] == real["status"]["conditions"]
