"""Lists, pages, watches and errors answer as the real server did."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
import yaml

from tests.simulator.contract import Api, body_of, differences, normal, recordings

READS = "reads_and_errors"


async def _pages(api: Api) -> None:
    for index in range(6):
        await api.pod(f"pg{index}", labels={"app": "page", "n": str(index)})


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name in recordings(READS)
        if name.startswith("err_")
        and name not in ("err_413_body_over_3MiB", "err_422_annotations_too_long")
    ),
)
async def test_errors_are_worded_as_the_real_ones(api: Api, name: str) -> None:
    await _pages(api)
    await api.same(READS, name)


@pytest.mark.parametrize(
    ("name", "size"),
    [("err_413_body_over_3MiB", 3_300_000), ("err_422_annotations_too_long", 263_000)],
)
async def test_bodies_and_annotations_are_bounded(api: Api, name: str, size: int) -> None:
    body = json.loads(json.dumps(recordings(READS)[name]["request"]["body"]))
    body["metadata"]["annotations"]["a"] = "x" * size
    answer = await api.ask("POST", "/api/v1/namespaces/apirec/pods", body)
    wanted = recordings(READS)[name]["response"]
    assert (answer.status_code, answer.json()) == (wanted["status"], wanted["body"])


@pytest.mark.parametrize(
    "name",
    [
        "get_pod",
        "list_accept_any",
        "list_accept_yaml",
        "list_empty",
        "list_fs_metadata_name",
        "list_fs_nodeName_and_phase",
        "list_fs_nodeName_empty",
        "list_fs_schedulerName",
        "list_fs_unsupported",
        "list_in_missing_namespace_200",
        "list_ls_bad",
        "list_ls_in",
        "list_no_accept",
        "list_partial_metadata",
        "list_pods",
        "list_pods_rv0",
        "list_pods_rv_bad",
        "list_pods_rv_match_without_rv",
        "list_pretty_browser_ua",
        "get_pod_rv_future",
        "list_pods_rv_future",
        "readyz",
        "apis_group_version",
        "watch_rv_bad",
        "watch_list_no_rvmatch",
    ],
)
async def test_reads(api: Api, name: str) -> None:
    await _pages(api)
    wanted = recordings(READS)[name]["response"]
    answer = await api.replay(READS, name)
    assert answer.status_code == wanted["status"], answer.text
    ours, real = normal(body_of(answer)), normal(wanted["body"])
    if isinstance(real, str):
        ours, real = normal(yaml.safe_load(ours)), normal(yaml.safe_load(real))
    if isinstance(real, str):
        assert ours == real
        return
    for body in (ours, real):
        for resource in body.get("resources", []):
            resource.pop("storageVersionHash", None)
    _only_paged_pods(ours, real)
    assert differences(ours, real) == []


def _only_paged_pods(*bodies: dict[str, object]) -> None:
    """The recorder's namespace held pods of other sections too: compare those of this one."""
    for body in bodies:
        items = body.get("items")
        if isinstance(items, list):
            body["items"] = [item for item in items if item["metadata"]["name"].startswith("pg")]


async def test_pages_carry_one_version_and_a_continue_token(api: Api) -> None:
    await _pages(api)
    first = (await api.ask("GET", "/api/v1/namespaces/apirec/pods?limit=2")).json()
    assert first["metadata"]["remainingItemCount"] == 4
    await api.ask("DELETE", "/api/v1/namespaces/apirec/pods/pg2")
    await api.pod("pg9")
    token = first["metadata"]["continue"]
    second = (
        await api.ask("GET", f"/api/v1/namespaces/apirec/pods?limit=2&continue={token}")
    ).json()
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    token = second["metadata"]["continue"]
    last = (await api.ask("GET", f"/api/v1/namespaces/apirec/pods?limit=2&continue={token}")).json()
    names = [item["metadata"]["name"] for page in (first, second, last) for item in page["items"]]
    assert names == [f"pg{index}" for index in range(6)]
    assert "continue" not in last["metadata"]
    assert "remainingItemCount" not in last["metadata"]


async def test_the_recorded_continue_token_is_understood(api: Api) -> None:
    """Tokens have the real server's form: a recorded one leads to the recorded page once its
    version is ours.
    """
    await _pages(api)
    token = json.loads(
        base64.b64decode(
            recordings(READS)["list_pods_limit2_page1"]["response"]["body"]["metadata"]["continue"]
            + "=="
        )
    )
    token["rv"] = api.store.version
    ours = base64.b64encode(json.dumps(token).encode()).decode().rstrip("=")
    page = (await api.ask("GET", f"/api/v1/namespaces/apirec/pods?limit=2&continue={ours}")).json()
    real = recordings(READS)["list_pods_limit2_page2"]["response"]["body"]
    assert [item["metadata"]["name"] for item in page["items"]] == [
        item["metadata"]["name"] for item in real["items"]
    ]


@pytest.mark.parametrize("token", ["garbage", "e30", "bnVsbA", "%00%01"])
async def test_a_garbage_token_is_a_bad_request(api: Api, token: str) -> None:
    answer = await api.ask("GET", f"/api/v1/namespaces/apirec/pods?limit=2&continue={token}")
    assert answer.status_code == 400
    assert answer.json()["message"].startswith("invalid continue token")


async def test_version_zero_ignores_the_limit(api: Api) -> None:
    await _pages(api)
    body = (await api.ask("GET", "/api/v1/namespaces/apirec/pods?resourceVersion=0&limit=2")).json()
    assert len(body["items"]) == 6
    assert "continue" not in body["metadata"]


async def test_an_exact_list_shows_the_past(api: Api) -> None:
    await _pages(api)
    past = api.store.version
    await api.ask("DELETE", "/api/v1/namespaces/apirec/pods/pg0")
    answer = await api.ask(
        "GET", f"/api/v1/namespaces/apirec/pods?resourceVersion={past}&resourceVersionMatch=Exact"
    )
    assert [item["metadata"]["name"] for item in answer.json()["items"]] == [
        f"pg{index}" for index in range(6)
    ]
    assert answer.json()["metadata"]["resourceVersion"] == str(past)


@pytest.mark.parametrize(
    "name",
    [
        "create_without_kind_201",
        "create_generateName",
        "default_validation_unknown_field",
        "warn_unknown_field",
    ],
)
async def test_creates(api: Api, name: str) -> None:
    await api.same(READS, name)


async def test_nothing_is_created_in_a_terminating_namespace(api: Api) -> None:
    await api.bound_pod("stays")
    gone = await api.ask("DELETE", "/api/v1/namespaces/apirec")
    assert gone.json()["status"] == {"phase": "Terminating"}
    await api.same(READS, "create_in_terminating_namespace_403")
    await api.ask("DELETE", "/api/v1/namespaces/apirec/pods/stays", {"gracePeriodSeconds": 0})
    assert (await api.ask("GET", "/api/v1/namespaces/apirec")).status_code == 404


async def test_an_expired_token_is_refused_with_one_that_works(api: Api) -> None:
    await _pages(api)
    token = (await api.ask("GET", "/api/v1/namespaces/apirec/pods?limit=2")).json()["metadata"][
        "continue"
    ]
    _forget(api)
    refused = await api.ask("GET", f"/api/v1/namespaces/apirec/pods?limit=2&continue={token}")
    wanted = recordings(READS)["list_expired_continue_410"]["response"]
    assert refused.status_code == 410
    assert differences(normal(refused.json()), normal(wanted["body"])) == []
    again = await api.ask(
        "GET",
        f"/api/v1/namespaces/apirec/pods?limit=2&continue={refused.json()['metadata']['continue']}",
    )
    assert [item["metadata"]["name"] for item in again.json()["items"]] == ["pg2", "pg3"]
    exact = "/api/v1/namespaces/apirec/pods?resourceVersion=1&resourceVersionMatch=Exact"
    assert (await api.ask("GET", exact)).json() == recordings(READS)["list_exact_too_old_410"][
        "response"
    ]["body"]


def _forget(api: Api) -> None:
    """Push everything so far out of the history of pods."""
    for index in range(api.store.settings.history_limit + 1):
        api.store.patch(
            "pods", "pg4", "apirec", {"metadata": {"annotations": {"i": str(index)}}}, form="merge"
        )


async def test_a_watch_from_a_forgotten_version_gets_one_410_event(api: Api) -> None:
    await _pages(api)
    _forget(api)
    events = await api.watch(
        "/api/v1/namespaces/apirec/pods?watch=1&resourceVersion=1&timeoutSeconds=3"
    )
    real = recordings(READS)["watch_too_old"]["response"]["body"]
    assert differences(normal(events), normal(real)) == []


WATCHES = (
    "watch_no_rv",
    "watch_rv0",
    "watch_single_by_fieldSelector",
    "watch_deprecated_path",
    "watch_list_no_bookmarks",
    "watch_list_sendInitialEvents",
    "watch_partial_metadata",
    "watch_rv_future",
)


async def test_watches_begin_with_existing_objects(api: Api) -> None:
    """All at once, because each takes at least the second that its timeout is."""
    await _pages(api)
    differing = await asyncio.gather(*(_differences_of_watch(api, name) for name in WATCHES))
    assert dict(zip(WATCHES, differing, strict=True)) == {name: [] for name in WATCHES}


async def _differences_of_watch(api: Api, name: str) -> list[str]:
    request = recordings(READS)[name]["request"]
    path = (
        request["path"]
        .replace("timeoutSeconds=2", "timeoutSeconds=1")
        .replace("timeoutSeconds=3", "timeoutSeconds=1")
    )
    path = path.replace("timeoutSeconds=4", "timeoutSeconds=1")
    answer = await api.ask("GET", path, headers={"Accept": request["headers"]["Accept"]})
    events = [json.loads(line) for line in answer.text.splitlines()]
    real = recordings(READS)[name]["response"]["body"]
    if name == "watch_list_sendInitialEvents":
        events = events[: len(real)]
    return differences(normal(events), normal(real))


async def test_a_table_watch_has_columns_in_its_first_event_only(api: Api) -> None:
    await _pages(api)
    request = recordings(READS)["watch_table"]["request"]
    answer = await api.ask(
        "GET",
        request["path"].replace("Seconds=2", "Seconds=1"),
        headers={"Accept": request["headers"]["Accept"]},
    )
    ours = [json.loads(line) for line in answer.text.splitlines()]
    real = recordings(READS)["watch_table"]["response"]["body"]
    for event in [*ours, *real]:
        for column in event["object"]["columnDefinitions"] or []:
            del column["description"]
        for row in event["object"]["rows"]:
            row["cells"][4] = "AGE"
    assert differences(normal(ours), normal(real)) == []


@pytest.mark.parametrize(
    ("name", "node"), [("watch_fs_nodeName_empty", ""), ("watch_fs_nodeName_node", "rec-n1")]
)
async def test_binding_leaves_one_selection_and_enters_another(
    api: Api, name: str, node: str
) -> None:
    version_before = api.store.version
    await api.bound_pod("w2", "rec-n1", labels={"w": "b"})
    await api.ask("DELETE", "/api/v1/namespaces/apirec/pods/w2")
    await api.ask("DELETE", "/api/v1/namespaces/apirec/pods/w2", {"gracePeriodSeconds": 0})
    where = f"fieldSelector=spec.nodeName%3D{node}&labelSelector=w%3Db"
    events = await api.watch(
        f"/api/v1/namespaces/apirec/pods?watch=1&resourceVersion={version_before}&{where}&timeoutSeconds=1"
    )
    real = recordings(READS)[name]["response"]["body"]
    assert differences(normal(events), normal(real)) == []


async def test_a_label_selector_watch_sees_leaving_and_coming_back(api: Api) -> None:
    version_before = api.store.version
    pods = "/api/v1/namespaces/apirec/pods"
    merge = {"Content-Type": "application/merge-patch+json"}
    await api.pod("w1", labels={"w": "1"})
    for metadata in (
        {"annotations": {"k": "v"}},
        {"annotations": {"k": "v"}},
        {"labels": {"w": "2"}},
        {"labels": {"w": "1"}},
    ):
        await api.ask("PATCH", f"{pods}/w1", {"metadata": metadata}, merge)
    await api.ask("DELETE", f"{pods}/w1")
    events = await api.watch(
        f"{pods}?watch=1&resourceVersion={version_before}&labelSelector=w%3D1&timeoutSeconds=1"
    )
    real = recordings(READS)["watch_rv_labelSelector"]["response"]["body"]
    assert differences(normal(events), normal(real)) == []


async def test_quiet_watches_get_bookmarks(api: Api) -> None:
    where = "/api/v1/namespaces/apirec/pods?watch=1&allowWatchBookmarks=true&timeoutSeconds=1"
    events = await api.watch(f"{where}&resourceVersion={api.store.version}")
    real = recordings(READS)["watch_bookmarks_75s"]["response"]["body"][0]
    assert len(events) >= 2
    for event in events:
        assert differences(normal(event), normal(real)) == []
