"""Whether the Kubernetes API answers and these credentials have the rights that the service needs:
asked again and again.

Not ready is a matter for readiness alone: a restart mends no address and no role. Must not know
what the rights are for.
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
AGAIN_S = 2.0
LOOK_EVERY_S = 5.0
"""While something is wrong all is asked every AGAIN_S, else one right every LOOK_EVERY_S, each in its turn: of a service at
rest these questions are all that the API server hears, and writes into its audit log."""


class Reviews(Protocol):
    """The one call that is needed of the Kubernetes port."""

    async def may(self, right: Right) -> Answer | Lost: ...


class ApiReadiness:
    """`problem` is a readiness check: what is wrong with the API as these credentials see it, empty
    when nothing is. At least one right has to be asked for."""

    def __init__(self, kube: Reviews, rights: Collection[Right], clock: Clock) -> None:
        self._kube = kube
        self._rights = sorted(rights)
        self._clock = clock
        self._problem = NOT_ASKED
        self._out = logs.get("kubernetes")

    def problem(self) -> str:
        """What readiness waits for."""
        return self._problem

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.ask()
            await (self._clock.sleep(AGAIN_S) if self._problem else self._while_well())

    async def _while_well(self) -> None:
        """All is well until a question has no good answer."""
        for right in cycle(self._rights):
            await self._clock.sleep(LOOK_EVERY_S)
            if judge({right: await self._kube.may(right)}):
                return

    async def ask(self) -> None:
        """Ask for every right once."""
        answers = {}
        for right in self._rights:
            answers[right] = await self._kube.may(right)
            if unanswered(answers[right]):
                break
        found = judge(answers)
        if found != self._problem and found:
            self._out.warning(names.KUBE_NOT_READY, problem=found)
        self._problem = found
        set_gauge(names.KUBE_READY, 0 if found else 1)


def unanswered(answer: Answer | Lost) -> bool:
    """True when asking for further rights would only fail alike. An API without reviews (404) says
    nothing about rights.
    """
    return isinstance(answer, Lost) or (not answer.ok and answer.status != 404)


def judge(answers: dict[Right, Answer | Lost]) -> str:
    """The problem in words, with the remedy; empty when the API answers and refuses nothing."""
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
    return (
        f"rights are missing: {', '.join(missing)}; apply k8s/base/rbac.yaml, or bind its ClusterRole"
        if missing
        else ""
    )


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
