"""Admission by hint providers in plain words: every permutation of hints, every order, nothing
remembered or cut short.

What `shared/hints/admission.py` and `arrivals.py` come to with shortcuts (`single`), memos, kinds
of pods and budgets. For small nodes and few pods only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

from shared.hints.admission_orders import PendingAdmission, SearchResult
from shared.hints.provider import ResourceManager
from shared.hints.request import HintRequest, ManagerRequests
from shared.kubelet.hint import Hint
from shared.kubelet.merge import filter_hints, single_node_hints
from shared.kubelet.topology_manager import NO_HINT, TopologyManager
from tests.kubelet.naive_merge import naive_merge

States = tuple[Any, ...]
# The node, and the numbers of the pending pods.
Moment = tuple[States, tuple[int, ...]]


class Kubelet(NamedTuple):
    topology_manager: TopologyManager
    managers: tuple[ResourceManager, ...]

    def merged(
        self, states: States, reused: tuple[Any, ...], asked: ManagerRequests
    ) -> Hint | None:
        """Return the merged hint, None if the policy rejects the request."""
        if self.topology_manager.policy == "none":
            return NO_HINT
        columns = zip(self.managers, states, reused, asked, strict=True)
        lists = filter_hints(
            [
                manager.hints(state, reusable, wanted) if wanted else None
                for manager, state, reusable, wanted in columns
            ]
        )
        if self.topology_manager.policy == "single-numa-node":
            best = naive_merge(single_node_hints(lists), self.topology_manager.default_mask, None)
            best = (
                Hint(None, best.preferred)
                if best.mask == self.topology_manager.default_mask
                else best
            )
        else:
            best = naive_merge(
                lists, self.topology_manager.default_mask, self.topology_manager.distances
            )
        return best if self.topology_manager.policy == "best-effort" or best.preferred else None

    def admit(self, states: States, request: HintRequest) -> tuple[set[States], bool]:
        """Return every state after the pod's admission, and whether it may be refused."""
        nothing = (None,) * len(states)
        ways: list[tuple[States, tuple[Any, ...]]] = [(states, nothing)]
        refused = False
        whole = (
            self.merged(states, nothing, request.whole)
            if self.topology_manager.scope == "pod"
            else None
        )
        if self.topology_manager.scope == "pod" and whole is None:
            return set(), True
        for step in request.steps:
            next_states = []
            for earlier, reused in ways:
                hint = whole or self.merged(earlier, reused, step.asked)
                columns = zip(self.managers, earlier, reused, step.asked, strict=True)
                allocations = [
                    (
                        [(state, reusable)]
                        if not asked
                        else list(manager.allocate(state, reusable, asked, step.kind, hint))
                    )
                    if hint
                    else []
                    for manager, state, reusable, asked in columns
                ]
                refused = refused or not all(allocations)
                next_states += [
                    (tuple(s for s, _ in way), tuple(o for _, o in way))
                    for way in product(*allocations)
                ]
            ways = next_states
        reusable = {
            tuple(
                manager.after_admission(state, reused)
                for manager, state, reused in zip(self.managers, *way, strict=True)
            )
            for way in ways
        }
        return reusable, refused

    def explored(
        self, starts: Sequence[Moment], coming: Sequence[PendingAdmission]
    ) -> tuple[set[Moment], set[Any]]:
        """Return every moment from here on, and the requests that may be rejected on the way."""
        allocations, pending, doomed = set(starts), list(starts), set()
        while pending:
            states, ahead = pending.pop()
            next_states: set[Moment] = set()
            for index, (manager, state) in enumerate(zip(self.managers, states, strict=True)):
                next_states |= {
                    ((*states[:index], later, *states[index + 1 :]), ahead)
                    for later in manager.later(state)
                }
            for number in ahead:
                admitted, refused = self.admit(states, coming[number].request)
                reusable = tuple(columns for columns in ahead if columns != number)
                next_states |= {(columns, reusable) for columns in admitted}
                if refused:
                    doomed.add(coming[number].request.key)
                    next_states.add((states, reusable))
            pending += next_states - allocations
            allocations |= next_states
        return allocations, doomed

    def verdict(
        self, bases: Sequence[States], coming: Sequence[PendingAdmission], newcomer: HintRequest
    ) -> SearchResult:
        """Return the filter result if none of the pending pods is known to run."""
        for base in bases:
            everybody = tuple(range(len(coming)))
            earlier, doomed = self.explored([(base, everybody)], coming)
            next_states: list[Moment] = []
            for states, ahead in earlier:
                admitted, refused = self.admit(states, newcomer)
                if refused:
                    return "refused"
                next_states += [(columns, ahead) for columns in admitted]
            if self.explored(next_states, coming)[1] - doomed:
                return "endangers"
        return "admitted"
