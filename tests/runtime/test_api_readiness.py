"""Readiness is red while the Kubernetes API is away, refuses the credentials, or has not granted
what the service calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from shared.kube.client import KubeClient
from shared.kube.port import Answer, Lost
from shared.kube.rights import BINDER, SCHEDULER, Right
from shared.runtime.api_readiness import AGAIN_S, LOOK_EVERY_S, ApiReadiness
from shared.runtime.clock import SYSTEM_CLOCK
from tests.fixtures.ports import free_port


def allowed(answer: bool) -> Answer:
    return Answer(201, body={"status": {"allowed": answer}})


class Api:
    """An API server that answers each review by a function of the right."""

    def __init__(self, answer: Callable[[Right], Answer | Lost]) -> None:
        self.answer = answer
        self.asked: list[Right] = []

    async def may(self, right: Right) -> Answer | Lost:
        self.asked.append(right)
        return self.answer(right)


async def asked(answer: Callable[[Right], Answer | Lost]) -> str:
    readiness = ApiReadiness(Api(answer), BINDER, SYSTEM_CLOCK)
    assert readiness.problem()
    await readiness.ask()
    return readiness.problem()


async def test_every_right_granted_is_ready() -> None:
    assert await asked(lambda _right: allowed(True)) == ""


async def test_each_missing_right_is_named() -> None:
    problem = await asked(lambda right: allowed(right.verb != "create"))
    assert "create pods/binding" in problem
    assert "create events" in problem
    assert "get pods" not in problem


@pytest.mark.parametrize(
    "answer", [Answer(401, "Unauthorized", "no"), Answer(403, "Forbidden", "no"), Answer(503)]
)
async def test_rejected_credentials_are_reported_with_the_servers_message(answer: Answer) -> None:
    assert f"HTTP {answer.status} {answer.reason}".strip() in await asked(lambda _right: answer)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_server_has_not_refused_the_credentials(status: int) -> None:
    problem = await asked(lambda _right: Answer(status, "TooManyRequests", "later"))
    assert f"HTTP {status}" in problem
    assert "credentials" not in problem
    assert "TOPOLOG_KUBECONFIG" not in problem


async def test_an_api_without_reviews_says_nothing_about_rights() -> None:
    assert await asked(lambda _right: Answer(404, "NotFound")) == ""


async def test_a_server_that_does_not_answer_is_asked_once_a_round() -> None:
    api = Api(lambda _right: Lost("GET x: refused"))
    readiness = ApiReadiness(api, SCHEDULER, SYSTEM_CLOCK)
    await readiness.ask()
    assert len(api.asked) == 1
    assert "does not answer" in readiness.problem()


async def test_it_recovers_when_the_server_does() -> None:
    api = Api(lambda _right: Lost("away"))
    readiness = ApiReadiness(api, SCHEDULER, SYSTEM_CLOCK)
    await readiness.ask()
    api.answer = lambda _right: allowed(True)
    await readiness.ask()
    assert readiness.problem() == ""


class Hands:
    """A clock that records its sleeps; the last one ends the run."""

    def __init__(self, sleeps: int) -> None:
        self.slept: list[float] = []
        self._most = sleeps

    def now_us(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return sum(self.slept)

    async def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)
        if len(self.slept) >= self._most:
            raise asyncio.CancelledError


async def test_a_server_that_goes_away_is_noticed_and_probed_often_until_it_is_back() -> None:
    clock = Hands(sleeps=5)
    api = Api(lambda _right: allowed(True) if len(clock.slept) < 2 else Lost("away"))
    readiness = ApiReadiness(api, SCHEDULER, clock)
    with pytest.raises(asyncio.CancelledError):
        await readiness.run()
    assert clock.slept == [LOOK_EVERY_S, LOOK_EVERY_S, AGAIN_S, AGAIN_S, AGAIN_S]
    assert "does not answer" in readiness.problem()


async def test_one_right_is_asked_at_a_look_and_each_in_its_turn() -> None:
    clock = Hands(sleeps=2 * len(SCHEDULER) + 1)
    api = Api(lambda _right: allowed(True))
    with pytest.raises(asyncio.CancelledError):
        await ApiReadiness(api, SCHEDULER, clock).run()
    assert api.asked == sorted(SCHEDULER) * 3, "all at the start, then twice around"


@pytest.mark.parametrize("taken", sorted(SCHEDULER), ids=str)
async def test_a_right_that_is_taken_away_is_named_after_its_turn(taken: Right) -> None:
    clock = Hands(sleeps=len(SCHEDULER) + 1)
    api = Api(lambda right: allowed(not clock.slept or right != taken))
    readiness = ApiReadiness(api, SCHEDULER, clock)
    with pytest.raises(asyncio.CancelledError):
        await readiness.run()
    assert readiness.problem().startswith(f"missing rights: {taken};")


async def test_an_address_without_a_listener_is_not_ready() -> None:
    kube = KubeClient(f"http://127.0.0.1:{free_port()}")
    readiness = ApiReadiness(kube, SCHEDULER, SYSTEM_CLOCK)
    await readiness.ask()
    await kube.close()
    assert "does not answer" in readiness.problem()
