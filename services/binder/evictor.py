"""The evicting loop: ask whether all victims may go, intent in the log, the call, the outcome in the log.

A nomination whose victims are not all allowed evicts none: the API server is asked by dry run first. Works off the fold's
list, so that a restart finds every intent without outcome again. Must not decide what an answer means (`evicting.judge`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from services.binder import core, evicting
from services.binder.appending import append_fenced
from services.binder.core import BinderState
from services.binder.evicting import Eviction
from services.binder.settings import BinderSettings
from shared.eventlog.port import Appended, Commit, Draft, Duplicate, EventLog, Lease, Place
from shared.events import binding_facts as binding
from shared.kube.port import Kube, Lost
from shared.runtime.clock import Clock
from shared.runtime.crash import crash_point
from shared.runtime.groups import lease_losses
from shared.runtime.projector import Folded, Projector
from shared.telemetry import logs, names
from shared.telemetry.instruments import count

ROLE = "binder"
REACH_TIMEOUT_S = 30.0
IDLE_S = 0.5
ROUND_LIMIT = 100
"""Evictions that one round looks at."""

Outcome = binding.PodEvicted | binding.EvictRefused


class Tries(msgspec.Struct):
    """How often the API said "not now", and when it is asked again (monotonic seconds)."""

    attempts: int = 0
    at_s: float = 0.0


class Evictor:
    """Leads with the binder's lease; `lead` runs beside the binding loop."""

    def __init__(
        self, log: EventLog, kube: Kube, projector: Projector[BinderState], settings: BinderSettings, clock: Clock
    ) -> None:
        self._log = log
        self._kube = kube
        self._projector = projector
        self._settings = settings
        self._clock = clock
        self._woken = asyncio.Event()
        self._tries: dict[str, Tries] = {}
        self._must_reach = 0
        self._seen = Place()
        self._out = logs.get("binder")

    def folded(self, state: BinderState, folded: Folded) -> None:
        """Something may be to do."""
        if folded and state.evictions:
            self._woken.set()

    def reset(self, _state: BinderState) -> None:
        """Another log, timeline or history."""
        self._must_reach = 0
        self._tries.clear()

    async def lead(self, lease: Lease) -> None:
        """Carry out evictions until the lease is lost."""
        await self._projector.wait_live()
        with lease_losses():
            while True:
                self._woken.clear()
                if await self._projector.wait_for(self._must_reach, REACH_TIMEOUT_S):
                    await self._round(lease)
                await self._rest()

    async def _rest(self) -> None:
        try:
            await asyncio.wait_for(self._woken.wait(), IDLE_S)
        except TimeoutError:
            return

    async def _round(self, lease: Lease) -> None:
        evictions, self._seen = self._projector.state.evictions, self._projector.place
        self._tries = {uid: tries for uid, tries in self._tries.items() if uid in evictions}
        for victims in list(evicting.rehearsals(evictions).values())[:ROUND_LIMIT]:
            if all(self._due(each) for each in victims):
                await self._rehearse(victims, lease)
        for each in [each for each in evictions.values() if each.intended][:ROUND_LIMIT]:
            if self._due(each):
                await self._carry_out(each, lease)

    def _due(self, eviction: Eviction) -> bool:
        return self._tries.get(eviction.uid, Tries()).at_s <= self._clock.monotonic_s()

    async def _rehearse(self, victims: Sequence[Eviction], lease: Lease) -> None:
        """Ask for all; intend all or none. A no that lasts is the outcome of the victim that it concerns."""
        for each in victims:
            outcome = await self._ask(each, dry_run=True)
            if outcome == "again":
                return
            if isinstance(outcome, binding.EvictRefused):
                await self._append([self._settling(each, outcome, lease)])
                return
        await self._append([self._intent(each, lease) for each in victims])
        crash_point("binder.after_evict_intent")

    async def _carry_out(self, eviction: Eviction, lease: Lease) -> None:
        """The call; an eviction called off since its intent is not made any more."""
        if eviction.called_off:
            outcome: Outcome | evicting.Again = binding.EvictRefused(eviction.uid, eviction.preemptor, "the nomination has ended")
        else:
            outcome = await self._ask(eviction, dry_run=False)
        crash_point("binder.after_evict_call")
        if outcome != "again":
            await self._append([self._settling(eviction, outcome, lease)])
            self._say(outcome)

    async def _ask(self, eviction: Eviction, dry_run: bool) -> Outcome | evicting.Again:
        pod = self._projector.state.pods.get(eviction.uid)
        if pod is None:
            return binding.PodEvicted(eviction.uid, eviction.preemptor)
        answer = await self._kube.evict(pod.namespace, pod.name, eviction.uid, dry_run=dry_run)
        status, message = (0, answer.message) if isinstance(answer, Lost) else (answer.status, answer.message)
        tries = self._tries.setdefault(eviction.uid, Tries())
        tries.attempts += status != 0
        outcome = evicting.judge(eviction, status, message, tries.attempts, self._settings.evict_attempts)
        self._postpone(tries, outcome == "again")
        return outcome

    def _postpone(self, tries: Tries, again: bool) -> None:
        """Twice as late each time; an answer that settles starts anew."""
        if not again:
            tries.attempts, tries.at_s = 0, 0.0
            return
        delay_s = self._settings.resend_after_s * 2 ** min(max(tries.attempts - 1, 0), 10)
        tries.at_s = self._clock.monotonic_s() + min(delay_s, self._settings.resend_at_most_every_s)

    def _say(self, outcome: Outcome) -> None:
        count(names.EVICTIONS, outcome=type(outcome).__name__)
        if isinstance(outcome, binding.PodEvicted):
            self._out.info(names.EVICTED, pod=outcome.uid, preemptor=outcome.preemptor)
        else:
            self._out.warning(names.EVICT_REFUSED, pod=outcome.uid, preemptor=outcome.preemptor, problem=outcome.message)

    async def _append(self, commits: Sequence[Commit]) -> None:
        for outcome in await append_fenced(self._log, self._clock, commits):
            if isinstance(outcome, Appended | Duplicate):
                self._must_reach = max(self._must_reach, outcome.last)
        self._woken.set()

    def _intent(self, eviction: Eviction, lease: Lease) -> Commit:
        pod = self._projector.state.pods.get(eviction.uid, core.Identity("", ""))
        fact = binding.EvictIntended(eviction.uid, pod.namespace, pod.name, eviction.preemptor)
        return self._commit(f"evict/{eviction.uid}/{eviction.preemptor}/{self._projector.position}", eviction, fact, lease)

    def _settling(self, eviction: Eviction, outcome: Outcome, lease: Lease) -> Commit:
        name = type(outcome).__name__
        return self._commit(f"{name}/{eviction.uid}/{eviction.preemptor}/{self._projector.position}", eviction, outcome, lease)

    def _commit(self, commit_id: str, eviction: Eviction, fact: binding.BindingFact, lease: Lease) -> Commit:
        return Commit(
            commit_id=commit_id,
            role=ROLE,
            epoch=lease.epoch,
            time_us=self._clock.now_us(),
            drafts=(Draft(core.stream_of(eviction.uid), fact),),
            correlation=eviction.preemptor,
            seen=self._seen,
        )
