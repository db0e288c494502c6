"""The evicting loop: it rehearses all evictions, appends intents, calls the API server, and appends
the outcomes.

If not all victims of a nomination may be evicted, none is: a dry run asks the API server first. The
loop works on the list that is folded from the log, so a restart resumes every intent without an
outcome. It must not decide what an answer means (`evicting.judge`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from services.binder import core, evicting
from services.binder.appending import append_fenced
from services.binder.core import BinderState
from services.binder.evicting import Eviction
from services.binder.settings import BinderSettings
from shared.eventlog.port import Appended, Commit, Draft, Duplicate, EventLog, Lease, Place
from shared.events import binding_events as binding
from shared.kube.port import Kube, Lost
from shared.runtime.clock import Clock
from shared.runtime.crash import crash_point
from shared.runtime.groups import lease_losses
from shared.runtime.leadership import LeaseLost
from shared.runtime.projector import Folded, Projector
from shared.runtime.waiting import set_within
from shared.telemetry import logs, names
from shared.telemetry.instruments import count

ROLE = "binder"
REACH_TIMEOUT_S = 30.0
IDLE_S = 0.5
# Evictions and rehearsals in flight at once.
CONCURRENCY = 32

Outcome = binding.PodEvicted | binding.EvictRefused


class Tries(msgspec.Struct):
    """The number of times that the API server postponed an eviction, and the time of the next call
    (monotonic seconds).
    """

    attempts: int = 0
    due_s: float = 0.0


class Turn(NamedTuple):
    """The lease of a piece of work, and the place of the log at which it began."""

    lease: Lease
    seen: Place


def _rehearsal(preemptor: str) -> str:
    """Return the key of the rehearsal of all evictions for a preemptor."""
    return f"rehearse/{preemptor}"


class Evictor:
    """Evicts pods while it has the binder's lease. `lead` runs next to the binding loop."""

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
        self._tries: dict[str, Tries] = {}
        self._busy: set[str] = set()
        self._must_reach = 0
        self._out = logs.get("binder")

    def folded(self, state: BinderState, folded: Folded) -> None:
        """Wake the loop, because new events may need a call."""
        if folded and state.evictions:
            self._woken.set()

    def reset(self, _state: BinderState) -> None:
        """Forget what belongs to another log, timeline or history."""
        self._must_reach = 0
        self._tries.clear()

    async def lead(self, lease: Lease) -> None:
        await self._projector.wait_live()
        self._busy.clear()
        with lease_losses():
            async with asyncio.TaskGroup() as group:
                while True:
                    self._woken.clear()
                    if await self._projector.wait_for(self._must_reach, REACH_TIMEOUT_S):
                        self._start(group, lease)
                    await set_within(self._woken, IDLE_S)

    def _start(self, group: asyncio.TaskGroup, lease: Lease) -> None:
        """Start all due work that is not in flight, at most `CONCURRENCY` calls at once.

        No pod is evicted while the rehearsal that intended it is in flight, because the fold may
        have the intent before the append is answered.
        """
        evictions, turn = self._projector.state.evictions, Turn(lease, self._projector.place)
        self._tries = {uid: tries for uid, tries in self._tries.items() if uid in evictions}
        if core.waits(self._projector.state):
            return
        for preemptor, victims in evicting.rehearsals(evictions).items():
            if all(self._is_due(eviction) for eviction in victims):
                self._begin(group, _rehearsal(preemptor), partial(self._rehearse, victims, turn))
        for eviction in evictions.values():
            is_rehearsing = _rehearsal(eviction.preemptor) in self._busy
            if eviction.intended and self._is_due(eviction) and not is_rehearsing:
                self._begin(group, eviction.uid, partial(self._carry_out, eviction, turn))

    def _begin(
        self, group: asyncio.TaskGroup, key: str, work: Callable[[], Awaitable[None]]
    ) -> None:
        if key in self._busy or len(self._busy) >= CONCURRENCY:
            return
        self._busy.add(key)
        group.create_task(self._at_work(key, work))

    async def _at_work(self, key: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work and wait until its outcome is folded, so that it is not repeated. An error of
        this code concerns only this work."""
        try:
            await work()
            await self._projector.wait_for(self._must_reach, REACH_TIMEOUT_S)
        except LeaseLost:
            raise
        except Exception as error:
            self._out.error(names.TASK_FAILED, task=f"evict {key}", problem=repr(error))
            await self._clock.sleep(IDLE_S)
        finally:
            self._busy.discard(key)
            self._woken.set()

    def _is_due(self, eviction: Eviction) -> bool:
        return self._tries.get(eviction.uid, Tries()).due_s <= self._clock.monotonic_s()

    async def _rehearse(self, victims: Sequence[Eviction], turn: Turn) -> None:
        """Rehearse all evictions for a preemptor, then intend all or none. A final refusal is the
        outcome of its victim.

        Answers may take seconds. A victim that ended meanwhile needs no eviction, and if the
        nomination has ended, none of them does.
        """
        preemptor = victims[0].preemptor
        answers = await self._ask_all(victims)
        outcomes = {victim.uid: answer for victim, answer in zip(victims, answers, strict=True)}
        current = self._projector.state.evictions
        remaining = [
            victim
            for victim in victims
            if current.get(victim.uid) is victim and victim.preemptor == preemptor
        ]
        for victim in remaining:
            outcome = outcomes[victim.uid]
            if isinstance(outcome, binding.EvictRefused):
                await self._append([self._outcome(victim, outcome, turn)])
                return
        if not remaining or any(outcomes[victim.uid] == "again" for victim in remaining):
            return
        await self._append([self._intent(victim, turn) for victim in remaining])
        crash_point("binder.after_evict_intent")

    async def _ask_all(self, victims: Sequence[Eviction]) -> list[Outcome | evicting.Again]:
        return await asyncio.gather(*(self._ask(victim, dry_run=True) for victim in victims))

    async def _carry_out(self, eviction: Eviction, turn: Turn) -> None:
        """Call the API server, unless the eviction was called off since its intent."""
        if eviction.called_off:
            outcome: Outcome | evicting.Again = binding.EvictRefused(
                eviction.uid, eviction.preemptor, "the nomination has ended"
            )
        else:
            outcome = await self._ask(eviction, dry_run=False)
        crash_point("binder.after_evict_call")
        if outcome != "again":
            await self._append([self._outcome(eviction, outcome, turn)])
            self._log_outcome(outcome)

    async def _ask(self, eviction: Eviction, dry_run: bool) -> Outcome | evicting.Again:
        pod = self._projector.state.pods.get(eviction.uid)
        if pod is None:
            return binding.PodEvicted(eviction.uid, eviction.preemptor)
        answer = await self._kube.evict(pod.namespace, pod.name, eviction.uid, dry_run=dry_run)
        status, message = (
            (0, answer.message) if isinstance(answer, Lost) else (answer.status, answer.message)
        )
        wait_s = 0.0 if isinstance(answer, Lost) else answer.retry_after_s
        tries = self._tries.setdefault(eviction.uid, Tries())
        tries.attempts += status != 0
        limit = (
            1 if dry_run and evicting.guarded(status, message) else self._settings.evict_attempts
        )
        outcome = evicting.judge(eviction, status, message, tries.attempts, limit)
        self._postpone(tries, outcome == "again", wait_s)
        return outcome

    def _postpone(self, tries: Tries, again: bool, wait_s: float) -> None:
        """Double the pause after each answer that put the eviction off; another answer resets
        it."""
        if not again:
            tries.attempts, tries.due_s = 0, 0.0
            return
        delay_s = self._settings.resend_after_s * 2 ** min(max(tries.attempts - 1, 0), 10)
        tries.due_s = self._clock.monotonic_s() + max(
            wait_s, min(delay_s, self._settings.resend_at_most_every_s)
        )

    def _log_outcome(self, outcome: Outcome) -> None:
        count(names.EVICTIONS, outcome=type(outcome).__name__)
        if isinstance(outcome, binding.PodEvicted):
            self._out.info(names.EVICTED, pod=outcome.uid, preemptor=outcome.preemptor)
        else:
            self._out.warning(
                names.EVICT_REFUSED,
                pod=outcome.uid,
                preemptor=outcome.preemptor,
                problem=outcome.message,
            )

    async def _append(self, commits: Sequence[Commit]) -> None:
        for outcome in await append_fenced(self._log, self._clock, self._out, commits):
            if isinstance(outcome, Appended | Duplicate):
                self._must_reach = max(self._must_reach, outcome.last)
        self._woken.set()

    def _intent(self, eviction: Eviction, turn: Turn) -> Commit:
        pod = self._projector.state.pods.get(eviction.uid, core.Identity("", ""))
        event = binding.EvictIntended(eviction.uid, pod.namespace, pod.name, eviction.preemptor)
        return self._commit(
            f"evict/{eviction.uid}/{eviction.preemptor}/{self._projector.position}",
            eviction,
            event,
            turn,
        )

    def _outcome(self, eviction: Eviction, outcome: Outcome, turn: Turn) -> Commit:
        name = type(outcome).__name__
        return self._commit(
            f"{name}/{eviction.uid}/{eviction.preemptor}/{self._projector.position}",
            eviction,
            outcome,
            turn,
        )

    def _commit(
        self, commit_id: str, eviction: Eviction, event: binding.BindingEvent, turn: Turn
    ) -> Commit:
        return Commit(
            commit_id=commit_id,
            role=ROLE,
            epoch=turn.lease.epoch,
            time_us=self._clock.now_us(),
            drafts=(Draft(core.stream_of(eviction.uid), event),),
            correlation=eviction.preemptor,
            seen=turn.seen,
        )
