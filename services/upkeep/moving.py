"""Carry out a plan of moves (`topolog plan defragment --apply`), one step at a time.

1. A step is one commit: the booking or waiting pod that gets the room is nominated for the node,
   and the pods that are evicted there are its victims. The binder evicts them as for a preemptor:
   all or none, each by the Eviction API, which asks the disruption budgets. The claim of the
   nomination keeps the room until the scheduler places the booking or pod.
2. Before a step the plan is asked again on the newest state: the same node, pods and targets.
   After it, controllers must have created the evicted pods again, and the scheduler must have
   placed them where the plan said. Otherwise no further step is begun.
3. If this process dies, the services complete the step that was begun. A later run finds its
   booking by name, waits for it, and plans the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping

import msgspec

from services.replay.deciding_state import Followed, followed_at
from services.replay.defragmenting import Planner, Step
from shared.domain.pod import Pod
from shared.eventlog.port import Appended, Commit, Draft, Duplicate, EventLog
from shared.eventlog.whole_stream import readable_events_of
from shared.events import streams
from shared.events.binding_events import EvictRefused
from shared.events.scheduling_events import (
    BookingMade,
    NodeClaimed,
    NominationWithdrawn,
    PodNominated,
)
from shared.ledger.state import Ledger, LedgerPod
from shared.runtime.clock import Clock

ROLE = "operator"
TRIES = 5
# How long a change of the log is waited for before the clock is looked at.
LOOK_S = 1.0


class Wanted(msgspec.Struct, frozen=True):
    """What gets the room of a step: a pod of the log, or a booking that is made with the step."""

    pod: Pod
    booking: BookingMade | None = None


class Result(msgspec.Struct, frozen=True):
    """Whether the room is made (`done`), and what differs from the plan, "" for nothing."""

    done: bool
    problem: str = ""


class Mover:
    """Carries out steps. `planner` plans on a state and what the API says of budgets then; `say`
    shows progress.
    """

    def __init__(
        self,
        log: EventLog,
        planner: Callable[[Followed], Awaitable[Planner]],
        clock: Clock,
        timeout_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._log, self._planner, self._clock = log, planner, clock
        self._timeout_s, self._say = timeout_s, say
        self._followed: Followed | None = None

    async def carry_out(self, step: Step, wanted: Wanted) -> Result:
        """Carry out one step, unless it would be planned otherwise by now."""
        for _ in range(TRIES):
            uid = wanted.pod.uid
            versions = await self._log.versions([streams.pod(uid), streams.node(step.node)])
            pods = dict((await self._ledger()).pods)
            drafts, problem = await self._drafts(step, wanted, versions)
            if problem:
                return Result(False, problem)
            commit_id = f"move/{uid}/{versions[streams.pod(uid)]}"
            now_us = self._clock.now_us()
            commit = Commit(commit_id, ROLE, 0, now_us, drafts, correlation=uid)
            if not drafts or await self._has(commit):
                for move in step.moves:
                    self._say(f"evicting {move.pod} from {step.node}")
                return await self.completed(step, wanted, pods)
        return Result(False, f"the log changed during each of {TRIES} tries")

    async def _has(self, commit: Commit) -> bool:
        """Append a commit and return whether the log has it, also from an attempt whose answer was
        lost.
        """
        (outcome,) = await self._log.append([commit])
        return isinstance(outcome, Appended | Duplicate)

    async def _drafts(
        self, step: Step, wanted: Wanted, versions: Mapping[str, int]
    ) -> tuple[tuple[Draft, ...], str]:
        """Return the events of a step if it would be planned again, else what differs."""
        assert self._followed is not None
        planner, pod = await self._planner(self._followed), wanted.pod
        again = planner.again(pod, step)
        if again is None or list(_targets(again)) != list(_targets(step)):
            return (), f"the plan differs by now: {_difference(step, again)}"
        stream, node_stream = streams.pod(pod.uid), streams.node(step.node)
        events: list[BookingMade | PodNominated] = (
            [] if wanted.booking is None else [wanted.booking]
        )
        if step.moves:
            made = planner.nomination(pod, step)
            if made is None:
                return (), "the evictions do not surely make room"
            position = self._followed[0].ledger.position
            events.append(
                PodNominated(
                    pod.uid, made.node, made.victims, made.zones, position, devices=made.devices
                )
            )
        version = versions[stream]
        drafts = [Draft(stream, event, version + number) for number, event in enumerate(events)]
        if step.moves:
            claimed = NodeClaimed(step.node, pod.uid)
            drafts.append(Draft(node_stream, claimed, versions[node_stream]))
        return tuple(drafts), ""

    async def completed(
        self, step: Step, wanted: Wanted, before: Mapping[str, LedgerPod]
    ) -> Result:
        """Wait until everything of a step is placed. `before` are the pods that lived when it was
        begun.
        """
        uid, until_s = wanted.pod.uid, self._clock.monotonic_s() + self._timeout_s
        ending = {move.uid: move.pod for move in step.moves}
        is_said = False
        while True:
            ledger = await self._ledger()
            for gone in [victim for victim in ending if victim not in ledger.pods]:
                self._say(f"evicted {ending.pop(gone)}")
            entry = ledger.pods.get(uid)
            if entry is None:
                return Result(False, f"{wanted.pod.name} ended before it was placed")
            if entry.node and not is_said:
                self._say(f"room for {wanted.pod.name} on {entry.node}")
                is_said = True
            if entry.node and step.node not in (entry.node, ""):
                planned = f"{wanted.pod.name} was placed on {entry.node}, not on {step.node}"
                return Result(True, planned)
            if not entry.node and step.moves and entry.nominated != step.node:
                return Result(False, await self._called_off(step, uid))
            problem = _unplaced(step, before, ledger)
            if problem is None and entry.node and not ending:
                return Result(True, _elsewhere(step, before, ledger))
            if self._clock.monotonic_s() >= until_s:
                await self._withdraw(uid, entry)
                waits = problem or f"{wanted.pod.name} has no node"
                return Result(False, f"after {self._timeout_s:.0f} s: {waits}")
            await self._log.wait(ledger.position, LOOK_S)

    async def _called_off(self, step: Step, uid: str) -> str:
        """Return why the evictions for this pod were called off."""
        reasons = [
            f"eviction of {move.pod} was refused: {event.message}"
            for move in step.moves
            async for _, event in readable_events_of(self._log, streams.pod(move.uid))
            if isinstance(event, EvictRefused) and event.preemptor == uid
        ]
        return reasons[-1] if reasons else "the scheduler called the evictions off"

    async def _withdraw(self, uid: str, entry: LedgerPod) -> None:
        """End an open nomination, so that nothing more is evicted for it."""
        if not entry.nominated:
            return
        stream = streams.pod(uid)
        version = (await self._log.versions([stream]))[stream]
        event = NominationWithdrawn(uid, entry.nominated, "the step took too long")
        commit_id, now_us = f"move-withdraw/{uid}/{version}", self._clock.now_us()
        drafts = (Draft(stream, event, version),)
        await self._log.append([Commit(commit_id, ROLE, 0, now_us, drafts, correlation=uid)])

    async def _ledger(self) -> Ledger:
        self._followed = await followed_at(self._log, await self._log.head(), self._followed)
        return self._followed[0].ledger


def _targets(step: Step) -> Iterator[tuple[str, str]]:
    yield "", step.node
    yield from sorted((move.uid, move.to) for move in step.moves)


def _difference(step: Step, again: Step | None) -> str:
    if again is None:
        if not step.moves:
            return f"{step.node} has no room"
        return f"evictions on {step.node} make no room, or are not needed"
    moves = ", ".join(f"{move.pod} to {move.to}" for move in again.moves)
    return f"room on {again.node}" + (f" with {moves}" if moves else "")


def _replacements(
    step: Step, before: Mapping[str, LedgerPod], ledger: Ledger
) -> Iterator[tuple[str, list[LedgerPod]]]:
    """Yield each controller of evicted pods, and its pods that came since."""
    new = [entry for uid, entry in ledger.pods.items() if uid not in before]
    for controller in sorted({before[move.uid].pod.controller for move in step.moves}):
        yield controller, [entry for entry in new if entry.pod.controller == controller]


def _unplaced(step: Step, before: Mapping[str, LedgerPod], ledger: Ledger) -> str | None:
    """Return which evicted pod has no node again, None if all have."""
    evicted = Counter(before[move.uid].pod.controller for move in step.moves)
    for controller, entries in _replacements(step, before, ledger):
        placed = sum(entry.stage in ("bound", "running") for entry in entries)
        if placed < evicted[controller]:
            waiting = next((entry for entry in entries if not entry.node), None)
            if waiting is not None:
                return f"{waiting.pod.key} waits: {waiting.verdict or 'not decided'}"
            _, kind, name, _ = controller.split(" ", 3)
            return f"{kind} {name} did not create an evicted pod again"
    return None


def _elsewhere(step: Step, before: Mapping[str, LedgerPod], ledger: Ledger) -> str:
    """Return which evicted pods are on other nodes than planned, "" if none is."""
    for controller, entries in _replacements(step, before, ledger):
        planned = Counter(
            move.to for move in step.moves if before[move.uid].pod.controller == controller
        )
        nodes = Counter(entry.node for entry in entries if entry.node)
        if missing := planned - nodes:
            pods = ", ".join(f"{entry.pod.key} on {entry.node}" for entry in entries)
            return f"planned on {', '.join(sorted(missing))}, but the scheduler placed {pods}"
    return ""
