"""Check periodically whether the Kubernetes API answers and grants the rights that the service
needs.

A failure only affects readiness, because a restart repairs neither an address nor a role.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import cycle
from typing import Protocol

from shared.kube.port import Answer, Lost
from shared.kube.rights import Right
from shared.runtime.clock import Clock
from shared.telemetry import logs, names
from shared.telemetry.instruments import set_gauge

COMPONENT = "kubernetes"
NOT_ASKED = "not asked yet"
# While there is a problem all rights are asked for every AGAIN_S, otherwise one right every
# LOOK_EVERY_S in turn: each question is an entry in the API server's audit log.
AGAIN_S = 2.0
LOOK_EVERY_S = 5.0


class Reviews(Protocol):
    # The only call of the Kubernetes port that is needed here.
    async def may(self, right: Right) -> Answer | Lost: ...


class ApiReadiness:
    """`problem` is a readiness check: the API's problem for these credentials, "" if there is none.
    Needs at least one right."""

    def __init__(self, kube: Reviews, rights: Collection[Right], clock: Clock) -> None:
        self._kube = kube
        self._rights = sorted(rights)
        self._clock = clock
        self._problem = NOT_ASKED
        self._out = logs.get("kubernetes")

    def problem(self) -> str:
        return self._problem

    async def run(self) -> None:
        while True:
            await self.ask()
            await (self._clock.sleep(AGAIN_S) if self._problem else self._while_well())

    async def _while_well(self) -> None:
        for right in cycle(self._rights):
            await self._clock.sleep(LOOK_EVERY_S)
            if judge({right: await self._kube.may(right)}):
                return

    async def ask(self) -> None:
        answers = {}
        for right in self._rights:
            answers[right] = await self._kube.may(right)
            if unanswered(answers[right]):
                break
        problem = judge(answers)
        if problem != self._problem and problem:
            self._out.warning(names.KUBE_NOT_READY, problem=problem)
        self._problem = problem
        set_gauge(names.KUBE_READY, 0 if problem else 1)


def unanswered(answer: Answer | Lost) -> bool:
    """Return True if further questions would fail alike. An API without reviews (404) says nothing
    about rights.
    """
    return isinstance(answer, Lost) or (not answer.ok and answer.status != 404)


def judge(answers: dict[Right, Answer | Lost]) -> str:
    """Return the problem with its remedy, "" if the API answers and refuses nothing."""
    for answer in answers.values():
        if isinstance(answer, Lost):
            return f"the API does not answer: {answer.message}; see TOPOLOG_KUBECONFIG"
        if unanswered(answer):
            return _refused(answer)
    missing = [
        str(right)
        for right, answer in answers.items()
        if isinstance(answer, Answer) and _denied(answer)
    ]
    if not missing:
        return ""
    rights = ", ".join(missing)
    return f"missing rights: {rights}; apply k8s/base/rbac.yaml, or bind its ClusterRole"


def _refused(answer: Answer) -> str:
    """An overloaded server (429) or one in trouble (5xx) has not judged the credentials."""
    text = f"HTTP {answer.status} {answer.reason} {answer.message}".strip()
    if answer.status == 429:
        return (
            f"the API server is busy: {text}; asking again. If it stays, look at the load of the "
            "API server and its flow control (kubectl get flowschemas)"
        )
    if answer.status >= 500:
        return f"the API server is in trouble: {text}; asking again. If it stays, look at its log"
    return f"the API refuses these credentials: {text}; see TOPOLOG_KUBECONFIG"


def _denied(answer: Answer) -> bool:
    status = answer.body.get("status")
    return answer.ok and isinstance(status, dict) and status.get("allowed") is False
