"""Admission of one pod by a kubelet, in one state of the node.

1. A node state has one state for each provider of the registry, in its order.

2. `KubeletModel.admit` walks as the kubelet does (kubelet 1.36, topologymanager/scope_*.go):
   hints, merge, then each manager allocates, container by container. Under scope pod the hints of
   the whole pod are merged once.

3. If a manager may allocate in several ways, the walk follows all of them. The outcome has every
   state that the pod may leave, and says if some way ends in a rejection. If an answer depends on
   something that a state leaves open, the walk decides it in every way.

4. Most pods fit one zone that every manager prefers. The merge then takes the lowest such zone
   under every policy, so `single` decides and no hints are enumerated.

5. A request may demand one zone (`HintRequest.one_zone`) where the kubelet's policy does not. A way
   that uses several zones, or unknown ones, then counts as a rejection, although the kubelet admits
   the pod: its state is among `states` all the same.

6. Answers are pure functions of state and request, so they are remembered.

Must not know the ledger, or the order in which pods are admitted (`admission_orders`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import reduce
from itertools import product
from operator import or_
from typing import NamedTuple

from shared.domain.policies import NONE, SINGLE_NUMA_NODE
from shared.domain.report import ZonedAmount
from shared.hints.provider import (
    NO_OPINION,
    RequestedAmounts,
    ResourceManager,
    Reusable,
    State,
    TakenAmounts,
)
from shared.hints.request import ContainerRequest, HintRequest, ManagerRequests
from shared.hints.splits import TooManyChoicesError, TooManyWaysError, UndecidedStateError
from shared.kubelet.hint import Hint
from shared.kubelet.masks import TooManyNodesError
from shared.kubelet.topology_manager import NO_HINT, TopologyManager, merge

NodeState = tuple[State, ...]

# Ways through the containers of a pod that are followed together.
MOST_WAYS = 2048
# Answers that a model remembers. If there are more, all are forgotten and computed again.
REMEMBERED = 1 << 15


class AdmissionOutcome(NamedTuple):
    """What becomes of a pod in one node state.

    `states` are all that it may leave, and `refused` is True if some choice of the kubelet rejects
    it. `zones` are the masks by container of the first way, 0 for a container without a mask.
    `too_many_states`: it may leave more states than the search follows, and `states` is empty."""

    states: tuple[NodeState, ...]
    refused: bool
    zones: tuple[int, ...] = ()
    too_many_states: bool = False


class ContainerZones(NamedTuple):
    """The zones from which a container takes what it holds: `mask`. The zones of `unknown` amounts
    are not known."""

    mask: int
    unknown: RequestedAmounts = ()


class AdmissionWay(NamedTuple):
    """One way through the containers so far."""

    states: NodeState
    reusable: tuple[Reusable, ...]
    zones: tuple[int, ...]
    # Masks of what each container was given, -1 for unknown; None if the request demands no zone.
    taken: tuple[int, ...] | None = None


class KubeletModel:
    """A kubelet's Topology Manager and resource managers. Nodes of one kind share an instance."""

    def __init__(
        self, topology_manager: TopologyManager, managers: tuple[ResourceManager, ...]
    ) -> None:
        self.topology_manager, self.managers = topology_manager, managers
        self._outcomes: dict[tuple[NodeState, object], AdmissionOutcome] = {}
        self._zones: dict[tuple[NodeState, object], tuple[ContainerZones, ...] | None] = {}
        self._later: dict[NodeState, tuple[NodeState, ...]] = {}

    def admit(self, states: NodeState, request: HintRequest) -> AdmissionOutcome:
        """Return the outcome of the pod's admission. Raises TooManyChoicesError."""
        outcome = self._outcome(states, request)
        if outcome.too_many_states:
            raise TooManyWaysError
        return outcome

    def refuses(self, states: NodeState, request: HintRequest) -> bool:
        """Return True if some choice of the kubelet rejects the pod, whatever states the others
        leave. Raises TooManyChoicesError."""
        return self._outcome(states, request).refused

    def _outcome(self, states: NodeState, request: HintRequest) -> AdmissionOutcome:
        key = states, request.key
        outcome = self._outcomes.get(key)
        if outcome is None:
            if len(self._outcomes) >= REMEMBERED:
                self._outcomes.clear()
            outcome = self._outcomes[key] = self._admit(states, request)
        return outcome

    def zones(self, states: NodeState, request: HintRequest) -> tuple[ContainerZones, ...] | None:
        """Return the zones from which each container takes what it holds, None if the kubelet
        rejects the pod. If the kubelet may choose, the widest choice counts.

        They are not always those of the merged hint, because managers also take what lies outside
        it (kubelet 1.36, best-effort). Raises TooManyChoicesError."""
        key = states, request.key
        if key not in self._zones:
            if len(self._zones) >= REMEMBERED:
                self._zones.clear()
            self._zones[key] = self._zones_of(states, request)
        return self._zones[key]

    def _zones_of(
        self, states: NodeState, request: HintRequest
    ) -> tuple[ContainerZones, ...] | None:
        way, whole = AdmissionWay(states, (None,) * len(states), ()), None
        if self.topology_manager.scope == "pod":
            whole = self._hint(states, way.reusable, request.whole)
            if whole is None:
                return None
        by_container = []
        for container in request.steps:
            longer = self._allocate(way, container, whole)
            if not longer:
                return None
            choices = [(self._taken(way, after, container), after) for after in longer]
            widest, way = max(choices, key=lambda choice: choice[0].mask.bit_count())
            by_container.append(widest)
        return tuple(by_container)

    def _taken(
        self, before: AdmissionWay, after: AdmissionWay, container: ContainerRequest
    ) -> ContainerZones:
        mask, hint, unknown = 0, after.zones[-1], list[tuple[str, int]]()
        for index, (manager, requested) in enumerate(
            zip(self.managers, container.asked, strict=True)
        ):
            if not requested:
                continue
            zones = manager.zones_taken(
                before.states[index],
                after.states[index],
                before.reusable[index],
                after.reusable[index],
            )
            if zones is not None:
                mask |= zones
            elif hint:
                mask |= hint
            else:
                unknown += requested
        return ContainerZones(mask, tuple(unknown))

    def later(self, states: NodeState) -> tuple[NodeState, ...]:
        """Return what the node may become without an admission or an end, one step each."""
        next_states = self._later.get(states)
        if next_states is None:
            if len(self._later) >= REMEMBERED:
                self._later.clear()
            next_states = self._later[states] = tuple(self._next_states(states))
        return next_states

    def _next_states(self, states: NodeState) -> list[NodeState]:
        next_states: list[NodeState] = []
        for index, (manager, state) in enumerate(zip(self.managers, states, strict=True)):
            next_states += [
                (*states[:index], later, *states[index + 1 :]) for later in manager.later(state)
            ]
        return next_states

    def released(self, states: NodeState, held: Sequence[ZonedAmount]) -> NodeState:
        """Return the node state after the end of a pod that held this."""
        pairs = zip(self.managers, states, strict=True)
        return tuple([manager.release(state, held) for manager, state in pairs])

    def with_held(self, states: NodeState, held: Sequence[ZonedAmount]) -> NodeState:
        """Return the node state with this taken, as far as it is free."""
        pairs = zip(self.managers, states, strict=True)
        return tuple([manager.hold(state, held) for manager, state in pairs])

    def taken(self, before: NodeState, after: NodeState) -> tuple[TakenAmounts, ...]:
        """Return what the admission took that led from one state to the other. Raises
        TooManyChoicesError."""
        triples = zip(self.managers, before, after, strict=True)
        return tuple([manager.taken(earlier, later) for manager, earlier, later in triples])

    def given_back(self, states: NodeState, taken: Sequence[TakenAmounts]) -> NodeState:
        """Return the node state after the end of the pod that took this."""
        triples = zip(self.managers, states, taken, strict=True)
        return tuple([manager.given_back(state, amounts) for manager, state, amounts in triples])

    def _admit(self, states: NodeState, request: HintRequest) -> AdmissionOutcome:
        taken = () if request.one_zone else None
        ways, refused = [AdmissionWay(states, (None,) * len(states), (), taken)], False
        whole: Hint | None = None
        if self.topology_manager.scope == "pod":
            try:
                whole = self._hint(states, ways[0].reusable, request.whole)
            except UndecidedStateError as error:
                return _joined([self._admit(each, request) for each in _decided(states, error)])
            if whole is None:
                return AdmissionOutcome((), True)
        for number, container in enumerate(request.steps, 1):
            try:
                longer = [
                    further for way in ways for further in self._decide(way, container, whole)
                ]
            except TooManyWaysError:
                if number < len(request.steps):
                    raise
                refused = refused or bool(request.one_zone)
                refused = refused or any(self._refused(way, container, whole) for way in ways)
                return AdmissionOutcome((), refused, too_many_states=True)
            refused = refused or not all(longer)
            ways = self._followed(_distinct([way for some in longer for way in some]))
            if len(ways) > MOST_WAYS:
                raise TooManyChoicesError
        refused = refused or not all(_is_in_one_zone(way, request) for way in ways)
        final_states = dict.fromkeys([self._after_admission(way) for way in ways])
        return AdmissionOutcome(tuple(final_states), refused, ways[0].zones if ways else ())

    def _followed(self, ways: list[AdmissionWay]) -> list[AdmissionWay]:
        return ways

    def _zones_taken(self, way: AdmissionWay, after: NodeState, left: tuple[Reusable, ...]) -> int:
        rows = zip(self.managers, way.states, after, way.reusable, left, strict=True)
        masks = [
            manager.zones_taken(earlier, later, reusable, reusable_after)
            for manager, earlier, later, reusable, reusable_after in rows
            if earlier != later or reusable != reusable_after
        ]
        return -1 if None in masks else reduce(or_, [mask or 0 for mask in masks], 0)

    def _hint(
        self, states: NodeState, reusable: tuple[Reusable, ...], requests: ManagerRequests
    ) -> Hint | None:
        """Return the merged hint, None if the policy rejects the request."""
        if self.topology_manager.policy == NONE:
            return NO_HINT
        single = NO_OPINION
        for manager, state, reused, requested in zip(
            self.managers, states, reusable, requests, strict=True
        ):
            if requested:
                single &= self._single(manager, state, reused, requested)
        if single > 0:
            lowest = single & -single
            return Hint(None if self._is_everything(lowest) else lowest, True)
        if single == 0 and self.topology_manager.policy == SINGLE_NUMA_NODE:
            return None
        quadruples = zip(self.managers, states, reusable, requests, strict=True)
        try:
            hints = [
                manager.hints(state, reused, requested) if requested else None
                for manager, state, reused, requested in quadruples
            ]
        except TooManyNodesError as error:
            raise TooManyChoicesError from error
        hint, admitted = merge(self.topology_manager, hints)
        return hint if admitted else None

    def _single(
        self, manager: ResourceManager, state: State, left: Reusable, requested: RequestedAmounts
    ) -> int:
        """Return the zones that the manager prefers alone.

        A manager without any hint has no preference. If it is asked by container, it then rejects
        the allocation; if it is asked for a whole pod, each container may still find room."""
        zones = manager.single(state, left, requested)
        asks_by_container = self.topology_manager.scope != "pod"
        if zones or asks_by_container or self.topology_manager.policy != SINGLE_NUMA_NODE:
            return zones
        return zones if manager.hints(state, left, requested) else NO_OPINION

    def _is_everything(self, mask: int) -> bool:
        """On a machine of one zone, single-numa-node stores no mask at all."""
        is_single = self.topology_manager.policy == SINGLE_NUMA_NODE
        return is_single and mask == self.topology_manager.default_mask

    def _decide(
        self, way: AdmissionWay, container: ContainerRequest, whole: Hint | None
    ) -> list[list[AdmissionWay]]:
        """Return the ways on through one container, for each way to decide what its state leaves
        open."""
        try:
            return [self._allocate(way, container, whole)]
        except UndecidedStateError as error:
            return [
                further
                for states in _decided(way.states, error)
                for further in self._decide(way._replace(states=states), container, whole)
            ]

    def _allocate(
        self, way: AdmissionWay, container: ContainerRequest, whole: Hint | None
    ) -> list[AdmissionWay]:
        """Return every way on through one container, none if the kubelet rejects it."""
        hint = whole or self._hint(way.states, way.reusable, container.asked)
        if hint is None:
            return []
        by_manager: list[Sequence[tuple[State, Reusable]]] = []
        for manager, state, reused, requested in zip(
            self.managers, way.states, way.reusable, container.asked, strict=True
        ):
            allocations: Sequence[tuple[State, Reusable]] = ((state, reused),)
            if requested:
                allocations = manager.allocate(state, reused, requested, container.kind, hint)
            if not allocations:
                return []
            by_manager.append(allocations)
        zones, longer = (*way.zones, hint.mask or 0), list[AdmissionWay]()
        for choice in product(*by_manager):
            states, kept = tuple([each[0] for each in choice]), tuple([each[1] for each in choice])
            taken = way.taken
            if taken is not None:
                taken = (*taken, self._zones_taken(way, states, kept))
            longer.append(AdmissionWay(states, kept, zones, taken))
        return longer

    def _refused(self, way: AdmissionWay, container: ContainerRequest, whole: Hint | None) -> bool:
        """Return True if a manager rejects the container on this way. Managers allocate
        independently, some perhaps in too many ways."""
        hint = whole or self._hint(way.states, way.reusable, container.asked)
        if hint is None:
            return True
        for manager, state, reused, requested in zip(
            self.managers, way.states, way.reusable, container.asked, strict=True
        ):
            try:
                if requested and not manager.allocate(
                    state, reused, requested, container.kind, hint
                ):
                    return True
            except TooManyWaysError:
                continue
        return False

    def _after_admission(self, way: AdmissionWay) -> NodeState:
        if not any(way.reusable):
            return way.states
        triples = zip(self.managers, way.states, way.reusable, strict=True)
        return tuple([manager.after_admission(state, reused) for manager, state, reused in triples])


def _distinct(ways: Sequence[AdmissionWay]) -> list[AdmissionWay]:
    """Return the first of the ways that the kubelet cannot tell apart any more: those that differ
    only in the hints of earlier containers."""
    first: dict[Hashable, AdmissionWay] = {}
    for way in ways:
        first.setdefault((way.states, way.reusable, way.taken), way)
    return list(first.values())


def _decided(states: NodeState, error: UndecidedStateError) -> list[NodeState]:
    """Return the node's state in every way to decide what a manager's state leaves open."""
    return [
        tuple([choice if state is error.state else state for state in states])
        for choice in error.choices
    ]


def _joined(outcomes: Sequence[AdmissionOutcome]) -> AdmissionOutcome:
    """Return the outcome of a state of which several are possible."""
    states = dict.fromkeys([state for outcome in outcomes for state in outcome.states])
    too_many = any(outcome.too_many_states for outcome in outcomes)
    zones = next((outcome.zones for outcome in outcomes if outcome.zones), ())
    refused = any(outcome.refused for outcome in outcomes)
    return AdmissionOutcome(() if too_many else tuple(states), refused, zones, too_many)


def _is_in_one_zone(way: AdmissionWay, request: HintRequest) -> bool:
    """Return whether the pod, or each container, is in one zone on this way. Init containers may
    leave some of theirs to others, so with them all containers must be in one zone.
    """
    masks = way.taken
    if masks is None:
        return True
    if request.one_zone == "pod" or request.inits:
        masks = (reduce(or_, masks, 0),)
    return all(mask >= 0 and not mask & (mask - 1) for mask in masks)
