"""Gangs: which pods are placed together, which reservations of a gang are withdrawn, and which
gang yields its nodes.

1. A gang waits until enough of its pods can be decided. Then its first pod stands in the queue for
   all of them, and the core places them together: one commit reserves all that are missing, or
   nothing. Nothing is held while a gang waits, so that two gangs cannot block each other.
2. While bindings of a gang are under way, no other pod of it is decided: their outcome may be a
   loss, and no commit of a gang counts on a pod that may be lost.
3. Pods beyond the minimum are placed by themselves once the minimum has been bound.
4. If a reservation is lost before the minimum is bound (the node or the pod ended, or the API
   server refused the binding), the gang's reservations that no binding has followed are withdrawn
   at once, and the gang is placed again. Bound pods stay, and count.
5. Such a gang holds nodes in part, and two of them may wait for each other. If no pod of it was
   bound for its time, it is rolled back: its pods are evicted, and it is placed as a whole. One
   gang yields at a time, that of the lowest priority, then the youngest one; then the times of the
   others begin again (L7). A gang that was whole once is never rolled back.

Must not know nodes, a clock or the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from services.scheduler.queue.queue import Queue
from services.scheduler.queue.shard import Shard
from services.scheduler.reserve.proposals import Proposal, withdrawal
from services.scheduler.state.state import SchedulerState
from shared.domain.gang import Gang
from shared.domain.pod import Pod
from shared.eventlog.port import Draft
from shared.events import streams
from shared.events.scheduling_events import GangRolledBack
from shared.ledger.state import LedgerPod

# Pods of a gang come one by one: only a gang that lacks pods for so long says so.
LACKS_PODS_AFTER_S = 1.0
PLACES_NONE = "the upstream plugin's caches place no gangs; use TOPOLOG_CACHE=ledger"


class Unit(NamedTuple):
    """Pods of a gang that are placed together: `missing` of `pods`, in this order. Pods of the gang
    are on `nodes`; `on_their_way` of them are reserved and not bound yet. `is_short`: with these
    the gang would have too few, so that they are withdrawn. `is_extra`: `pods` is one pod beyond
    the minimum. `stranded` are bound pods of a gang that holds nodes in part.
    """

    gang: Gang
    missing: int
    on_their_way: int
    is_short: bool
    pods: list[LedgerPod]
    nodes: tuple[str, ...] = ()
    is_extra: bool = False
    stranded: tuple[LedgerPod, ...] = ()

    @property
    def name(self) -> str:
        return self.gang.name

    @property
    def minimum(self) -> int:
        return self.gang.minimum

    def lacks_pods(self) -> str:
        """Return why the gang waits if it has too few pods."""
        if self.on_their_way:
            return f"gang {self.name} waits until {self.minimum} of its pods are bound"
        return f"gang {self.name} waits until {self.minimum} of its pods exist"

    def see_first(self) -> str:
        """Return why the pods after the first wait."""
        return f"gang {self.name} waits as a whole; see pod {self.pods[0].pod.name}"

    def with_only(self, uid: str) -> Unit | None:
        """Return the unit in which the pod is placed: the gang, or the pod alone if it must be
        where the gang is; None if it is placed by itself."""
        if self.missing > 0:
            return self
        pods = [entry for entry in self.pods if entry.pod.uid == uid]
        if not pods or not self.gang.rules.has_layers:
            return None
        return self._replace(missing=1, pods=pods, is_extra=True)


def unit_of(
    folded: SchedulerState, key: str, may_be_decided: Callable[[LedgerPod], bool]
) -> Unit | str | None:
    """Return the unit, or why its pods wait; None if the gang has no pods."""
    entries = _entries(folded, key)
    named = entries[0].pod.gang if entries else None
    if named is None:
        return None
    gang = folded.cluster_objects.complete(named)
    if isinstance(gang, str):
        return f"gang {named.name} waits: {gang}"
    members, policy = folded.gangs.members[key], gang.rules.match_policy
    if members.yielding:
        return yields(named.name)
    on_their_way = sum(
        entry.stage != "pending" and not members.started[entry.pod.uid] for entry in entries
    )
    counted = members.counted(policy)
    # A round of `only-waiting` may be bound in part already.
    kept = (members.bound if policy == "only-waiting" else counted) + on_their_way
    pods = sorted(
        filter(may_be_decided, entries), key=lambda entry: (-entry.pod.priority, entry.observed_at)
    )
    nodes = tuple(entry.node for entry in entries if entry.node)
    missing = gang.minimum - counted if gang.minimum > 1 else 0
    stranded = tuple(entry for entry in entries if entry.node and not entry.terminating)
    was_whole = members.was_whole or members.bound >= gang.minimum
    if was_whole or on_their_way or missing <= 0:
        stranded = ()
    return Unit(gang, missing, on_their_way, kept < gang.minimum, pods, nodes, stranded=stranded)


def yields(name: str) -> str:
    """Return why pods of a gang wait that is rolled back."""
    return f"gang {name} waits until its evicted pods have ended; only they were bound for too long"


def _entries(folded: SchedulerState, key: str) -> list[LedgerPod]:
    members = folded.gangs.members.get(key)
    return [folded.ledger.pods[uid] for uid in members.started] if members is not None else []


class GangConfig(Protocol):
    """The scheduler's name, what places instead of the ledger, and how long a gang may be bound in
    part before it is rolled back, unless its rules say otherwise; 0 for ever."""

    @property
    def scheduler_name(self) -> str: ...
    @property
    def upstream(self) -> object | None: ...
    @property
    def gang_timeout_s(self) -> float: ...


class _InPart(NamedTuple):
    """How many pods of a gang are bound without the others, since when (monotonic), and how long
    they may be."""

    bound: int
    since_s: float
    timeout_s: float


class GangQueue:
    """Puts gangs into the queue. `changed` are gangs that no turn has looked at yet, and `waiting`
    those without their minimum of nodes. `may_be_decided` answers for pods of this scheduler, and
    `shard` has the keys of its gangs.
    """

    def __init__(
        self,
        config: GangConfig,
        folded: SchedulerState,
        queue: Queue,
        may_be_decided: Callable[[LedgerPod], bool],
        shard: Callable[[], Shard],
    ) -> None:
        self._config = config
        self.folded, self.queue = folded, queue
        self._may_be_decided, self._shard = may_be_decided, shard
        self.changed: set[str] = set()
        self.waiting: set[str] = set()
        # Gangs that lack pods and have not said so, and since when.
        self._lacking: dict[str, float] = {}
        # Of all schedulers, so that the weakest gang of all yields.
        self._in_part: dict[str, _InPart] = {}
        self._roll_backs = folded.gangs.roll_backs

    def note(self, key: str) -> None:
        """Note that a gang changed, or that its last pod ended."""
        if key in self.folded.gangs.members:
            self.changed.add(key)
        else:
            self.changed.discard(key)
            self.waiting.discard(key)
            self._lacking.pop(key, None)
            self._in_part.pop(key, None)

    def waiting_since_us(self, key: str) -> int:
        """Return when the gang's first waiting pod was observed, 0 if none waits."""
        members = self.folded.gangs.members.get(key)
        since_us = self.folded.holds.waiting_since_us
        times = [since_us[uid] for uid in members.started if uid in since_us] if members else []
        return min(times, default=0)

    def unit(self, pod: Pod) -> Unit | None:
        """Return the unit of the pod; None if the pod is placed by itself."""
        unit = self._unit(pod.gang.key) if pod.gang is not None else None
        return unit.with_only(pod.uid) if isinstance(unit, Unit) else None

    def settle(self, now_s: float) -> tuple[list[Proposal], list[tuple[LedgerPod, str]]]:
        """Put the changed gangs into the queue. Return withdrawals, and pods that wait with their
        reason.
        """
        withdrawals, refused = list[Proposal](), list[tuple[LedgerPod, str]]()
        self._begin_again(now_s)
        overdue = {
            key for key, since_s in self._lacking.items() if now_s - since_s >= LACKS_PODS_AFTER_S
        }
        for key in sorted(self.changed | overdue):
            unit = self._unit(key)
            self._note_part(key, unit, now_s)
            unit = unit if self._shard().has(key) else None
            entries = _entries(self.folded, key)
            pods = unit.pods if isinstance(unit, Unit) else [*filter(self._may_be_decided, entries)]
            was_waiting, lacking_since_s = key in self.waiting, self._lacking.pop(key, now_s)
            if isinstance(unit, Unit) and unit.missing <= 0:
                self.waiting.discard(key)
                for entry in pods:
                    if was_waiting or entry.pod.uid not in self.queue:
                        self.queue.add(entry.pod, entry.observed_at)
                continue
            for entry in pods:
                self.queue.remove(entry.pod.uid)
            if unit is None:
                self.waiting.discard(key)
                continue
            lacks_nodes = isinstance(unit, str) or unit.missing > unit.on_their_way
            (self.waiting.add if lacks_nodes and pods else self.waiting.discard)(key)
            reserved = [entry for entry in entries if entry.stage == "reserved"]
            if isinstance(unit, str):
                refused += [(entry, unit) for entry in pods]
            elif reserved and unit.is_short:
                withdrawals += [self._withdrawal(entry) for entry in reserved]
            elif len(pods) >= unit.missing and not unit.on_their_way:
                self.queue.add(pods[0].pod, pods[0].observed_at)
            elif key in overdue:
                refused += [(entry, unit.lacks_pods()) for entry in pods]
            elif pods:
                self._lacking[key] = lacking_since_s
        self.changed.clear()
        return withdrawals, refused

    def _note_part(self, key: str, unit: Unit | str | None, now_s: float) -> None:
        stranded = unit.stranded if isinstance(unit, Unit) else ()
        if not isinstance(unit, Unit) or not self._are_ours(stranded):
            self._in_part.pop(key, None)
        elif key not in self._in_part or self._in_part[key].bound != len(stranded):
            timeout_s = unit.gang.rules.timeout_s or self._config.gang_timeout_s
            self._in_part[key] = _InPart(len(stranded), now_s, timeout_s)

    def _are_ours(self, stranded: tuple[LedgerPod, ...]) -> bool:
        """Return whether there are such pods, and this scheduler may take all of them back."""
        names = {"" if entry.static else entry.pod.scheduler_name for entry in stranded}
        return bool(self._config.gang_timeout_s) and names == {self._config.scheduler_name}

    def _begin_again(self, now_s: float) -> None:
        """After a roll-back, whichever scheduler made it, the others may have room."""
        gangs = self.folded.gangs
        if gangs.roll_backs == self._roll_backs:
            return
        self._roll_backs = gangs.roll_backs
        self.changed |= self._in_part.keys() & gangs.members.keys()
        self._in_part = {key: part._replace(since_s=now_s) for key, part in self._in_part.items()}

    def to_roll_back(self, now_s: float) -> tuple[str, Unit, int] | None:
        """Return the gang that yields now, if any: its key, its unit and how long it was bound in
        part (seconds). None of its pods is decided in this turn."""
        if all(now_s - part.since_s < part.timeout_s for part in self._in_part.values()):
            return None
        units = {key: unit for key in self._in_part if isinstance(unit := self._unit(key), Unit)}
        weakest = min(units, key=lambda key: _strength(units[key]), default="")
        part = self._in_part.get(weakest)
        if part is None or now_s - part.since_s < part.timeout_s or not self._shard().has(weakest):
            return None
        for entry in units[weakest].pods:
            self.queue.remove(entry.pod.uid)
        self.changed.add(weakest)
        return weakest, units[weakest], int(now_s - part.since_s)

    def rolled_back(
        self, key: str, unit: Unit, waited_s: int, verdicts: list[list[Proposal]]
    ) -> Proposal:
        """Return the roll-back, in one commit with `verdicts` on its waiting pods: a reservation of
        these meanwhile is a conflict."""
        folded = self.folded
        version = folded.versions.get(streams.GANGS, 0)
        uids = tuple([entry.pod.uid for entry in unit.stranded])
        event = GangRolledBack(key, uids, unit.minimum, waited_s)
        drafts = [draft for made in verdicts for proposal in made for draft in proposal.drafts]
        return Proposal(
            f"roll-back/{key}/{version}/{folded.ledger.position}",
            (Draft(streams.GANGS, event, version), *drafts),
            uids[0],
            folded.ledger.position,
        )

    def _unit(self, key: str) -> Unit | str | None:
        unit = unit_of(self.folded, key, self._may_be_decided)
        if self._config.upstream is not None and isinstance(unit, Unit):
            return f"gang {unit.name} waits: {PLACES_NONE}"
        return unit

    def _withdrawal(self, entry: LedgerPod) -> Proposal:
        folded, uid = self.folded, entry.pod.uid
        return withdrawal(uid, entry.node, folded.ledger.position, folded.versions, "gang")


def _strength(unit: Unit) -> tuple[int, int]:
    """Return the order in which gangs that are bound in part yield, the first one first."""
    pods = (*unit.stranded, *unit.pods)
    return (
        max(entry.pod.priority for entry in pods),
        -min(entry.observed_at for entry in pods),
    )
