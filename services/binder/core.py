"""The binder's work list, folded from the log, and the outcome of each answer of the API server.

The work list is reservations without intent and intents without outcome. After an intent only a
definite answer frees the charge:

- 404, or another uid;
- 409 while the pod is bound to another node;
- an unbound pod that terminates;
- a refusal of the request itself (400, 403, 413, 422) while the pod is unbound.

In any other case an unbound pod only permits sending the same binding again. A 409 of a pod that is
bound to our node is success. This module must not know HTTP, the log or a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from services.binder import evicting
from services.binder.evicting import Evictions
from shared.domain import zone_allocation
from shared.domain.state_hash import state_hash
from shared.domain.zone_allocation import ZoneAllocation
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
    """A live pod's name and the version of its stream. `node` is its node according to the log,
    `scheduler` its `spec.schedulerName`, `generation` that of its last spec (0: unknown)."""

    namespace: str
    name: str
    version: int = 0
    node: str = ""
    scheduler: str = ""
    generation: int = 0


class Work(msgspec.Struct):
    """One binding. Stage `reserved` has no intent yet, `intended` has no outcome yet."""

    uid: str
    node: str
    reserved_at: int
    stage: Stage = "reserved"
    attempts: int = 0
    predicted: dict[str, tuple[int, ...]] = {}
    trace: str = ""
    certain: bool = False
    allocation: ZoneAllocation | None = None


class BinderState(msgspec.Struct):
    """The state that the binder works on."""

    position: int = 0
    pods: dict[str, Identity] = {}
    work: dict[str, Work] = {}
    evictions: Evictions = {}
    listings: Listings = msgspec.field(default_factory=Listings)


def initial() -> BinderState:
    return BinderState()


def evolve(state: BinderState, envelope: Envelope, event: Event) -> BinderState:
    state.position = envelope.position
    if isinstance(event, cluster.PodObserved):
        _observed(state, event)
    elif isinstance(event, cluster.PodEnded):
        _forget(state, event.uid)
    elif isinstance(event, scheduling.PodReserved) and event.uid in state.pods:  # no booking
        state.work[event.uid] = Work(
            event.uid,
            event.node,
            envelope.position,
            predicted=event.predicted,
            trace=envelope.trace,
            certain=event.certain,
            allocation=event.allocation,
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
    """Yield the open bindings and evictions, in order of uid, as all releases must fold them."""
    for uid, work in sorted(state.work.items()):
        yield repr((uid, work.node, work.reserved_at, work.stage)).encode()
    for uid, eviction in sorted(state.evictions.items()):
        yield repr((uid, eviction.preemptor, eviction.intended)).encode()


def digest(state: BinderState) -> str:
    """Return the hash of the whole state: at equal positions hashes are equal (S6)."""
    return state_hash(state)


def weight(state: BinderState) -> int:
    return len(state.work) + len(state.evictions)


def pass_over(state: BinderState, envelope: Envelope) -> None:
    state.position = envelope.position
    _keep_version(state, envelope)


def quarantine(state: BinderState, stream: str) -> None:
    """Do nothing more for the pod of a quarantined stream, or at all if it carries safety
    events.
    """
    if streams.carries_safety(stream):
        state.listings.block(stream)
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
    identity = state.pods.setdefault(event.pod.uid, Identity(event.pod.namespace, event.pod.name))
    identity.scheduler = event.pod.scheduler_name
    identity.node = event.node or identity.node
    identity.generation = event.generation


def _withdrawn(state: BinderState, uid: str) -> None:
    if uid in state.work and state.work[uid].stage == "reserved":
        del state.work[uid]


def _forget(state: BinderState, uid: str) -> None:
    """Forget a pod and its intents: its end is a definite answer."""
    state.pods.pop(uid, None)
    state.work.pop(uid, None)
    state.evictions.pop(uid, None)


def _keep_version(state: BinderState, envelope: Envelope) -> None:
    prefix, _, uid = envelope.stream.partition("/")
    if prefix == "pod" and uid in state.pods:
        state.pods[uid].version = envelope.version


def waits(state: BinderState) -> str:
    """Return why nothing may be bound or evicted yet, empty if it may. In a restored log a
    nominated pod may be waiting that runs in the cluster already, and its victims would be evicted
    in vain."""
    return state.listings.problem()


def work_of(state: BinderState, stage: Stage) -> list[Work]:
    """Return the work of one stage that may be done now."""
    return [] if waits(state) else [work for work in state.work.values() if work.stage == stage]


def intend(state: BinderState, uid: str) -> tuple[binding.BindIntended, int] | None:
    """Return the intent for a reservation and the version that its pod's stream must have, or None
    if there is no such reservation."""
    work, pod = state.work.get(uid), state.pods.get(uid)
    if work is None or pod is None or work.stage != "reserved":
        return None
    return binding.BindIntended(
        uid, pod.namespace, pod.name, work.node, work.reserved_at
    ), pod.version


def stream_of(uid: str) -> str:
    """Return the stream on which intent and withdrawal compete."""
    return streams.pod(uid)


class Reply(msgspec.Struct, frozen=True):
    """An answer of the API server. `status` is 0 if no answer came. With `read` the pod was read
    afterwards, and `uid` (empty: no such pod), `node` and `terminating` are its own."""

    status: int
    message: str = ""
    read: bool = False
    uid: str = ""
    node: str = ""
    terminating: bool = False
    retry_after_s: float = 0.0

    @property
    def is_away(self) -> bool:
        """True if the answer is not about this pod: the server did not answer or is busy (429), a
        proxy answered, or the server does not know the credentials. For a second after its start,
        kube-apiserver 1.36 misses tokens and rights that exist.
        """
        return self.status in (0, 401, 403, 429, 502, 503, 504)


NeedsRead = Literal["needs_read"]
Outcome = binding.PodBound | binding.BindRefused | binding.BindUncertain | NeedsRead


def judge(work: Work, reply: Reply) -> Outcome:
    """Return the outcome of one bind call. `needs_read`: read the pod and judge again."""
    if 200 <= reply.status < 300:
        return binding.PodBound(work.uid, work.node, attempts=work.attempts + 1)
    if reply.status == 404:
        return binding.BindRefused(work.uid, work.node, "gone", reply.message)
    if reply.read:
        return _judge_read(work, reply)
    return "needs_read"


# Causes that are the pod's own end. Pods that are deleted while they are bound are no problem.
LEAVING = frozenset(("gone", "other_uid", "terminating"))
# The request itself was refused, and would be refused again (recordings H of kube-apiserver 1.36).
DEFINITE = frozenset((400, 403, 405, 413, 415, 422))
_POLICY = "denied request"
NAMESPACE_ENDS = "because it is being terminated"


def _cause(reply: Reply) -> str:
    """Return the cause of a refused binding.

    - `forbidden`: a right is missing.
    - `denied`: an admission policy or webhook refuses this pod on this node (422, 403 or 413).
    - `invalid`: the API server accepts the Binding on no node, or the namespace ends.
    """
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
            work.uid, work.node, "other_node", f"bound to {reply.node}: {reply.message}"
        )
    if reply.terminating:
        # A deletionTimestamp is never removed, and a pod with one accepts no binding, not even a
        # call that is still in flight.
        return binding.BindRefused(work.uid, work.node, "terminating", reply.message)
    if reply.status in DEFINITE:
        return binding.BindRefused(work.uid, work.node, _cause(reply), reply.message)
    return binding.BindUncertain(work.uid, work.node, work.attempts + 1, reply.message)


def binding_annotations(work: Work) -> dict[str, str]:
    """Return the annotations of the Binding: the position of the reservation, the zones of each
    container if the prediction is certain (docs/placement.md), and what Topolog chose if it owns
    the node's zones (docs/owned-zones.md)."""
    annotations = {POSITION_ANNOTATION: str(work.reserved_at)}
    if work.allocation is not None:
        annotations |= zone_allocation.annotations_of(work.allocation)
    devices = work.allocation.devices if work.allocation is not None else ()
    if not (work.certain or devices):
        return annotations
    parts = [(name, "=", zones) for name, zones in sorted(work.predicted.items())]
    for kind in sorted({card.type for card in devices}):
        minors = tuple(sorted(card.minor for card in devices if card.type == kind))
        parts.append((kind, ":", minors))
    placement = ";".join(f"{name}{sign}{','.join(map(str, ids))}" for name, sign, ids in parts)
    return {**annotations, PLACEMENT_ANNOTATION: placement} if placement else annotations
