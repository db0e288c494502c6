"""The extender's requests, answered over the fold: decode, ask the pure rooms, wait for a binding's
outcome.

`/bind` reserves through the deciding loop, hands to the binder and answers with its outcome. A
request that its kube-scheduler gives up is withdrawn unless the binder has taken it up. Must not
know HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from services.scheduler.explain.placing import ColumnarPlacing, Placing
from services.scheduler.extender import verbs, wire
from services.scheduler.extender.bind_requests import BindRequests
from services.scheduler.filter.pod_manifest import read_pod
from services.scheduler.state.state import SchedulerState
from shared.domain.pod import Pod
from shared.events import binding_events as binding
from shared.events.cluster_events import PodEnded
from shared.events.scheduling_events import ReservationWithdrawn
from shared.ledger.state import Ledger
from shared.runtime.projector import Folded

SEEN_LIMIT = 20_000
"""Pods remembered from filter until they are bound."""
SEEN_WITHIN_S = 3.0
"""How long /bind waits for a pod that another replica filtered, and that the observer has yet to tell."""
TOGETHER_S = 0.02
"""News that come so soon after others are judged with them."""


T = TypeVar("T")


class DecidingCore(Protocol):
    """What the extender needs of the scheduler's core."""

    @property
    def ledger(self) -> Ledger: ...
    @property
    def folded(self) -> SchedulerState: ...
    @property
    def cluster(self) -> Placing: ...
    @property
    def binds(self) -> BindRequests: ...
    def look(self) -> None:
        """Bring the columns of changed nodes up to date."""


class CoreFold(Protocol):
    """The scheduler's projector, as far as the extender needs it."""

    @property
    def live(self) -> bool: ...
    @property
    def state(self) -> DecidingCore: ...


class CannotAnswer(Exception):
    """The request cannot be answered now, or not at all: `status` and a sentence."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class Extender:
    """Asks one fold; `wake` makes the deciding loop look at what is asked of it."""

    def __init__(self, projector: CoreFold, wake: Callable[[], None], bind_within_s: float) -> None:
        self._projector = projector
        self._wake = wake
        self._bind_within_s = bind_within_s
        self._seen: dict[str, Pod] = {}
        self._texts = verbs.Texts()
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._refused: dict[str, None] = {}
        self._news = asyncio.Event()
        self._patience = Patience()

    def reset(self) -> None:
        """Another log or timeline: nothing that was asked is under way."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result("the log began anew; try again")

    def folded(self, core: DecidingCore, folded: Folded) -> None:
        """Outcomes of bindings that somebody waits for, and news for pods that fit nowhere."""
        self._news.set()
        for _, event in folded if self._waiting else ():
            self._heard(event)
        self.answered(core)

    def answered(self, core: DecidingCore) -> None:
        """Answers that need no fact."""
        for uid in [uid for uid in core.binds.answers if uid in self._waiting]:
            self._answer(uid, core.binds.answers.pop(uid))

    def _heard(self, event: object) -> None:
        if isinstance(event, binding.PodBound):
            self._answer(event.uid, "")
        elif isinstance(event, binding.BindRefused):
            self._answer(event.uid, f"binding to {event.node} was {event.cause}: {event.message}")
        elif isinstance(event, ReservationWithdrawn) and event.cause != "unasked":
            self._answer(event.uid, f"the reservation on {event.node} was withdrawn: {event.cause}")
        elif isinstance(event, PodEnded):
            self._answer(event.uid, f"the pod ended: {event.cause}")

    def _answer(self, uid: str, answer: str) -> None:
        waiting = self._waiting.get(uid)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    # -- verbs
    # -----------------------------------------------------------------------------------------------------

    async def filter(self, body: bytes) -> object:
        """Who may take the pod; where nobody may, perhaps a moment later."""
        asked = _decoded(wire.asked, body)
        pod, problem = read_pod(asked.pod)
        names = asked.node_names()
        if problem:
            return wire.filtered(
                [], {}, dict.fromkeys(names, f"unreadable manifest: {problem}"), asked.cached
            )
        self._remember(pod)
        found = self._filtered(pod, names)
        if not found.passing and found.failed and (pod.uid in self._refused or _waits(asked.pod)):
            found = await self._later(pod, names, found)
        self._refused.pop(pod.uid, None)
        if not found.passing:
            _bounded(self._refused)[pod.uid] = None
        failed, unresolvable = verbs.refusals(found, _nominated(asked.pod))
        return wire.filtered(found.passing, failed, unresolvable, asked.cached)

    def _filtered(self, pod: Pod, names: Sequence[str]) -> verbs.Filtered:
        core = self._core()
        return verbs.filtered(_placing(core), pod, names, self._texts)

    async def _later(self, pod: Pod, names: Sequence[str], found: verbs.Filtered) -> verbs.Filtered:
        """The answer once there are news by which the pod fits, or as it is."""
        clock = asyncio.get_running_loop().time
        begun_s = clock()
        wait_s = self._patience.take(begun_s)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    while not found.passing:
                        self._news.clear()
                        await self._news.wait()
                        await asyncio.sleep(TOGETHER_S)
                        found = self._filtered(pod, names)
        finally:
            self._patience.give_back(wait_s - (clock() - begun_s))
        return found

    def prioritize(self, body: bytes) -> object:
        """Scores of those that passed."""
        asked, core = _decoded(wire.asked, body), self._core()
        pod, problem = read_pod(asked.pod)
        names = asked.node_names()
        if problem:
            return wire.prioritized(dict.fromkeys(names, 0))
        return wire.prioritized(verbs.prioritized(_placing(core), pod, names))

    def preempt(self, body: bytes) -> object:
        """Which offers of victims give the pod its zones."""
        asked, core = _decoded(wire.preempt, body), self._core()
        pod, problem = read_pod(asked.pod)
        if problem:
            return wire.preempted({})
        pods = core.ledger.pods
        return wire.preempted(verbs.preempted(_placing(core), pods, pod, asked.offers()))

    async def bind(self, body: bytes) -> object:
        """Reserve, bind, and say what became of it."""
        asked, core = _decoded(wire.bind, body), self._core()
        pod = await self._known(asked.uid)
        if pod is None:
            name = f"{asked.namespace}/{asked.name}"
            return wire.bound(
                f"pod {name} ({asked.uid}) was not seen yet, by filter or by the observer; try again"
            )
        if pod.key != f"{asked.namespace}/{asked.name}":
            return wire.bound(f"uid {asked.uid} is {pod.key}, not {asked.namespace}/{asked.name}")
        return wire.bound(await self._outcome(core, pod, asked.node))

    async def _outcome(self, core: DecidingCore, pod: Pod, node: str) -> str:
        waiting = self._waiting.get(pod.uid)
        if waiting is not None and not waiting.done():
            waiting.set_result("asked again by a later request")
        waiting = self._waiting[pod.uid] = asyncio.get_running_loop().create_future()
        core.binds.ask(pod, node)
        self._wake()
        answer = None
        try:
            async with asyncio.timeout(self._bind_within_s):
                answer = await waiting
        except TimeoutError:
            return f"{node}: no outcome within {self._bind_within_s:g} s; see the binder's log"
        finally:
            if self._waiting.get(pod.uid) is waiting:
                del self._waiting[pod.uid]
                if answer is None:
                    self._projector.state.binds.forget(pod.uid, node)
                    self._wake()
        if not answer:
            self._seen.pop(pod.uid, None)
        return answer

    async def _known(self, uid: str) -> Pod | None:
        """The pod as the log has it, or as filter saw it."""
        try:
            async with asyncio.timeout(SEEN_WITHIN_S):
                while True:
                    entry = self._projector.state.ledger.pods.get(uid)
                    pod = entry.pod if entry is not None else self._seen.get(uid)
                    if pod is not None:
                        return pod
                    await asyncio.sleep(0.05)
        except TimeoutError:
            return None

    def _remember(self, pod: Pod) -> None:
        self._seen.pop(pod.uid, None)
        _bounded(self._seen)[pod.uid] = pod

    def _core(self) -> DecidingCore:
        if not self._projector.live:
            raise CannotAnswer(503, "the log is being read; kube-scheduler tries again")
        core = self._projector.state
        if problem := core.folded.listings.problem():
            raise CannotAnswer(503, f"{problem}; kube-scheduler tries again")
        core.look()
        return core


def _bounded(kept: dict[str, T]) -> dict[str, T]:
    """Room for one more: the oldest is forgotten."""
    if len(kept) >= SEEN_LIMIT:
        del kept[next(iter(kept))]
    return kept


def _status(manifest: Any) -> dict[str, Any]:
    status = manifest.get("status") if isinstance(manifest, dict) else None
    return status if isinstance(status, dict) else {}


def _nominated(manifest: Any) -> str:
    """The node on which kube-scheduler has evicted pods for this one; empty for none."""
    return str(_status(manifest).get("nominatedNodeName") or "")


def _waits(manifest: Any) -> bool:
    """Whether kube-scheduler has once found no place for the pod, as its conditions say."""
    conditions = _status(manifest).get("conditions")
    told = [
        one
        for one in conditions or ()
        if isinstance(one, dict) and one.get("type") == "PodScheduled"
    ]
    return any(one.get("status") == "False" for one in told)


def _placing(core: DecidingCore) -> ColumnarPlacing:
    assert isinstance(
        core.cluster, ColumnarPlacing
    )  # settings allow no extender with the upstream plugin's caches
    return core.cluster


def _decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CannotAnswer(400, f"not the body of an extender/v1 request: {error}") from error


MOST_S = 0.5
SHARE = 0.25
"""Of kube-scheduler's time at most."""


class Patience:
    """One budget for all who ask; times are monotonic."""

    def __init__(self) -> None:
        self._left_s, self._at_s = MOST_S, 0.0

    def take(self, now_s: float) -> float:
        """Seconds that one answer may wait."""
        self._left_s = min(MOST_S, self._left_s + SHARE * max(0.0, now_s - self._at_s))
        self._at_s = now_s
        self._left_s /= 2
        return self._left_s

    def give_back(self, unused_s: float) -> None:
        """Of what was taken; nothing for less than none."""
        self._left_s = min(MOST_S, self._left_s + max(0.0, unused_s))
