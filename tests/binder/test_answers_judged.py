"""A binding with a definite answer is not sent again. The binder notices when a server answers
again. A slow eviction delays no other eviction.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest
import structlog

from services.binder import handlers
from shared.events import binding_events as binding
from shared.kube.port import Answer, Lost
from shared.telemetry import names
from tests.binder import words
from tests.binder.test_core import NO_RIGHT, POLICY
from tests.binder.test_evictions import Scene
from tests.binder.words import Call, Cluster, times
from tests.runtime.helpers import until
from tests.simulator.conftest import api  # noqa: F401 - fixture
from tests.simulator.contract import Api


@pytest.fixture
async def cluster(api: Api) -> AsyncIterator[Cluster]:  # noqa: F811, RUF100
    test_cluster = Cluster(api)
    yield test_cluster
    await test_cluster.kube.close()


def always(answer: Answer) -> Callable[[Call], Awaitable[Answer | Lost]]:
    async def said(_call: Call) -> Answer | Lost:
        return answer

    return said


@pytest.mark.parametrize(
    ("answer", "cause", "remedy", "calls"),
    [
        (Answer(422, "Invalid", POLICY), "denied", "excluded", 1),
        (Answer(403, "Forbidden", NO_RIGHT), "forbidden", "create on pods/binding", 2),
        (Answer(400, "BadRequest", "no"), "invalid", "binder's log", 1),
    ],
)
async def test_a_no_to_the_request_is_one_event_one_event_with_its_remedy_and_not_asked_for_again(
    cluster: Cluster, answer: Answer, cause: str, remedy: str, calls: int
) -> None:
    """A call without the right is sent twice in a row, because a server that has just started may
    deny it wrongly.
    """
    cluster.kube.fault = always(answer)
    uid = await cluster.reserved()
    async with cluster.binder(announce=True):
        assert await cluster.ended_with(uid, "BindRefused") == ["BindIntended", "BindRefused"]
        path = "/api/v1/namespaces/apirec/events"
        async with asyncio.timeout(5):
            while not (events := (await cluster.api.ask("GET", path)).json()["items"]):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await until(lambda: len(cluster.kube.binds) == calls)
    refused = (await cluster.events(uid))[-1]
    assert isinstance(refused, binding.BindRefused)
    assert (refused.cause, refused.message) == (cause, answer.message)
    assert [event["reason"] for event in events] == ["FailedScheduling"]
    assert remedy in events[0]["message"]
    (condition,) = (await cluster.stands())["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulerError")


@pytest.mark.parametrize(
    ("answer", "level"),
    [
        (Answer(404, "NotFound", 'pods "a" not found'), "info"),
        (Answer(422, "Invalid", POLICY), "warning"),
    ],
)
async def test_a_refusal_that_is_the_pods_own_end_is_no_warning(
    cluster: Cluster, answer: Answer, level: str
) -> None:
    """Otherwise a namespace that is deleted while its pods are bound would fill the log with
    warnings.
    """
    cluster.kube.fault = always(answer)
    uid = await cluster.reserved()
    with structlog.testing.capture_logs() as lines:
        async with cluster.binder():
            await cluster.ended_with(uid, "BindRefused")
            await until(lambda: any(line["event"] == names.BIND_REFUSED for line in lines))
    assert [line["log_level"] for line in lines if line["event"] == names.BIND_REFUSED] == [level]


async def test_a_right_that_a_server_misses_for_a_moment_is_no_refusal(cluster: Cluster) -> None:
    """A kube-apiserver 1.36 that was started a second ago: 403 to the binding, and then it shows
    the pod.
    """
    cluster.kube.fault = times(1, always(Answer(403, "Forbidden", NO_RIGHT)))
    uid = await cluster.reserved()
    async with cluster.binder():
        assert await cluster.ended_with(uid, "PodBound") == ["BindIntended", "PodBound"]


@pytest.mark.parametrize(
    "said",
    [
        Lost("nobody answers"),
        Answer(401, "Unauthorized", "Unauthorized"),
        Answer(403, "Forbidden", NO_RIGHT),
        Answer(429, "TooManyRequests", "later", retry_after_s=60.0),
    ],
)
async def test_bindings_that_waited_for_the_server_are_sent_once_it_answers_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, said: Answer | Lost
) -> None:
    """One binding probes the server, whatever Retry-After said: a pod was bound 280 s after the
    server had recovered. A server that has just started knows no credentials.
    """
    monkeypatch.setattr(handlers, "LONGEST_PROBE_S", 0.2)
    settings = msgspec.structs.replace(
        words.SETTINGS, resend_after_s=0.2, resend_at_most_every_s=60.0
    )
    monkeypatch.setattr(words, "SETTINGS", settings)

    async def away(*_asked: object) -> Answer | Lost:
        return said

    uids = [await cluster.reserved(f"p{number}") for number in range(6)]
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(cluster.kube, "fault", away)
        meanwhile.setattr(cluster.kube, "get_pod", away)
        async with cluster.binder() as binder:
            await until(lambda: len(cluster.kube.binds) >= 6)
            for due in binder._due.values():
                due.at_s += 60.0
            meanwhile.undo()
            for uid in uids:
                await cluster.ended_with(uid, "PodBound")


async def test_a_retry_after_is_respected(cluster: Cluster) -> None:
    cluster.kube.fault = always(Answer(429, "TooManyRequests", "later", retry_after_s=60.0))
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
