"""The extension point of the filter: a hint provider models one resource manager of the kubelet.

Theory of operation
===================

1. The kubelet admits a pod by asking its resource managers (CPU, Memory, Device Manager) in turn.
   Each manager answers with hints: the sets of NUMA zones that could hold the request, and which
   of them it prefers. The Topology Manager merges the hints into one (KEP-693), and each manager
   then allocates under the merged hint, or rejects the pod.

2. Topolog repeats that for a node it only knows from a report. A provider reads the report once
   (`HintProvider.observe`) and returns two things: a resource manager, which holds what does not
   change while pods come and go (zones, sizes, options), and the states the manager may be in.

3. A state is an immutable, hashable value of the provider's own choice: the number of free
   devices, a bit set of free CPUs. Equal states are judged once, so a state holds nothing that
   does not influence an answer. `observe` returns several states if the report leaves several
   open, and then gives the reasons in `Observed.bounds`.

4. Every question goes to the resource manager together with a state, and every change returns a
   new state. If the kubelet or a device plugin may choose among several ways, `allocate` returns
   one state for each. A pod passes the filter only if the kubelet admits it in every state.

5. A new provider implements `owns` and `observe`, and for its resource manager the three members
   that Kubernetes asks for: `hints`, `allocate` and `release`. Everything else has a default that
   is safe and may be slower, or may leave a pod undecided until the next report. One more line,
   in `shared/hints/registry.py`, makes the filter, the charge, the prediction, preemption and
   `explain` use it. `tests/hints/licences.py` is a complete example.

A provider must not know pods, the ledger, or other providers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from shared.domain.pod import ContainerKind
from shared.domain.report import Placement, Report, ZonedAmount
from shared.hints.splits import TooManyChoicesError
from shared.kubelet.hint import Hint, Hints

# The state of one resource manager: a hashable value that only its provider looks into.
State = Any

# What one pod took of a state, in a form that only its provider looks into.
TakenAmounts = Any

# What the init containers of the pod under admission leave for its later containers to reuse. The
# kubelet reuses CPUs, devices and memory within a pod. None until a container leaves something.
Reusable = Hashable

# (resource, amount) by name of what a container requests of the resources that a provider owns.
# An amount of 0 occurs only for devices, because the Device Manager gives hints for it.
RequestedAmounts = tuple[tuple[str, int], ...]

# Zone -> resource -> amount.
AmountsByZone = dict[int, dict[str, int]]


class PlainAmounts(NamedTuple):
    """What zones have `free`, and their `sizes`: a zone gives no larger request, and an end frees
    no more."""

    free: AmountsByZone
    sizes: AmountsByZone


# The zone mask of a manager that has no preference (all bits set).
NO_OPINION = -1


class ResourceManager:
    """One resource manager of one node. Nodes of one kind share an instance."""

    __slots__ = ()

    # The three members that every provider implements.

    def hints(self, state: State, reusable: Reusable, requested: RequestedAmounts) -> Hints:
        """Return the hints by resource, in the kubelet's order of masks, as GetTopologyHints does.

        None means no preference. An empty list for a resource means that no zones can hold it."""
        raise NotImplementedError

    def allocate(
        self,
        state: State,
        reusable: Reusable,
        requested: RequestedAmounts,
        kind: ContainerKind,
        hint: Hint,
    ) -> Sequence[tuple[State, Reusable]]:
        """Return every state that the allocation for one container may lead to, each with what
        later containers of the pod may reuse; empty if the manager rejects the container.

        `kind` is app, init or sidecar. Raises TooManyWaysError if the manager does not reject it
        but there are too many states, TooManyChoicesError if that is not known either."""
        raise NotImplementedError

    def release(self, state: State, held: Sequence[ZonedAmount]) -> State:
        """Return the state after the end of a pod for which the report lists `held`.

        `held` also contains resources of other managers: ignore them."""
        raise NotImplementedError

    # Override these if the default is too slow, or if the manager has the feature they describe.

    def hold(self, state: State, held: Sequence[ZonedAmount]) -> State:
        """Return the state with `held` taken, as far as it is free. Topolog asks this for what a
        pod may hold although no report shows it.

        By default the inverse of `release`, which is right for states that count."""
        negative = [ZonedAmount(item.resource, item.zones, -item.amount) for item in held]
        return self.release(state, negative)

    def single(self, state: State, reusable: Reusable, requested: RequestedAmounts) -> int:
        """Return the mask of the zones that are preferred alone, or NO_OPINION.

        It must agree with `hints`, from which the default takes it. Most pods are decided by this
        answer, so a fast one pays."""
        by_resource = self.hints(state, reusable, requested)
        if by_resource is None:
            return NO_OPINION
        preferred = NO_OPINION if by_resource else 0
        for hints in by_resource.values():
            if hints is None:
                continue
            alone = 0
            for hint in hints:
                mask = hint.mask or 0
                if hint.preferred and not mask & (mask - 1):
                    alone |= mask
            preferred &= alone
        return preferred

    def shows(self, state: State, observed: State) -> bool:
        """Return False if a report that `observe` reads as `observed` cannot be about `state`, in
        which containers may hold more than a report lists."""
        return True

    def exceeds(self, state: State, observed: State, unlisted: Mapping[str, int]) -> bool:
        """Return True if containers hold more in `state` than such a report lists, and than they
        may hold `unlisted` (by resource) in addition."""
        return False

    def plain_amounts(self, state: State) -> PlainAmounts | None:
        """Return the amounts if they alone decide under single-numa-node: a container takes the
        lowest zone that has all it requests free, and nothing in another zone. Leave out resources
        for which this is wrong; return None if it is wrong for all. Searches of nodes whose amounts
        decide are some ten times faster."""
        return None

    def taken(self, before: State, after: State) -> TakenAmounts:
        """Return what the admission took that led from one state to the other.

        Asked for pods that came and went since the report. By default such an admission cannot be
        undone: raises TooManyChoicesError, and the pod to place waits for the next report."""
        if before != after:
            raise TooManyChoicesError
        return None

    def zones_taken(
        self, before: State, after: State, left: Reusable, left_after: Reusable
    ) -> int | None:
        """Return the mask of the zones in which the allocation for one container took something
        that led from one state to the other, or reused what init containers `left`; None if states
        do not say it.

        Nodes are ranked by it, and pods are placed by it that must be in one zone although the
        kubelet's policy does not require it. By default the merged hint counts when nodes are
        ranked, and such pods are not placed."""
        return None

    def given_back(self, state: State, taken: TakenAmounts) -> State:
        """Return the state after the end of a pod that took `taken` (the answer of `taken`)."""
        return state

    def after_admission(self, state: State, reusable: Reusable) -> State:
        """Return the state once all containers of the pod are admitted, for managers that keep
        something for the pod itself. By default nothing changes."""
        return state

    def later(self, state: State) -> Sequence[State]:
        """Return the states that may follow without an admission or an end, one step each.

        The Memory Manager has some: it frees an init container's memory when the pod runs."""
        return ()


class Observed(msgspec.Struct, frozen=True):
    """What a provider makes of a report.

    `states` are all that agree with the report. If there are several, `bounds` names the reasons
    (`memory groups`), for events and `explain`."""

    manager: ResourceManager
    states: tuple[State, ...]
    bounds: frozenset[str] = frozenset()


class HintProvider(msgspec.Struct, frozen=True):
    """A provider as the registry holds it. Arguments are fields: plain, immutable values, because
    they are part of snapshot keys and of the code fingerprint in every decision."""

    # The name in messages; by default that of the class in lower case.
    name: ClassVar[str] = ""

    # True if the zone amounts of a report decide what the manager admits: enough free in one zone
    # is enough. False is always safe: nodes are then judged one by one, by hints and merge.
    by_amounts: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.name:
            cls.name = cls.__name__.lower()

    # The two members that every provider implements.

    def owns(self, resource: str) -> bool:
        """Return True if this manager hands the resource out. If several do, the provider that is
        registered last counts."""
        raise NotImplementedError

    def observe(
        self, report: Report, placements: Sequence[Placement], policy: str, fine: bool
    ) -> Observed:
        """Return the resource manager of the reporting node, and its possible states.

        `placements` are all that the report lists, and `policy` is the policy of the Topology
        Manager. If `fine` is False, counts by zone are enough: it does not matter which of equal
        CPUs or devices are free."""
        raise NotImplementedError

    # Optional.

    def zones(self, report: Report, resource: str) -> frozenset[int] | None:
        """Return the zones that can ever give the resource, or None for all zones in which the
        report shows some. Used to charge a pod in fewer zones."""
        return None
