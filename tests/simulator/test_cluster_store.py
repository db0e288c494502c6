"""The in-process face: subscriptions, kubelet calls, and resuming from the journal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from services.simulator.api.cluster_store import ClusterStore, WatchLaggedError
from services.simulator.api.core.refusals import Refusal
from services.simulator.api.core.removal import Deleted
from services.simulator.api.core.store import Entry
from services.simulator.api.journal import JournalError
from services.simulator.api.settings import ApiSettings

POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


async def test_a_subscription_gives_existing_and_later_events() -> None:
    store = ClusterStore()
    store.create("pods", POD, "default")
    events = store.watch("pods", field_selector="spec.nodeName=n1")
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    store.bind("p", "default", "n1")
    first = await waiting
    assert (first.type, first.obj["spec"]["nodeName"]) == ("ADDED", "n1")
    store.delete("pods", "p", "default", grace_s=0)
    assert (await anext(events)).type == "MODIFIED"
    assert (await anext(events)).type == "DELETED"
    await events.aclose()  # type: ignore[attr-defined]
    assert not [
        listener for listener in store.core.shelf("pods").listeners if "on_change" in repr(listener)
    ]


async def test_a_subscriber_that_sleeps_must_list_again() -> None:
    store = ClusterStore(ApiSettings(watch_backlog_lines=5))
    events = store.watch("pods")
    store.create("pods", POD, "default")
    assert (await anext(events)).type == "ADDED"
    for index in range(9):
        store.patch(
            "pods", "p", "default", {"metadata": {"labels": {"i": str(index)}}}, form="merge"
        )
    with pytest.raises(WatchLaggedError, match="list and watch again"):
        await anext(events)


def test_a_status_post_for_a_dead_namesake_is_refused() -> None:
    store = ClusterStore()
    first = store.create("pods", POD, "default")
    assert isinstance(first, Entry)
    store.delete("pods", "p", "default")
    store.create("pods", POD, "default")
    refused = store.patch_status("pods", "p", "default", {"phase": "Running"}, uid=first.uid)
    assert isinstance(refused, Refusal)
    refused = store.replace_status("pods", "p", "default", {"phase": "Running"}, uid=first.uid)
    assert isinstance(refused, Refusal)
    gone = store.delete("pods", "p", "default", grace_s=0, uid=first.uid)
    assert isinstance(gone, Refusal)
    assert gone.code == 409


def test_a_whole_status_replaces_conditions_and_keeps_the_qos_class() -> None:
    store = ClusterStore()
    store.create("pods", POD, "default")
    store.bind("p", "default", "n1")
    failed = store.replace_status(
        "pods", "p", "default", {"phase": "Failed", "reason": "TopologyAffinityError"}
    )
    assert isinstance(failed, Entry)
    assert failed.obj["status"] == {
        "phase": "Failed",
        "reason": "TopologyAffinityError",
        "qosClass": "BestEffort",
    }
    gone = store.delete("pods", "p", "default")
    assert isinstance(gone, Deleted)
    assert gone.is_removed


def _contents(store: ClusterStore) -> dict[str, dict[tuple[str, str], object]]:
    return {
        storage: {entry.key: entry.obj for entry in store.list(storage)}
        for storage in ("pods", "namespaces", "nodes")
    }


def test_a_restart_resumes_objects_and_versions(tmp_path: Path) -> None:
    path = tmp_path / "api" / "journal"
    store = ClusterStore(journal_path=path)
    for name in ("a", "b", "c"):
        store.create("pods", {**POD, "metadata": {"name": name}}, "default")
    store.bind("a", "default", "n1")
    store.delete("pods", "c", "default")
    contents_before, version = _contents(store), store.version
    store.close()
    again = ClusterStore(journal_path=path)
    assert (_contents(again), again.version) == (contents_before, version)
    again.create("nodes", {"metadata": {"name": "n1"}})
    assert again.version == version + 1
    again.close()
    third = ClusterStore(journal_path=path)
    assert _contents(third) == _contents(again)


def test_two_clusters_never_share_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    store = ClusterStore(journal_path=path)
    with pytest.raises(JournalError, match="another process has this cluster open"):
        ClusterStore(journal_path=path)
    store.close()
    ClusterStore(journal_path=path).close()


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    store = ClusterStore(journal_path=path)
    store.create("pods", POD, "default")
    contents_before = _contents(store)
    store.close()
    with path.open("ab") as file:
        file.write(b'P\tpods\t{"metadata":{"name":"torn"')
    assert _contents(ClusterStore(journal_path=path)) == contents_before


def test_a_broken_journal_is_refused_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"V\t1\nP\tpods\tnot json\n")
    with pytest.raises(JournalError, match=r"line 2 .* remove it to start with an empty cluster"):
        ClusterStore(journal_path=path)


def test_a_journal_is_compacted_at_start(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    store = ClusterStore(journal_path=path)
    store.create("pods", POD, "default")
    for index in range(200):
        store.patch(
            "pods", "p", "default", {"metadata": {"labels": {"i": str(index)}}}, form="merge"
        )
    grown = path.stat().st_size
    store.close()
    ClusterStore(journal_path=path).close()
    assert path.stat().st_size < grown / 10


def test_an_unknown_resource_is_named() -> None:
    with pytest.raises(KeyError, match=r"no resource 'podz'; there are: .*pods"):
        ClusterStore().list("podz")


def test_a_bad_selector_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"field label not supported: spec\.x"):
        ClusterStore().list("pods", field_selector="spec.x=1")
