"""The extender's requests, answered over the fold: decode, ask `verbs`, and for a binding wait for
its outcome.

`/bind` reserves through the deciding loop, hands to the binder and answers with its outcome. A
request that its kube-scheduler gives up is withdrawn unless the binder has begun. Must not know
HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from services.scheduler.explain.placing import ColumnarPlacing, Placing
from services.scheduler.extender import verbs, wire
from services.scheduler.extender.bind_requests import BindRequests
from services.scheduler.extender.read_pods import ReadPods
from services.scheduler.filter.pod_manifest import read_pod
from services.scheduler.state.state import SchedulerState
from shared.domain.pod import Pod
from shared.events import binding_events as binding
from shared.events.cluster_events import PodEnded
from shared.events.scheduling_events import ReservationWithdrawn
from shared.ledger.state import Ledger
from shared.runtime.projector import Folded

# Pods that are remembered from filter until they are bound.
SEEN_LIMIT = 20_000
# How long /bind waits for a pod that another replica filtered and the observer has yet to append.
SEEN_WITHIN_S = 3.0
# Events that follow others so soon are judged together with them.
TOGETHER_S = 0.02

T = TypeVar("T")
D = TypeVar("D", bytes, msgspec.Raw)


class DecidingCore(Protocol):
    """The part of the scheduler's core that the extender needs."""

    @property
    def ledger(self) -> Ledger: ...
    @property
    def folded(self) -> SchedulerState: ...
    @property
    def cluster(self) -> Placing: ...
    @property
    def binds(self) -> BindRequests: ...
    def look(self) -> None:
        """Refresh the columns of changed nodes."""


class CoreFold(Protocol):
    """The part of the scheduler's projector that the extender needs."""

    @property
    def live(self) -> bool: ...
    @property
    def state(self) -> DecidingCore: ...


class CannotAnswer(Exception):
    """The request has no answer, now or at all: an HTTP status and a sentence."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class Extender:
    """Answers requests over one fold; `wake` makes the deciding loop look at bind requests."""

    def __init__(self, projector: CoreFold, wake: Callable[[], None], bind_within_s: float) -> None:
        self._projector = projector
        self._wake = wake
        self._bind_within_s = bind_within_s
        self._seen: dict[str, Pod] = {}
        self._texts = verbs.Texts()
        self._read_pods = ReadPods()
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._refused: dict[str, None] = {}
        self._changed = asyncio.Event()
        self._patience = Patience()

    def reset(self) -> None:
        """Give up all bindings: the log, its timeline or its history is another one."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result("the log was replaced; try again")

    def folded(self, core: DecidingCore, folded: Folded) -> None:
        """Answer bindings that have an outcome, and look again for pods that fitted nowhere."""
        self._changed.set()
        for _, event in folded if self._waiting else ():
            self._note_outcome(event)
        self.answered(core)

    def answered(self, core: DecidingCore) -> None:
        """Answer bindings that are decided without an event."""
        for uid in [uid for uid in core.binds.answers if uid in self._waiting]:
            self._answer(uid, core.binds.answers.pop(uid))

    def _note_outcome(self, event: object) -> None:
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

    async def filter(self, body: bytes) -> object:
        """Return the nodes that may take the pod. If there is none, wait a moment for a change
        first.
        """
        request = _decoded(wire.asked, body)
        read, names = _decoded(self._read_pods.read, request.pod), request.node_names()
        if read.problem:
            text = f"unreadable manifest: {read.problem}"
            return wire.filtered([], {}, dict.fromkeys(names, text), request.cached)
        pod = read.pod
        self._seen.pop(pod.uid, None)
        _make_room(self._seen)[pod.uid] = pod
        answer = self._filtered(pod, names)
        waits = pod.uid in self._refused or read.unschedulable
        if not answer.passing and answer.failed and waits:
            answer = await self._filtered_later(pod, names, answer)
        self._refused.pop(pod.uid, None)
        if not answer.passing:
            _make_room(self._refused)[pod.uid] = None
        failed, unresolvable = verbs.failed_nodes(answer, read.nominated)
        return wire.filtered(answer.passing, failed, unresolvable, request.cached)

    def _filtered(self, pod: Pod, names: Sequence[str]) -> verbs.FilterAnswer:
        return verbs.filtered(_columns(self._core()), pod, names, self._texts)

    async def _filtered_later(
        self, pod: Pod, names: Sequence[str], answer: verbs.FilterAnswer
    ) -> verbs.FilterAnswer:
        """Wait for events by which the pod fits, as long as `Patience` allows."""
        clock = asyncio.get_running_loop().time
        begun_s = clock()
        wait_s = self._patience.take(begun_s)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    while not answer.passing:
                        self._changed.clear()
                        await self._changed.wait()
                        await asyncio.sleep(TOGETHER_S)
                        answer = self._filtered(pod, names)
        finally:
            self._patience.give_back(wait_s - (clock() - begun_s))
        return answer

    def prioritize(self, body: bytes) -> object:
        """Return the scores of the nodes that passed."""
        request, core = _decoded(wire.asked, body), self._core()
        read, names = _decoded(self._read_pods.read, request.pod), request.node_names()
        if read.problem:
            return wire.prioritized(dict.fromkeys(names, 0))
        return wire.prioritized(verbs.prioritized(_columns(core), read.pod, names))

    def preempt(self, body: bytes) -> object:
        """Return the victims that give the pod its zones, by node."""
        request, core = _decoded(wire.preempt, body), self._core()
        pod, problem = read_pod(request.pod)
        if problem:
            return wire.preempted({})
        pods = core.ledger.pods
        return wire.preempted(verbs.preempted(_columns(core), pods, pod, request.offers()))

    async def bind(self, body: bytes) -> object:
        """Reserve, bind, and return the outcome."""
        request, core = _decoded(wire.bind, body), self._core()
        key = f"{request.namespace}/{request.name}"
        pod = await self._known_pod(request.uid)
        if pod is None:
            return wire.bound(
                f"pod {key} ({request.uid}) was not seen yet, by filter or by the observer; "
                "try again"
            )
        if pod.key != key:
            return wire.bound(f"uid {request.uid} is {pod.key}, not {key}")
        return wire.bound(await self._outcome(core, pod, request.node))

    async def _outcome(self, core: DecidingCore, pod: Pod, node: str) -> str:
        waiting = self._waiting.get(pod.uid)
        if waiting is not None and not waiting.done():
            waiting.set_result("replaced by a later request")
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

    async def _known_pod(self, uid: str) -> Pod | None:
        """Return the pod as the log has it, or as filter saw it."""
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

    def _core(self) -> DecidingCore:
        if not self._projector.live:
            raise CannotAnswer(503, "the log is being read; kube-scheduler tries again")
        core = self._projector.state
        if problem := core.folded.listings.problem():
            raise CannotAnswer(503, f"{problem}; kube-scheduler tries again")
        core.look()
        return core


def _make_room(entries: dict[str, T]) -> dict[str, T]:
    """Forget the oldest entry if there are too many."""
    if len(entries) >= SEEN_LIMIT:
        del entries[next(iter(entries))]
    return entries


def _columns(core: DecidingCore) -> ColumnarPlacing:
    # Settings allow no extender with the upstream plugin's caches.
    assert core.cluster.columns is not None
    return core.cluster.columns


def _decoded(decode: Callable[[D], T], body: D) -> T:
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CannotAnswer(400, f"not the body of an extender/v1 request: {error}") from error


# The largest wait for one answer, and the share of kube-scheduler's time that waits may take.
MOST_S = 0.5
SHARE = 0.25


class Patience:
    """The total time by which a "no" may be delayed, one budget for all requests; times are
    monotonic.

    kube-scheduler asks for one pod at a time, and all others wait meanwhile. It asks again after an
    event that it may learn before the log does (some 50 ms). A "no" in between makes it ask again
    only at the next event.
    """

    def __init__(self) -> None:
        self._left_s, self._at_s = MOST_S, 0.0

    def take(self, now_s: float) -> float:
        """Return the seconds that one answer may wait."""
        self._left_s = min(MOST_S, self._left_s + SHARE * max(0.0, now_s - self._at_s))
        self._at_s = now_s
        self._left_s /= 2
        return self._left_s

    def give_back(self, unused_s: float) -> None:
        """Return unused seconds to the budget."""
        self._left_s = min(MOST_S, self._left_s + max(0.0, unused_s))
