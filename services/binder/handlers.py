"""The binding loop: intent in the log, the call, the outcome in the log.

Works off the fold's list, so that a restart finds every intent without outcome again. Bounded: at
most `concurrency` calls under way, each pod at most once at a time. Must not decide what an answer
means (`core.judge`).
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


BindOutcome = binding.PodBound | binding.BindRefused | binding.BindUncertain


class Due(msgspec.Struct):
    """When an uncertain binding is sent again (monotonic seconds), and how often it was sent.
    `away`: nobody answered, so that an answer to anybody shortens the wait."""

    at_s: float = 0.0
    attempts: int = 0
    away: bool = False


class Binder:
    """Leads with a lease; `lead` is the work of `Leadership.run`."""

    def __init__(
        self,
        log: EventLog,
        kube: Kube,
        projector_state: Projector[BinderState],
        settings: BinderSettings,
        clock: Clock,
    ) -> None:
        self._log = log
        self._kube = kube
        self._projector = projector_state
        self._settings = settings
        self._clock = clock
        self._woken = asyncio.Event()
        self._due: dict[str, Due] = {}
        self._busy: set[str] = set()
        self._outcome_at: dict[str, int] = {}
        self._must_reach = 0
        self._probed_s = 0.0
        self._away = False
        self._out = logs.get("binder")

    def folded(self, _state: BinderState, folded: Folded) -> None:
        """Something may be to do."""
        if folded:
            self._woken.set()

    def reset(self, _state: BinderState) -> None:
        """Another log, timeline or history."""
        self._must_reach = 0
        self._due.clear()
        self._outcome_at.clear()

    async def lead(self, lease: Lease) -> None:
        """Carry out intents until the lease is lost."""
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
        """Append intents for all new reservations, a batch at a time; a lost race is seen by the
        next fold.
        """
        state, seen = self._projector.state, self._projector.place
        fresh = core.work_of(state, "reserved")[:INTENT_BATCH]
        commits = []
        for work in fresh:
            intent = core.intend(state, work.uid)
            if intent is not None:
                event, version = intent
                commits.append(
                    self._commit(
                        f"intent/{work.uid}/{work.reserved_at}", event, version, work, lease, seen
                    )
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
            uid: at for uid, at in self._outcome_at.items() if at > self._projector.position
        }
        for work in core.work_of(state, "intended"):
            if len(self._busy) >= self._settings.concurrency:
                return
            if self._free(work.uid) and (
                self._due.get(work.uid, Due()).at_s <= now_s or self._may_probe(work.uid, now_s)
            ):
                self._busy.add(work.uid)
                group.create_task(self._carry_out(work, lease))

    def _free(self, uid: str) -> bool:
        """Not under way, and no outcome in a part of the log that the fold has yet to reach."""
        return uid not in self._busy and uid not in self._outcome_at

    def _may_probe(self, uid: str, now_s: float) -> bool:
        """While all wait for a server that is away, one of them asks now and then whether it is
        back.
        """
        if not self._due[uid].away or now_s < self._probed_s + self._settings.resend_after_s:
            return False
        self._probed_s = now_s
        return True

    def _heard(self, away: bool) -> None:
        """The server answers again: who waited because it was away need wait no more."""
        if self._away and not away:
            for due in self._due.values():
                due.at_s = 0.0 if due.away else due.at_s
        self._away = away

    async def _carry_out(self, work: Work, lease: Lease) -> None:
        """One call and its outcome. An error of this code concerns this pod only: it is sent again
        later.
        """
        seen = self._projector.place
        try:
            outcome, reply = await self._bind(work)
            crash_point("binder.after_call")
            self._heard(reply.away and isinstance(outcome, binding.BindUncertain))
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
                # Of a server that has just started, and may know our rights since: it let us read
                # the pod.
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
        if isinstance(outcome, binding.BindUncertain) and not self._worth_a_event(
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
            self._say(outcome, appended.last)

    def _worth_a_event(self, work: Work, outcome: binding.BindUncertain, reply: Reply) -> bool:
        """Schedule the next try, twice as late each time; the first, second, fourth, ...
        uncertainty is a fact.
        """
        attempts = self._postpone(work, outcome.message, reply)
        return attempts & (attempts - 1) == 0

    def _postpone(self, work: Work, problem: str, reply: Reply) -> int:
        due = self._due.setdefault(work.uid, Due())
        due.attempts += 1
        delay_s = min(
            self._settings.resend_after_s * 2 ** min(due.attempts - 1, 10),
            self._settings.resend_at_most_every_s,
        )
        due.at_s, due.away = (
            self._clock.monotonic_s() + max(delay_s, reply.retry_after_s),
            reply.away,
        )
        self._probed_s = self._clock.monotonic_s()
        self._out.warning(
            names.BIND_UNCERTAIN,
            pod=work.uid,
            node=work.node,
            attempts=due.attempts,
            problem=problem,
        )
        return due.attempts

    def _say(self, outcome: BindOutcome, position: int) -> None:
        if isinstance(outcome, binding.PodBound):
            self._due.pop(outcome.uid, None)
            self._out.debug(names.POD_BOUND, pod=outcome.uid, node=outcome.node, position=position)
        elif isinstance(outcome, binding.BindRefused):
            self._due.pop(outcome.uid, None)
            count(names.BIND_REFUSALS, cause=outcome.cause)
            said = {
                "pod": outcome.uid,
                "node": outcome.node,
                "cause": outcome.cause,
                "position": position,
            }
            if outcome.cause in core.LEAVING:
                self._out.info(names.BIND_REFUSED, **said, problem=outcome.message)
            else:
                self._out.warning(
                    names.BIND_REFUSED,
                    **said,
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
            correlation=work.uid,
            causation=work.reserved_at,
            trace=trace_of(names.SPAN_BIND, work.trace, pod=work.uid, node=work.node),
            seen=seen,
        )


def _reply(answer: Answer | Lost) -> Reply:
    if isinstance(answer, Lost):
        return Reply(0, answer.message)
    return Reply(answer.status, answer.message, retry_after_s=answer.retry_after_s)


def _read_reply(answer: Answer | Lost, read: Answer | Lost) -> Reply:
    """The bind's reply with what the pod looks like now; an unreadable pod leaves it as it was."""
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
