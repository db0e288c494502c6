"""Intent, call, outcome, over real HTTP: lost answers, conflicts, crashes between, and two binders
at one log.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from services.binder import core
from services.binder.core import stream_of
from services.binder.handlers import ROLE, Binder
from shared.eventlog.port import Appended, Commit, Conflict, Lease, Outcome, Place
from shared.events import binding_events as binding
from shared.events.codec import decode
from shared.events.envelope import Envelope
from shared.events.scheduling_events import PodVerdictChanged, ReservationWithdrawn
from shared.kube.port import Answer, Lost
from shared.runtime.clock import SYSTEM_CLOCK
from shared.telemetry import instruments, names
from tests.binder.words import SETTINGS, Call, Cluster, lost_after, lost_before, times
from tests.runtime.helpers import until
from tests.simulator.conftest import api  # noqa: F401 - fixture
from tests.simulator.contract import Api


@pytest.fixture
async def cluster(api: Api) -> AsyncIterator[Cluster]:  # noqa: F811, RUF100
    test_cluster = Cluster(api)
    yield test_cluster
    await test_cluster.kube.close()


async def test_a_reserved_pod_is_bound_with_its_placement_in_one_call(cluster: Cluster) -> None:
    uid = await cluster.reserved()
    async with cluster.binder():
        assert await cluster.ended_with(uid, "PodBound") == ["BindIntended", "PodBound"]
    pod = await cluster.stands()
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"]["annotations"] == {
        "topolog.io/placement": "c=0",
        "topolog.io/reserved-at": "2",
    }
    assert cluster.kube.binds == [("a", "n1")]


async def test_many_pods_are_each_called_once(cluster: Cluster) -> None:
    uids = [await cluster.reserved(f"p{number}") for number in range(60)]
    async with cluster.binder():
        for uid in uids:
            assert await cluster.ended_with(uid, "PodBound") == ["BindIntended", "PodBound"]
    assert sorted(cluster.kube.binds) == sorted((f"p{number}", "n1") for number in range(60))


async def test_a_lost_answer_is_settled_by_reading_the_pod(cluster: Cluster) -> None:
    cluster.kube.fault = times(1, lost_after)
    uid = await cluster.reserved()
    async with cluster.binder():
        await cluster.ended_with(uid, "PodBound")
    assert (await cluster.events(uid))[-1] == binding.PodBound(uid, "n1", 1, found=True)


async def test_a_lost_request_is_sent_again_to_the_same_node_only(cluster: Cluster) -> None:
    cluster.kube.fault = times(5, lost_before)
    uid = await cluster.reserved()
    async with cluster.binder():
        kinds = await cluster.ended_with(uid, "PodBound")
    assert set(cluster.kube.binds) == {("a", "n1")}
    assert len(cluster.kube.binds) == 6
    assert kinds == ["BindIntended", *["BindUncertain"] * 3, "PodBound"], (
        "the 1st, 2nd and 4th uncertainty are facts"
    )


async def test_an_api_that_is_away_keeps_the_charge_and_the_intent(cluster: Cluster) -> None:
    async def away(_call: Call) -> Answer | Lost:
        return Answer(503, "ServiceUnavailable", "starting")

    cluster.kube.fault = away
    uid = await cluster.reserved()
    async with cluster.binder():
        await until(lambda: len(cluster.kube.binds) > 3)
        assert "BindRefused" not in await cluster.kinds(uid)
        assert bindings_open() == 1, "the alert TopologBindingsOpen looks at it"
        cluster.kube.fault = None
        await cluster.ended_with(uid, "PodBound")
        await until(lambda: bindings_open() == 0)


def bindings_open() -> float:
    return instruments._values_of(names.BINDINGS_OPEN).values[()]


async def test_a_pod_on_another_node_is_refused_with_its_name(cluster: Cluster) -> None:
    uid = await cluster.reserved()
    body = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n9"}}
    await cluster.api.ask("POST", "/api/v1/namespaces/apirec/pods/a/binding", body)
    async with cluster.binder():
        await cluster.ended_with(uid, "BindRefused")
    refused = (await cluster.events(uid))[-1]
    assert isinstance(refused, binding.BindRefused)
    assert (refused.cause, refused.message.split(":")[0]) == ("other_node", "bound to n9")


async def test_a_pod_bound_to_our_node_by_an_earlier_call_is_success(cluster: Cluster) -> None:
    uid = await cluster.reserved()
    body = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}
    await cluster.api.ask("POST", "/api/v1/namespaces/apirec/pods/a/binding", body)
    async with cluster.binder():
        await cluster.ended_with(uid, "PodBound")
    assert (await cluster.events(uid))[-1] == binding.PodBound(uid, "n1", 1, found=True)


async def test_another_pod_of_the_name_is_not_bound(cluster: Cluster) -> None:
    uid = await cluster.reserved()
    await cluster.api.ask("DELETE", "/api/v1/namespaces/apirec/pods/a?gracePeriodSeconds=0")
    await cluster.api.pod("a")
    async with cluster.binder():
        await cluster.ended_with(uid, "BindRefused")
    refused = (await cluster.events(uid))[-1]
    assert isinstance(refused, binding.BindRefused)
    assert refused.cause == "other_uid"
    assert "nodeName" not in (await cluster.stands())["spec"]


async def test_a_pod_that_is_gone_is_refused(cluster: Cluster) -> None:
    uid = await cluster.reserved()
    await cluster.api.ask("DELETE", "/api/v1/namespaces/apirec/pods/a?gracePeriodSeconds=0")
    async with cluster.binder():
        await cluster.ended_with(uid, "BindRefused")
    assert isinstance(refused := (await cluster.events(uid))[-1], binding.BindRefused)
    assert refused.cause == "gone"


async def test_a_terminating_pod_that_a_finalizer_holds_is_refused_at_once(
    cluster: Cluster,
) -> None:
    """The API server answers 409 for a pod with a deletionTimestamp, as long as a finalizer holds
    it: nothing is to wait for.
    """
    uid = await cluster.reserved()
    finalizer = [{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/hold"]}]
    patch = {"Content-Type": "application/json-patch+json"}
    path = "/api/v1/namespaces/apirec/pods/a"
    assert (await cluster.api.ask("PATCH", path, finalizer, patch)).status_code == 200
    await cluster.api.ask("DELETE", path)
    async with cluster.binder():
        assert await cluster.ended_with(uid, "BindRefused") == ["BindIntended", "BindRefused"]
    assert isinstance(refused := (await cluster.events(uid))[-1], binding.BindRefused)
    said = (
        'Operation cannot be fulfilled on pods/binding "a": pod a is being deleted, '
        "cannot be assigned to a host"
    )
    assert (refused.cause, refused.message) == ("terminating", said)
    assert len(cluster.kube.binds) == 1
    assert (await cluster.stands())["metadata"]["deletionTimestamp"]


async def test_a_restart_finds_the_intent_and_settles_it(cluster: Cluster) -> None:
    released = asyncio.Event()

    async def hang(_call: Call) -> Answer | Lost:
        released.set()
        await asyncio.Event().wait()
        return Lost("never")

    cluster.kube.fault = hang
    uid = await cluster.reserved()
    async with cluster.binder():
        await released.wait()
    assert await cluster.kinds(uid) == ["BindIntended"]
    cluster.kube.fault = None
    async with cluster.binder():
        assert await cluster.ended_with(uid, "PodBound") == ["BindIntended", "PodBound"]


async def test_a_crash_between_call_and_outcome_binds_once(cluster: Cluster) -> None:
    called = asyncio.Event()

    async def die_after(call: Call) -> Answer | Lost:
        await call()
        called.set()
        await asyncio.Event().wait()
        return Lost("never")

    cluster.kube.fault = die_after
    uid = await cluster.reserved()
    async with cluster.binder():
        await called.wait()
    cluster.kube.fault = None
    async with cluster.binder():
        await cluster.ended_with(uid, "PodBound")
    assert (await cluster.events(uid))[-1] == binding.PodBound(uid, "n1", 1, found=True)


async def test_two_binders_make_one_intent_and_one_outcome(cluster: Cluster) -> None:
    uids = [await cluster.reserved(f"p{number}") for number in range(10)]
    async with cluster.binder(), cluster.binder():
        for uid in uids:
            assert await cluster.ended_with(uid, "PodBound") == ["BindIntended", "PodBound"]


async def test_intent_and_withdrawal_compete_by_version(cluster: Cluster) -> None:
    """The second append at version 2 of the pod's stream is a conflict, and leaves nothing."""
    uid = await cluster.reserved()
    first = await cluster.tell(stream_of(uid), ReservationWithdrawn(uid, "n1", "node_ended"), 2)
    second = await cluster.tell(
        stream_of(uid), binding.BindIntended(uid, "apirec", "a", "n1", 2), 2
    )
    assert isinstance(first, Appended)
    assert isinstance(second, Conflict)
    async with cluster.binder():
        await asyncio.sleep(0.2)
        assert await cluster.kinds(uid) == ["ReservationWithdrawn"]
    assert cluster.kube.binds == []


async def test_an_intent_made_before_a_withdrawal_was_seen_is_not_appended_after_it(
    cluster: Cluster,
) -> None:
    uid = await cluster.reserved()
    state = core.initial()
    for envelope in await cluster.log.read(0):
        core.evolve(state, envelope, decode(envelope))
    behind = cast(Any, SimpleNamespace(state=state, place=Place(), position=2))
    late = Binder(cluster.log, cluster.kube, behind, SETTINGS, SYSTEM_CLOCK)
    await cluster.tell(stream_of(uid), ReservationWithdrawn(uid, "n1", "node_ended"), 2)
    await late._intend(Lease(ROLE, "late", 1))
    assert await cluster.kinds(uid) == ["ReservationWithdrawn"]


async def test_people_see_an_event_for_the_binding_and_a_condition_for_the_refusal(
    cluster: Cluster,
) -> None:
    uid = await cluster.reserved()
    waits = await cluster.reserved("b")
    await cluster.tell(stream_of(waits), ReservationWithdrawn(waits, "n1", "node_ended"))

    async def events() -> set[tuple[str, str]]:
        items = (await cluster.api.ask("GET", "/api/v1/namespaces/apirec/events")).json()["items"]
        return {(event["involvedObject"]["name"], event["reason"]) for event in items}

    async with cluster.binder(announce=True):
        await cluster.ended_with(uid, "PodBound")
        await cluster.tell(
            stream_of(waits), PodVerdictChanged(waits, "0/2 nodes: 2 no zone with 9 cpu free")
        )
        async with asyncio.timeout(10):
            while await events() != {("a", "Scheduled"), ("b", "FailedScheduling")}:  # noqa: ASYNC110 - written in the background
                await asyncio.sleep(0.02)
    conditions = (await cluster.stands("b"))["status"]["conditions"]
    (scheduled_condition,) = [
        condition for condition in conditions if condition["type"] == "PodScheduled"
    ]
    assert (scheduled_condition["status"], scheduled_condition["reason"]) == (
        "False",
        "Unschedulable",
    )
    assert scheduled_condition["message"] == "0/2 nodes: 2 no zone with 9 cpu free"


async def test_no_pod_is_bound_again_before_its_outcome_is_folded(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome of pod a comes while intents are appended, and the fold has not reached it."""
    answer_a, appended_intents, folded_again = asyncio.Event(), asyncio.Event(), asyncio.Event()
    appending: list[str] = []
    append, read = cluster.log.append, cluster.log.read

    async def bind_slowly(call: Call) -> Answer | Lost:
        answer = await call()
        await answer_a.wait()
        return answer

    async def append_intents_slowly(commits: Sequence[Commit]) -> list[Outcome]:
        appending.extend(commit.commit_id for commit in commits)
        if commits[0].commit_id.startswith("intent/"):
            await appended_intents.wait()
        return await append(commits)

    async def read_later(*arguments: Any, **options: Any) -> list[Envelope]:
        await folded_again.wait()
        return await read(*arguments, **options)

    cluster.kube.fault = bind_slowly
    await cluster.reserved("a")
    async with cluster.binder():
        await until(lambda: cluster.kube.binds)
        monkeypatch.setattr(cluster.log, "append", append_intents_slowly)
        await cluster.reserved("b")
        await until(lambda: any(name.startswith("intent/") for name in appending))
        monkeypatch.setattr(cluster.log, "read", read_later)
        answer_a.set()
        await until(lambda: any(name.startswith("PodBound/") for name in appending))
        appended_intents.set()
        await asyncio.sleep(0.3)
        assert [name for name, _ in cluster.kube.binds].count("a") == 1
        folded_again.set()
