"""Admission of one pod by hints and merge: every state that it may leave behind, and whether it may
be refused.

The walk is the kubelet's (kubelet 1.36, topologymanager/scope_*.go): hints, merge, then each
provider allocates, container by container. Most pods fit one zone that every manager prefers: the
merge then takes the lowest such zone, whatever the policy, and nothing else is asked. Must not know
the ledger, nor in which order pods come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shared.domain.pod import ContainerKind
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
from shared.hints.splits import TooManyChoicesError, TooManyWaysError
from shared.kubelet.hint import Hint
from shared.kubelet.masks import MAX_NODES
from shared.kubelet.topology_manager import NO_HINT, TopologyManager, merge

NodeState = tuple[State, ...]
"""One state a provider, in the registry's order: the node in one of its states."""

REMEMBERED = 1 << 15
"""Answers that a node's rules remember; beyond them all are forgotten and computed again, which changes nothing."""


class AdmissionOutcome(NamedTuple):
    """`states` are all that the pod may leave; `refused`: some choice of the kubelet refuses it.
    `zones` are the masks by container of the first way, 0 where a container has no mask. `too_many_states`:
    it may leave more states than are told apart."""

    states: tuple[NodeState, ...]
    refused: bool
    zones: tuple[int, ...] = ()
    too_many_states: bool = False


class _Way(NamedTuple):
    """One way through the containers so far."""

    states: NodeState
    own: tuple[Reusable, ...]
    zones: tuple[int, ...]


class KubeletModel:
    """A kubelet's Topology Manager and its managers' books; what it once answered it remembers."""

    def __init__(
        self, topology_manager: TopologyManager, managers: tuple[ResourceManager, ...]
    ) -> None:
        self.topology_manager, self.managers = topology_manager, managers
        self._known: dict[tuple[NodeState, object], AdmissionOutcome] = {}
        self._later: dict[NodeState, tuple[NodeState, ...]] = {}

    def admit(self, states: NodeState, request: HintRequest) -> AdmissionOutcome:
        """What becomes of the pod in this state. Raises TooManyChoicesError."""
        found = self._admitted(states, request)
        if found.too_many_states:
            raise TooManyWaysError
        return found

    def refuses(self, states: NodeState, request: HintRequest) -> bool:
        """Does some choice of the kubelet refuse the pod, whatever it leaves? Raises
        TooManyChoicesError.
        """
        return self._admitted(states, request).refused

    def _admitted(self, states: NodeState, request: HintRequest) -> AdmissionOutcome:
        key = states, request.key
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            found = self._known[key] = self._admit(states, request)
        return found

    def later(self, states: NodeState) -> tuple[NodeState, ...]:
        """What the node may become by itself, one step."""
        found = self._later.get(states)
        if found is None:
            if len(self._later) >= REMEMBERED:
                self._later.clear()
            found = self._later[states] = tuple(
                [
                    (*states[:at], after, *states[at + 1 :])
                    for at, (manager, state) in enumerate(zip(self.managers, states, strict=True))
                    for after in manager.later(state)
                ]
            )
        return found

    def released(self, states: NodeState, held: Sequence[ZonedAmount]) -> NodeState:
        """The node once a pod that held this has ended."""
        return tuple(
            [
                manager.release(state, held)
                for manager, state in zip(self.managers, states, strict=True)
            ]
        )

    def taken(self, before: NodeState, after: NodeState) -> tuple[TakenAmounts, ...]:
        """What an admission took that led from one to the other. Raises TooManyChoicesError."""
        return tuple(
            [
                manager.taken(*each)
                for manager, *each in zip(self.managers, before, after, strict=True)
            ]
        )

    def given_back(self, states: NodeState, taken: Sequence[TakenAmounts]) -> NodeState:
        """The node once the pod has ended that took this."""
        return tuple(
            [
                manager.given_back(*each)
                for manager, *each in zip(self.managers, states, taken, strict=True)
            ]
        )

    def _admit(self, states: NodeState, request: HintRequest) -> AdmissionOutcome:
        ways, refused = [_Way(states, (None,) * len(states), ())], False
        whole: Hint | None = None
        if self.topology_manager.scope == "pod":
            whole = self._hint(states, ways[0].own, request.whole)
            if whole is None:
                return AdmissionOutcome((), True)
        for at, step in enumerate(request.steps, 1):
            try:
                after = [self._after(way, step, whole) for way in ways]
            except TooManyWaysError:
                if at < len(request.steps):
                    raise
                return AdmissionOutcome(
                    (),
                    refused or any(self._refused(way, step, whole) for way in ways),
                    too_many_states=True,
                )
            refused = refused or not all(after)
            ways = [each for found in after for each in found]
        left = {self._after_admission(way): None for way in ways}
        return AdmissionOutcome(tuple(left), refused, ways[0].zones if ways else ())

    def _hint(
        self, states: NodeState, own: tuple[Reusable, ...], asked: ManagerRequests
    ) -> Hint | None:
        """The merged hint; None where the policy refuses."""
        if self.topology_manager.policy == NONE:
            return NO_HINT
        single = NO_OPINION
        for manager, state, left, each in zip(self.managers, states, own, asked, strict=True):
            if each:
                single &= self._single(manager, state, left, each)
        if single > 0:
            lowest = single & -single
            return Hint(None if self._is_everything(lowest) else lowest, True)
        if single == 0 and self.topology_manager.policy == SINGLE_NUMA_NODE:
            return None
        if self.topology_manager.default_mask.bit_count() > MAX_NODES:
            raise TooManyChoicesError
        offers = [
            manager.hints(state, left, each) if each else None
            for manager, state, left, each in zip(self.managers, states, own, asked, strict=True)
        ]
        hint, admitted = merge(self.topology_manager, offers)
        return hint if admitted else None

    def _single(
        self, manager: ResourceManager, state: State, own: Reusable, asked: RequestedAmounts
    ) -> int:
        """Without any hint a manager has no preference. Asked container by container it then
        refuses to allocate; of a whole pod each container may yet find what it asks for."""
        found = manager.single(state, own, asked)
        if (
            found
            or self.topology_manager.scope != "pod"
            or self.topology_manager.policy != SINGLE_NUMA_NODE
        ):
            return found
        return found if manager.hints(state, own, asked) else NO_OPINION

    def _is_everything(self, mask: int) -> bool:
        """On a machine of one zone, single-numa-node stores no mask at all."""
        return (
            self.topology_manager.policy == SINGLE_NUMA_NODE
            and mask == self.topology_manager.default_mask
        )

    def _after(self, way: _Way, step: ContainerRequest, whole: Hint | None) -> list[_Way]:
        """Every way on through one container; none where the kubelet refuses it."""
        hint = whole or self._hint(way.states, way.own, step.asked)
        if hint is None:
            return []
        found = [(way.states, way.own)]
        for at, (manager, asked) in enumerate(zip(self.managers, step.asked, strict=True)):
            if asked:
                found = [
                    ((*states[:at], state, *states[at + 1 :]), (*own[:at], left, *own[at + 1 :]))
                    for states, own in found
                    for state, left in manager.allocate(states[at], own[at], asked, step.kind, hint)
                ]
        zones = (*way.zones, hint.mask or 0)
        return [_Way(states, own, zones) for states, own in found]

    def _refused(self, way: _Way, step: ContainerRequest, whole: Hint | None) -> bool:
        """Is the container refused on this way? Managers allocate apart from each other, some maybe
        in too many ways.
        """
        hint = whole or self._hint(way.states, way.own, step.asked)
        each = zip(self.managers, way.states, way.own, step.asked, strict=True)
        return hint is None or not all(_allocates(*one, step.kind, hint) for one in each)

    def _after_admission(self, way: _Way) -> NodeState:
        if not any(way.own):
            return way.states
        return tuple(
            [
                manager.after_admission(state, own)
                for manager, state, own in zip(self.managers, way.states, way.own, strict=True)
            ]
        )


def _allocates(
    manager: ResourceManager,
    state: State,
    own: Reusable,
    asked: RequestedAmounts,
    kind: ContainerKind,
    hint: Hint,
) -> bool:
    """Asked for nothing, or not refused."""
    try:
        return not asked or bool(manager.allocate(state, own, asked, kind, hint))
    except TooManyWaysError:
        return True
