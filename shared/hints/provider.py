"""What a hint provider is: one of the kubelet's resource managers, as far as a report shows it.

A provider observes a report and answers with a book (what never changes between two shapes of the
node) and the states that its manager may be in. States are immutable and hashable, so that equal
states are judged once. Hints and their merge are the kubelet's (KEP-693); where the kubelet or a
device plugin may choose, `allocate` has several successors. Must not know pods, the ledger or other
providers.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import msgspec

from shared.domain.pod import ContainerKind
from shared.domain.report import Placement, Report, ZonedAmount
from shared.kubelet.hint import Hint, Hints

State = Any
"""A provider's own hashable value."""
TakenAmounts = Any
"""What one pod took of a provider's state; a provider's own hashable value."""
Reusable = Hashable
"""What earlier init containers of the pod under admission leave to its later ones; a provider's own value, None at first."""
RequestedAmounts = tuple[tuple[str, int], ...]
"""(resource, amount) of those resources that the provider owns, by name; 0 only of the Device Manager's."""

NO_OPINION = -1
"""`single` of a provider that does not mind the zone."""


class ResourceManager(Protocol):
    """One manager of one node."""

    def single(self, state: State, own: Reusable, asked: RequestedAmounts) -> int:
        """Mask of the zones that, each alone, are a preferred hint; NO_OPINION where the manager
        has no preference.
        """
        ...

    def hints(self, state: State, own: Reusable, asked: RequestedAmounts) -> Hints:
        """The manager's hints, in the kubelet's order; None for no preference."""
        ...

    def allocate(
        self, state: State, own: Reusable, asked: RequestedAmounts, kind: ContainerKind, hint: Hint
    ) -> Sequence[tuple[State, Reusable]]:
        """Every state that the allocation may lead to; none where the manager refuses. Raises
        TooManyWaysError where it does not, and TooManyChoicesError where that is too much to ask.
        """
        ...

    def release(self, state: State, held: Sequence[ZonedAmount]) -> State:
        """The state after a pod that held this has ended."""
        ...

    def hold(self, state: State, held: Sequence[ZonedAmount]) -> State:
        """The state with this taken, as far as it is there: what somebody holds whom no report
        shows.
        """
        ...

    def after_admission(self, state: State, own: Reusable) -> State:
        """The state once the pod is admitted: what only concerned its own containers is forgotten."""
        ...

    def taken(self, before: State, after: State) -> TakenAmounts:
        """What an admission took that led from one state to the other. Raises TooManyChoicesError
        where that cannot be told.
        """
        ...

    def given_back(self, state: State, taken: TakenAmounts) -> State:
        """The state after the pod has ended that took this."""
        ...

    def later(self, state: State) -> Sequence[State]:
        """What the state may become by itself, one step: an init container's memory is free once
        its pod runs.
        """
        ...


class Observed(msgspec.Struct, frozen=True):
    """`states` are those consistent with the report; `bounds` names what of them is only known
    within bounds.
    """

    manager: ResourceManager
    states: tuple[State, ...]
    bounds: frozenset[str] = frozenset()


class HintProvider(Protocol):
    """A provider as it stands in the registry. One that has arguments is a frozen msgspec.Struct of
    plain values: they are part of the keys of snapshots and of the code that a decision tells,
    beside its name."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def by_amounts(self) -> bool:
        """Whether the zone amounts of a report bound what this manager admits: enough in one zone
        beside everybody is enough. If not, nodes are judged one by one, by hints and merge alone:
        that costs time, never a wrong verdict."""
        ...

    def owns(self, resource: str) -> bool:
        """Does this manager hand the resource out?"""
        ...

    def zones(self, report: Report, resource: str) -> frozenset[int] | None:
        """Zones that may ever give the resource; None for every zone in which the report shows
        some.
        """
        ...

    def observe(
        self, report: Report, placements: Sequence[Placement], policy: str, fine: bool
    ) -> Observed:
        """The node's book and states. `placements` are all that the report lists, `policy` is the
        Topology Manager's. `fine`: it matters which of equal things are free, not only how many."""
        ...
