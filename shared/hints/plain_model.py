"""Nodes on which an admission is arithmetic: a fast form of `KubeletModel` for most searches.

1. Under single-numa-node and scope container, each container takes the lowest zone that has all it
   requests free, if every manager of what it requests says so (`ResourceManager.plain_amounts`).
2. A state is then one integer for each zone, in which every resource has a field of 64 bits. The
   highest bit of a field is a guard: it stays set if the zone has enough.
3. `plain_form` returns None if a pod, or what an ended pod held, needs more than that.
   `KubeletModel` is the reference: a property test holds both equal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from shared.domain.policies import SINGLE_NUMA_NODE
from shared.domain.report import ZonedAmount
from shared.domain.resources import CPU
from shared.hints.admission import AdmissionOutcome, KubeletModel, NodeState
from shared.hints.provider import AmountsByZone, RequestedAmounts
from shared.hints.registry import owner_of
from shared.hints.request import HintRequest

WIDTH = 64
GUARD = 1 << (WIDTH - 1)
FIELD = (1 << WIDTH) - 1
# Larger amounts are left to the reference.
MOST = 1 << (WIDTH - 4)
# Larger sizes are no limit to such amounts, and do not fit the kernel's numbers.
LARGEST = 1 << (WIDTH - 2)
# CPUs are requested in thousandths; exclusive ones are whole.
MILLI = 1000
# Requests of which the needs are remembered.
REMEMBERED = 4096
REJECTED = AdmissionOutcome((), True)

# What a container needs, and the positions of the zones that could ever hold it.
Need = tuple[int, tuple[int, ...]]


class PlainForm(NamedTuple):
    """A node in plain form, and its states before all pending pods."""

    model: PlainModel
    bases: tuple[NodeState, ...]


class PlainModel:
    """Answers like the `KubeletModel` of the node, on states of one integer for each zone."""

    def __init__(self, sizes: AmountsByZone) -> None:
        self._zones = {zone: position for position, zone in enumerate(sorted(sizes))}
        names = sorted({name for amounts in sizes.values() for name in amounts})
        self._shifts = {name: WIDTH * place for place, name in enumerate(names)}
        self._sizes = [sizes[zone] for zone in self._zones]
        self._guards = sum(GUARD << shift for shift in self._shifts.values())
        self.shape = len(self._zones), len(names)
        self._needs: dict[int, tuple[HintRequest, tuple[Need, ...] | None]] = {}

    def packed(self, free: AmountsByZone) -> NodeState:
        """Return the state with these free amounts."""
        return tuple([self._pack(free.get(zone, {}).items()) for zone in self._zones])

    def _pack(self, amounts: Iterable[tuple[str, int]]) -> int:
        return sum([amount << self._shifts[name] for name, amount in amounts])

    def needs(self, request: HintRequest) -> tuple[Need, ...] | None:
        """Return what each container of the pod needs; None if the request is not plain."""
        entry = self._needs.get(id(request))
        if entry is None or entry[0] is not request:
            if len(self._needs) >= REMEMBERED:
                self._needs.clear()
            entry = self._needs[id(request)] = request, self._needs_of(request)
        return entry[1]

    def _needs_of(self, request: HintRequest) -> tuple[Need, ...] | None:
        if request.inits or request.one_zone:
            return None
        needs = []
        for container in request.steps:
            items = [item for asked in container.asked for item in asked]
            if not items or not all(self._is_plain(name, amount) for name, amount in items):
                return None
            could_hold = [
                position
                for position, sizes in enumerate(self._sizes)
                if all(name == CPU or sizes.get(name, 0) >= amount for name, amount in items)
            ]
            needs.append((self._pack(items), tuple(could_hold)))
        return tuple(needs)

    def numbers(self, states: NodeState) -> list[int]:
        """Return the free amounts [zone, resource]."""
        shifts = self._shifts.values()
        return [zone >> shift & FIELD for zone in states for shift in shifts]

    def needed_numbers(self, request: HintRequest) -> list[int]:
        """Return what a plain pod needs: how many containers it has, and for each the mask of the
        zones that could ever hold it, and its amounts.
        """
        needs = self.needs(request) or ()
        numbers = [len(needs)]
        for need, positions in needs:
            numbers += [sum(1 << position for position in positions), *self.numbers((need,))]
        return numbers

    @property
    def size_numbers(self) -> list[int]:
        """Return the sizes [zone, resource]."""
        return [min(sizes.get(name, 0), LARGEST) for sizes in self._sizes for name in self._shifts]

    def held_numbers(self, held: Sequence[ZonedAmount]) -> list[int]:
        """Return what the end of a pod that held this gives back [zone, resource] at most."""
        numbers = [0] * (len(self._zones) * len(self._shifts))
        for item in held:
            position, shift = self._zones.get(item.zones[0]), self._shifts.get(item.resource)
            if position is not None and shift is not None:
                amount = item.amount if item.resource != CPU else item.amount // MILLI * MILLI
                numbers[position * len(self._shifts) + shift // WIDTH] += amount
        return [min(number, LARGEST) for number in numbers]

    def _is_plain(self, name: str, amount: int) -> bool:
        is_whole = name != CPU or not amount % MILLI
        return name in self._shifts and 0 < amount < MOST and is_whole

    def admit(self, states: NodeState, request: HintRequest) -> AdmissionOutcome:
        """Return the outcome of the pod's admission."""
        guards, free = self._guards, list(states)
        for need, positions in self.needs(request) or ():
            for position in positions:
                rest = free[position] + guards - need
                if rest & guards == guards:
                    free[position] = rest - guards
                    break
            else:
                return REJECTED
        return AdmissionOutcome((tuple(free),), False)

    def refuses(self, states: NodeState, request: HintRequest) -> bool:
        """Return True if the kubelet rejects the pod."""
        return self.admit(states, request).refused

    def later(self, states: NodeState) -> tuple[NodeState, ...]:
        """Return no states: only init containers free something, and plain pods have none."""
        return ()

    def is_plain(self, held: Sequence[ZonedAmount]) -> bool:
        """Return whether what a pod held can be released."""
        return all(
            len(item.zones) == 1 and 0 <= item.amount < MOST
            for item in held
            if item.resource in self._shifts
        )

    def released(self, states: NodeState, held: Sequence[ZonedAmount]) -> NodeState:
        """Return the state after the end of a pod that held this. No zone then has more free than
        its size."""
        free = list(states)
        for item in held:
            position, shift = self._zones.get(item.zones[0]), self._shifts.get(item.resource)
            if position is None or shift is None:
                continue
            amount = item.amount if item.resource != CPU else item.amount // MILLI * MILLI
            had = free[position] >> shift & FIELD
            room = self._sizes[position].get(item.resource, 0) - had
            free[position] += max(0, min(amount, room)) << shift
        return tuple(free)

    def taken(self, before: NodeState, after: NodeState) -> tuple[int, ...]:
        """Return what the admission took that led from one state to the other."""
        return tuple([had - has for had, has in zip(before, after, strict=True)])

    def given_back(self, states: NodeState, taken: Sequence[int]) -> NodeState:
        """Return the state after the end of the pod that took this."""
        return tuple([free + amounts for free, amounts in zip(states, taken, strict=True)])


def plain_form(
    model: KubeletModel,
    bases: Sequence[NodeState],
    requests: Iterable[HintRequest],
    held: Collection[Sequence[ZonedAmount]],
) -> PlainForm | None:
    """Return the node in plain form, for these requests of pending and ended pods, and what ended
    pods held; None if it is not plain, or if managers may correct what is free at an end."""
    topology = model.topology_manager
    if topology.policy != SINGLE_NUMA_NODE or topology.scope != "container":
        return None
    sizes: AmountsByZone = {}
    free_of_bases: list[AmountsByZone] = [{} for _ in bases]
    for number, manager in enumerate(model.managers):
        amounts_of_bases = [manager.plain_amounts(base[number]) for base in bases]
        for free, amounts in zip(free_of_bases, amounts_of_bases, strict=True):
            if amounts is not None and None not in amounts_of_bases:
                _add(free, amounts.free, number)
                _add(sizes, amounts.sizes, number)
    if held and any(_exceeds(free, sizes) for free in free_of_bases):
        return None
    every = [amount for free in free_of_bases for zone in free.values() for amount in zone.values()]
    if len(sizes) < 2 or min(every, default=0) < 0 or max(every, default=0) >= MOST:
        return None
    kind = tuple([(zone, tuple(sorted(sizes[zone].items()))) for zone in sorted(sizes)])
    plain_model = _model(kind)
    if any(plain_model.needs(request) is None for request in requests):
        return None
    if not all(map(plain_model.is_plain, held)):
        return None
    return PlainForm(plain_model, tuple(dict.fromkeys(map(plain_model.packed, free_of_bases))))


@lru_cache(maxsize=1024)
def _model(sizes: tuple[tuple[int, RequestedAmounts], ...]) -> PlainModel:
    """Nodes of one kind share their model, and what requests need there."""
    return PlainModel({zone: dict(amounts) for zone, amounts in sizes})


def _exceeds(free: AmountsByZone, sizes: AmountsByZone) -> bool:
    """Return whether a zone has more free than its size."""
    return any(
        amount > sizes[zone].get(name, 0)
        for zone, amounts in free.items()
        for name, amount in amounts.items()
    )


def _add(amounts: AmountsByZone, more: AmountsByZone, owner: int) -> None:
    """Add the resources of this provider: it may also count those of a later one."""
    for zone, items in more.items():
        of_owner = {name: amount for name, amount in items.items() if owner_of(name) == owner}
        amounts.setdefault(zone, {}).update(of_owner)
