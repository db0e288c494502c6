"""The binding loop: it appends an intent, calls the API server, and appends the outcome.

It works on the list that is folded from the log, so a restart resumes every intent without an
outcome. At most `concurrency` calls run at once, and at most one for each pod. It must not decide
what an answer means (`core.judge`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from services.binder import announcements, core
from services.binder.appending import append_fenced
from services.binder.core import BinderState, Identity, Reply, Work
from services.binder.settings import BinderSettings
from shared.eventlog.port import Appended, Commit, Draft, Duplicate, EventLog, Lease, Outcome, Place
from shared.events import binding_events as binding
from shared.kube.port import Answer, Kube, Lost
from shared.runtime.clock import Clock
from shared.runtime.crash import crash_point
from shared.runtime.groups import lease_losses
from shared.runtime.leadership import LeaseLost
from shared.runtime.projector import Folded, Projector
from shared.runtime.waiting import set_within
from shared.telemetry import logs, names
from shared.telemetry.instruments import count, set_gauge, timed
from shared.telemetry.propagation import span, trace_of

ROLE = "binder"
INTENT_BATCH = 200
REACH_TIMEOUT_S = 30.0
IDLE_S = 0.5
# While all bindings wait for a server, one of them is sent at least this often to see whether the
# server answers again, even if it asked for a longer pause (Retry-After).
LONGEST_PROBE_S = 5.0

BindOutcome = binding.PodBound | binding.BindRefused | binding.BindUncertain


class Due(msgspec.Struct):
    """The time when an uncertain binding is sent again (monotonic seconds), and how often it was
    sent. `away`: the server did not answer or was busy, so an answer about any pod ends the wait.
    """

    at_s: float = 0.0
    attempts: int = 0
    away: bool = False


class Binder:
    """Binds pods while it has the lease; `lead` is the work of `Leadership.run`."""

    def __init__(
        self,
        log: EventLog,
        kube: Kube,
        projector: Projector[BinderState],
        settings: BinderSettings,
        clock: Clock,
    ) -> None:
        self._log = log
        self._kube = kube
        self._projector = projector
        self._settings = settings
        self._clock = clock
        self._woken = asyncio.Event()
        self._due: dict[str, Due] = {}
        self._busy: set[str] = set()
        self._outcome_at: dict[str, int] = {}
        self._must_reach = 0
        self._probe_at_s = 0.0
        self._away = False
        self._out = logs.get("binder")

    def folded(self, _state: BinderState, folded: Folded) -> None:
        """Wake the loop, because new events may need a call."""
        if folded:
            self._woken.set()

    def reset(self, _state: BinderState) -> None:
        """Forget what belongs to another log, timeline or history."""
        self._must_reach = 0
        self._due.clear()
        self._outcome_at.clear()

    async def lead(self, lease: Lease) -> None:
        await self._projector.wait_live()
        self._busy.clear()
        with lease_losses():
            await self._work_off(lease)

    async def _work_off(self, lease: Lease) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._woken.clear()
                if await self._projector.wait_for(self._must_reach, REACH_TIMEOUT_S):
                    await self._intend(lease)
                    self._start_calls(group, lease)
                await set_within(self._woken, IDLE_S)

    async def _intend(self, lease: Lease) -> None:
        """Append intents for new reservations, a batch at a time. The next fold shows which of them
        lost a race."""
        state, seen = self._projector.state, self._projector.place
        commits = []
        for work in core.work_of(state, "reserved")[:INTENT_BATCH]:
            intent = core.intend(state, work.uid)
            if intent is not None:
                event, version = intent
                commits.append(
                    self._commit(f"intent/{work.reserved_at}", event, version, work, lease, seen)
                )
        if not commits:
            return
        for outcome in await self._append(commits):
            if isinstance(outcome, Appended | Duplicate):
                self._must_reach = max(self._must_reach, outcome.last)
        crash_point("binder.after_intent")
        self._woken.set()

    def _start_calls(self, group: asyncio.TaskGroup, lease: Lease) -> None:
        now_s = self._clock.monotonic_s()
        state = self._projector.state
        set_gauge(
            names.BINDINGS_OPEN, sum(work.stage == "intended" for work in state.work.values())
        )
        self._outcome_at = {
            uid: position
            for uid, position in self._outcome_at.items()
            if position > self._projector.position
        }
        for work in core.work_of(state, "intended"):
            if len(self._busy) >= self._settings.concurrency:
                return
            if self._is_free(work.uid) and (
                self._due.get(work.uid, Due()).at_s <= now_s or self._may_probe(work.uid, now_s)
            ):
                self._busy.add(work.uid)
                group.create_task(self._carry_out(work, lease))

    def _is_free(self, uid: str) -> bool:
        """Return whether no call is under way, and no outcome is in a part of the log that the fold
        has yet to reach: a second call would be made for a pod that is bound already."""
        return uid not in self._busy and uid not in self._outcome_at

    def _may_probe(self, uid: str, now_s: float) -> bool:
        """Return whether this binding is sent early to see whether the server answers again."""
        if not self._due[uid].away or now_s < self._probe_at_s:
            return False
        self._probe_at_s = now_s + self._settings.resend_after_s
        return True

    def _note_server(self, away: bool) -> None:
        """Once the server answers again, send at once the bindings that waited for it."""
        if self._away and not away:
            for due in self._due.values():
                due.at_s = 0.0 if due.away else due.at_s
        self._away = away

    async def _carry_out(self, work: Work, lease: Lease) -> None:
        """Make one call and append its outcome. An error of this code concerns only this pod, which
        is sent again later."""
        seen = self._projector.place
        try:
            outcome, reply = await self._bind(work)
            crash_point("binder.after_call")
            self._note_server(reply.is_away and isinstance(outcome, binding.BindUncertain))
            await self._record(work, outcome, reply, lease, seen)
            crash_point("binder.after_outcome")
        except LeaseLost:
            raise
        except Exception as error:
            self._postpone(work, repr(error), Reply(500))
        finally:
            self._busy.discard(work.uid)
            self._woken.set()

    async def _bind(self, work: Work) -> tuple[BindOutcome, Reply]:
        pod = self._projector.state.pods.get(work.uid)
        if pod is None:
            return binding.BindRefused(
                work.uid, work.node, "gone", "the pod ended before it was bound"
            ), Reply(404)
        with (
            timed(names.BIND_LATENCY),
            span(names.SPAN_BIND, work.trace, pod=work.uid, node=work.node),
        ):
            outcome, reply = await self._call(pod, work)
            if isinstance(outcome, binding.BindRefused) and outcome.cause == "forbidden":
                # A server that has just started may know our rights by now: it let us read the pod.
                outcome, reply = await self._call(pod, work)
        return outcome, reply

    async def _call(self, pod: Identity, work: Work) -> tuple[BindOutcome, Reply]:
        answer = await self._kube.bind(
            pod.namespace, pod.name, work.uid, work.node, core.binding_annotations(work)
        )
        reply = _reply(answer)
        outcome = core.judge(work, reply)
        if outcome == "needs_read":
            read = await self._kube.get_pod(pod.namespace, pod.name)
            outcome = core.judge(work, _read_reply(answer, read))
        if outcome == "needs_read":
            outcome = binding.BindUncertain(
                work.uid, work.node, work.attempts + 1, _message(answer)
            )
        return outcome, reply

    async def _record(
        self, work: Work, outcome: BindOutcome, reply: Reply, lease: Lease, seen: Place
    ) -> None:
        name = type(outcome).__name__
        count(names.BIND_CALLS, outcome=name)
        if isinstance(outcome, binding.BindUncertain) and not self._is_worth_an_event(
            work, outcome, reply
        ):
            return
        commit_id = f"{name}/{work.uid}/{work.reserved_at}"
        if isinstance(outcome, binding.BindUncertain):
            commit_id += f"/{outcome.attempts}"
        (appended,) = await self._append(
            [self._commit(commit_id, outcome, None, work, lease, seen)]
        )
        if isinstance(appended, Appended | Duplicate):
            self._must_reach = max(self._must_reach, appended.last)
            self._outcome_at[work.uid] = appended.last
            self._log_outcome(outcome, appended.last)

    def _is_worth_an_event(self, work: Work, outcome: binding.BindUncertain, reply: Reply) -> bool:
        """Schedule the next try, with twice the pause each time. The first, second, fourth, ...
        uncertain answer is an event."""
        attempts = self._postpone(work, outcome.message, reply)
        return attempts & (attempts - 1) == 0

    def _postpone(self, work: Work, problem: str, reply: Reply) -> int:
        due = self._due.setdefault(work.uid, Due())
        due.attempts += 1
        delay_s = min(
            self._settings.resend_after_s * 2 ** min(due.attempts - 1, 10),
            self._settings.resend_at_most_every_s,
        )
        now_s = self._clock.monotonic_s()
        due.at_s, due.away = now_s + max(delay_s, reply.retry_after_s), reply.is_away
        self._probe_at_s = now_s + max(
            self._settings.resend_after_s, min(reply.retry_after_s, LONGEST_PROBE_S)
        )
        self._out.warning(
            names.BIND_UNCERTAIN,
            pod=work.uid,
            node=work.node,
            attempts=due.attempts,
            problem=problem,
        )
        return due.attempts

    def _log_outcome(self, outcome: BindOutcome, position: int) -> None:
        if isinstance(outcome, binding.PodBound):
            self._due.pop(outcome.uid, None)
            self._out.debug(names.POD_BOUND, pod=outcome.uid, node=outcome.node, position=position)
        elif isinstance(outcome, binding.BindRefused):
            self._due.pop(outcome.uid, None)
            count(names.BIND_REFUSALS, cause=outcome.cause)
            fields = {
                "pod": outcome.uid,
                "node": outcome.node,
                "cause": outcome.cause,
                "position": position,
            }
            if outcome.cause in core.LEAVING:
                self._out.info(names.BIND_REFUSED, **fields, problem=outcome.message)
            else:
                self._out.warning(
                    names.BIND_REFUSED,
                    **fields,
                    problem=outcome.message,
                    remedy=announcements.remedy(outcome.cause),
                )

    async def _append(self, commits: Sequence[Commit]) -> list[Outcome]:
        return await append_fenced(self._log, self._clock, self._out, commits)

    def _commit(
        self,
        commit_id: str,
        event: binding.BindingEvent,
        version: int | None,
        work: Work,
        lease: Lease,
        seen: Place,
    ) -> Commit:
        stream = core.stream_of(work.uid)
        draft = Draft(stream, event) if version is None else Draft(stream, event, version)
        return Commit(
            commit_id=commit_id,
            role=ROLE,
            epoch=lease.epoch,
            time_us=self._clock.now_us(),
            drafts=(draft,),
            causation=work.reserved_at,
            trace=trace_of(names.SPAN_BIND, work.trace, pod=work.uid, node=work.node),
            seen=seen,
        )


def _reply(answer: Answer | Lost) -> Reply:
    if isinstance(answer, Lost):
        return Reply(0, answer.message)
    return Reply(answer.status, answer.message, retry_after_s=answer.retry_after_s)


def _read_reply(answer: Answer | Lost, read: Answer | Lost) -> Reply:
    """Return the reply to the binding with what the pod looks like now, if it could be read."""
    reply = _reply(answer)
    if isinstance(read, Lost) or not (read.ok or read.status == 404):
        return reply
    if read.status == 404:
        return Reply(reply.status, reply.message, read=True)
    metadata = read.body.get("metadata", {})
    node = str(read.body.get("spec", {}).get("nodeName") or "")
    terminating = bool(metadata.get("deletionTimestamp"))
    return Reply(
        reply.status,
        reply.message,
        read=True,
        uid=str(metadata.get("uid", "")),
        node=node,
        terminating=terminating,
    )


def _message(answer: Answer | Lost) -> str:
    return answer.message or "no definite answer"
