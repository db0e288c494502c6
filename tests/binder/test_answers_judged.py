"""Definite answers are never asked for again; servers that come back are noticed; one slow eviction holds up nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from shared.events import binding_facts as binding
from shared.kube.port import Answer, Lost
from tests.binder import words
from tests.binder.test_core import NO_RIGHT, POLICY
from tests.binder.test_evictions import Scene
from tests.binder.words import Call, Cluster
from tests.runtime.helpers import until
from tests.simulator.conftest import api  # noqa: F401 - fixture
from tests.simulator.contract import Api


@pytest.fixture
async def cluster(api: Api) -> AsyncIterator[Cluster]:  # noqa: F811
    made = Cluster(api)
    yield made
    await made.kube.close()


def always(answer: Answer) -> object:
    async def said(_call: Call) -> Answer | Lost:
        return answer

    return said


@pytest.mark.parametrize(
    ("answer", "cause", "remedy"),
    [
        (Answer(422, "Invalid", POLICY), "denied", "set aside"),
        (Answer(403, "Forbidden", NO_RIGHT), "forbidden", "`create` on `pods/binding`"),
        (Answer(400, "BadRequest", "no"), "invalid", "binder's log"),
    ],
)
async def test_a_no_to_the_request_is_one_call_one_fact_one_event_with_its_remedy(
    cluster: Cluster, answer: Answer, cause: str, remedy: str
) -> None:
    cluster.kube.fault = always(answer)  # type: ignore[assignment]
    uid = await cluster.reserved()
    async with cluster.binder(announce=True):
        assert await cluster.ended_with(uid, "BindRefused") == ["BindIntended", "BindRefused"]
        path = "/api/v1/namespaces/apirec/events"
        async with asyncio.timeout(5):
            while not (events := (await cluster.api.ask("GET", path)).json()["items"]):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await until(lambda: len(cluster.kube.binds) == 1)
    refused = (await cluster.facts(uid))[-1]
    assert isinstance(refused, binding.BindRefused)
    assert (refused.cause, refused.message) == (cause, answer.message)
    assert [event["reason"] for event in events] == ["FailedScheduling"]
    assert remedy in events[0]["message"]
    (condition,) = (await cluster.stands())["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulerError")


async def test_who_waited_for_a_server_that_was_away_goes_when_it_answers_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it each would sit out a wait of a minute."""
    settings = msgspec.structs.replace(words.SETTINGS, resend_after_s=0.2, resend_at_most_every_s=60.0)
    monkeypatch.setattr(words, "SETTINGS", settings)

    async def away(_call: Call) -> Answer | Lost:
        return Lost("nobody answers")

    cluster.kube.fault = away
    uids = [await cluster.reserved(f"p{number}") for number in range(6)]
    async with cluster.binder() as binder:
        await until(lambda: len(cluster.kube.binds) >= 6)
        for due in binder._due.values():
            due.at_s += 60.0
        cluster.kube.fault = None
        for uid in uids:
            await cluster.ended_with(uid, "PodBound")


async def test_a_server_that_names_a_time_is_left_alone_so_long(cluster: Cluster) -> None:
    cluster.kube.fault = always(Answer(429, "TooManyRequests", "later", retry_after_s=60.0))  # type: ignore[assignment]
    await cluster.reserved()
    async with cluster.binder() as binder:
        await until(lambda: bool(binder._due))
        await asyncio.sleep(0.2)
        assert len(cluster.kube.binds) == 1


async def test_one_eviction_that_is_answered_late_does_not_hold_up_the_others() -> None:
    """The real server answers the eviction of a Pending pod with another uid after 10.0 s."""
    scene = Scene()
    prompt, stuck = scene.api.evict, asyncio.Event()

    async def evict(namespace: str, name: str, uid: str, dry_run: bool = False) -> Answer | Lost:
        if name == "a" and not dry_run:
            await stuck.wait()
        return await prompt(namespace, name, uid, dry_run)

    scene.api.evict = evict  # type: ignore[method-assign]
    await scene.nominate("a", "b")
    async with scene.leading():
        await until(lambda: "b" in scene.api.evicted)
        assert "a" not in scene.api.evicted
        stuck.set()
        await until(lambda: "a" in scene.api.evicted)
