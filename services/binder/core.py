"""The binder's work list and its judgement of answers. Intent in the log, the call, the outcome in
the log.

The work list is the fold: reservations without intent, intents without outcome. After an intent
only a definite answer frees the charge: 404, another uid, a 409 while the pod stands on another
node, a pod that terminates unbound, or a no to the request itself (400, 403, 413, 422) while the
pod stands nowhere. Reading "unbound" after anything else permits only resending to the same node; a
409 on our node is success. This module must not know HTTP, the log or a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from services.binder import evicting
from services.binder.evicting import Evictions
from shared.domain.state_hash import state_hash
from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events import scheduling_events as scheduling
from shared.events import streams
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.events.log_events import LogOpened
from shared.ledger.listings import Listings

Stage = Literal["reserved", "intended"]
PLACEMENT_ANNOTATION = "topolog.io/placement"
POSITION_ANNOTATION = "topolog.io/reserved-at"


class Identity(msgspec.Struct):
    """A live pod's name, and the version its stream stands at. `node` is where it stands, as far as
    the log knows, `scheduler` the `spec.schedulerName` that it asked for, `generation` that of the
    spec which was seen last (0: not told)."""

    namespace: str
    name: str
    version: int = 0
    node: str = ""
    scheduler: str = ""
    generation: int = 0


class Work(msgspec.Struct):
    """One binding to carry out: `reserved` has no intent yet, `intended` has no outcome yet."""

    uid: str
    node: str
    reserved_at: int
    stage: Stage = "reserved"
    attempts: int = 0
    predicted: dict[str, tuple[int, ...]] = {}
    trace: str = ""


class BinderState(msgspec.Struct):
    """The fold of everything that the binder acts on."""

    position: int = 0
    pods: dict[str, Identity] = {}
    work: dict[str, Work] = {}
    evictions: Evictions = {}
    listings: Listings = msgspec.field(default_factory=Listings)


def initial() -> BinderState:
    """Nothing to do."""
    return BinderState()


def evolve(state: BinderState, envelope: Envelope, event: Event) -> BinderState:
    """Fold one fact in place."""
    state.position = envelope.position
    if isinstance(event, cluster.PodObserved):
        _observed(state, event)
    elif isinstance(event, cluster.PodEnded):
        _forget(state, event.uid)
    elif isinstance(event, scheduling.PodReserved):
        state.work[event.uid] = Work(
            event.uid,
            event.node,
            envelope.position,
            predicted=event.predicted,
            trace=envelope.trace,
        )
        state.listings.decided()
    elif isinstance(event, scheduling.ReservationWithdrawn):
        _withdrawn(state, event.uid)
    elif isinstance(event, LogOpened):
        state.listings.opened(event)
    elif isinstance(event, cluster.ClusterListed):
        state.listings.listed(event)
    else:
        _evolve_binding(state, event)
    evicting.evolve(state.evictions, event, state.pods)
    _keep_version(state, envelope)
    return state


def promises(state: BinderState) -> Iterator[bytes]:
    """What is still to be done, as every release must see it: bindings and evictions, in order of
    uid.
    """
    for uid, work in sorted(state.work.items()):
        yield repr((uid, work.node, work.reserved_at, work.stage)).encode()
    for uid, each in sorted(state.evictions.items()):
        yield repr((uid, each.preemptor, each.intended)).encode()


def digest(state: BinderState) -> str:
    """The hash of the whole state: equal positions, equal hashes (S6)."""
    return state_hash(state)


def weight(state: BinderState) -> int:
    """How many things that is."""
    return len(state.work) + len(state.evictions)


def pass_over(state: BinderState, envelope: Envelope) -> None:
    """A fact that is not folded."""
    state.position = envelope.position
    _keep_version(state, envelope)


def set_aside(state: BinderState, stream: str) -> None:
    """What a pod's stream says cannot be known from here on: nothing is done for it."""
    _forget(state, stream.removeprefix("pod/"))


def _evolve_binding(state: BinderState, event: Event) -> None:
    if isinstance(event, binding.BindIntended):
        work = state.work.setdefault(event.uid, Work(event.uid, event.node, event.reserved_at))
        work.stage, work.node = "intended", event.node
    elif isinstance(event, binding.PodBound):
        state.work.pop(event.uid, None)
        if event.uid in state.pods:
            state.pods[event.uid].node = event.node
    elif isinstance(event, binding.BindRefused):
        state.work.pop(event.uid, None)
        if event.cause in ("gone", "other_uid"):
            _forget(state, event.uid)
    elif isinstance(event, binding.BindUncertain) and event.uid in state.work:
        state.work[event.uid].attempts = event.attempts


def _observed(state: BinderState, event: cluster.PodObserved) -> None:
    known = state.pods.setdefault(event.pod.uid, Identity(event.pod.namespace, event.pod.name))
    known.scheduler = event.pod.scheduler_name
    known.node = event.node or known.node
    known.generation = event.generation


def _withdrawn(state: BinderState, uid: str) -> None:
    if uid in state.work and state.work[uid].stage == "reserved":
        del state.work[uid]


def _forget(state: BinderState, uid: str) -> None:
    """The pod is gone, and with it every intent: its end is a definite answer."""
    state.pods.pop(uid, None)
    state.work.pop(uid, None)
    state.evictions.pop(uid, None)


def _keep_version(state: BinderState, envelope: Envelope) -> None:
    prefix, _, uid = envelope.stream.partition("/")
    if prefix == "pod" and uid in state.pods:
        state.pods[uid].version = envelope.version


def waits(state: BinderState) -> str:
    """Why nothing may be intended, bound or evicted yet; empty where nothing is waited for. In a
    log that was restored a nominee waits whom its cluster may long have running, and its victims
    would go in vain."""
    return state.listings.problem()


def work_of(state: BinderState, stage: Stage) -> list[Work]:
    """What is to be done now about pods of one stage."""
    return [] if waits(state) else [work for work in state.work.values() if work.stage == stage]


def intend(state: BinderState, uid: str) -> tuple[binding.BindIntended, int] | None:
    """The intent for a reservation and the version that its pod's stream must have; None when there
    is nothing to intend.
    """
    work, pod = state.work.get(uid), state.pods.get(uid)
    if work is None or pod is None or work.stage != "reserved":
        return None
    return binding.BindIntended(
        uid, pod.namespace, pod.name, work.node, work.reserved_at
    ), pod.version


def stream_of(uid: str) -> str:
    """The stream that intent and withdrawal compete on."""
    return streams.pod(uid)


class Reply(msgspec.Struct, frozen=True):
    """What the API server said: `status` 0 when no answer came. `uid`, `node` and `terminating` are
    those of the pod read afterwards, where it was (`read` True; `uid` empty: no such pod).
    `retry_after_s` is how long it asks to be left alone."""

    status: int
    message: str = ""
    read: bool = False
    uid: str = ""
    node: str = ""
    terminating: bool = False
    retry_after_s: float = 0.0

    @property
    def is_away(self) -> bool:
        """Whether the answer is not about this pod: the server did not answer or is busy (429), a
        proxy answered, or the server does not know the credentials. For a second after its start,
        kube-apiserver 1.36 misses tokens and rights that exist."""
        return self.status in (0, 401, 403, 429, 502, 503, 504)


NeedsRead = Literal["needs_read"]
Outcome = binding.PodBound | binding.BindRefused | binding.BindUncertain | NeedsRead


def judge(work: Work, reply: Reply) -> Outcome:
    """The outcome of one bind call. `needs_read` asks to read the pod and judge again."""
    if 200 <= reply.status < 300:
        return binding.PodBound(work.uid, work.node, attempts=work.attempts + 1)
    if reply.status == 404:
        return binding.BindRefused(work.uid, work.node, "gone", reply.message)
    if reply.read:
        return _judge_read(work, reply)
    return "needs_read"


LEAVING = frozenset(("gone", "other_uid", "terminating"))
"""Causes that are a pod's own end: with a thousand pods deleted while they are bound nothing is wrong."""
DEFINITE = frozenset((400, 403, 405, 413, 415, 422))
"""The request itself was judged, and would be judged so again (recordings H of kube-apiserver 1.36)."""
_POLICY = "denied request"
NAMESPACE_ENDS = "because it is being terminated"


def _why(reply: Reply) -> str:
    """`forbidden`: a right is missing. `denied`: an admission policy or webhook says no to this pod
    on this node, by 422, 403 or
    413. `invalid`: the API server cannot take the Binding as it is, or not in a namespace that
      ends, on whatever node."""
    if reply.status == 403 and evicting.NO_RIGHT in reply.message:
        return "forbidden"
    if reply.status == 403 and NAMESPACE_ENDS in reply.message:
        return "invalid"
    return "denied" if reply.status == 403 or _POLICY in reply.message else "invalid"


def _judge_read(work: Work, reply: Reply) -> Outcome:
    if not reply.uid:
        return binding.BindRefused(work.uid, work.node, "gone", reply.message)
    if reply.uid != work.uid:
        return binding.BindRefused(work.uid, work.node, "other_uid", reply.message)
    if reply.node == work.node:
        return binding.PodBound(work.uid, work.node, attempts=work.attempts + 1, found=True)
    if reply.node:
        return binding.BindRefused(
            work.uid, work.node, "other_node", f"stands on {reply.node}: {reply.message}"
        )
    if reply.terminating:
        # No deletionTimestamp is ever taken back, and with one no binding is taken, not even a call
        # that is still under way.
        return binding.BindRefused(work.uid, work.node, "terminating", reply.message)
    if reply.status in DEFINITE:
        return binding.BindRefused(work.uid, work.node, _why(reply), reply.message)
    return binding.BindUncertain(work.uid, work.node, work.attempts + 1, reply.message)


def binding_annotations(work: Work) -> dict[str, str]:
    """What the Binding merges into the pod: where the model expects each container, and the
    reservation's position.
    """
    placement = ";".join(
        f"{name}={','.join(map(str, zones))}" for name, zones in sorted(work.predicted.items())
    )
    found = {POSITION_ANNOTATION: str(work.reserved_at)}
    return {**found, PLACEMENT_ANNOTATION: placement} if placement else found
