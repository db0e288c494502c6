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
# The node, and the numbers of those who have yet to come.
Moment = tuple[States, tuple[int, ...]]


class Kubelet(NamedTuple):
    topology_manager: TopologyManager
    managers: tuple[ResourceManager, ...]

    def merged(self, states: States, own: tuple[Any, ...], asked: ManagerRequests) -> Hint | None:
        """None where the policy refuses."""
        if self.topology_manager.policy == "none":
            return NO_HINT
        each = zip(self.managers, states, own, asked, strict=True)
        lists = filter_hints(
            [
                manager.hints(state, left, wanted) if wanted else None
                for manager, state, left, wanted in each
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
        """Every state that the pod may leave, and whether it may be refused."""
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
            after = []
            for before, own in ways:
                hint = whole or self.merged(before, own, step.asked)
                each = zip(self.managers, before, own, step.asked, strict=True)
                found = [
                    (
                        [(state, left)]
                        if not asked
                        else list(manager.allocate(state, left, asked, step.kind, hint))
                    )
                    if hint
                    else []
                    for manager, state, left, asked in each
                ]
                refused = refused or not all(found)
                after += [
                    (tuple(s for s, _ in way), tuple(o for _, o in way)) for way in product(*found)
                ]
            ways = after
        left = {
            tuple(
                manager.after_admission(state, own)
                for manager, state, own in zip(self.managers, *way, strict=True)
            )
            for way in ways
        }
        return left, refused

    def explored(
        self, starts: Sequence[Moment], coming: Sequence[PendingAdmission]
    ) -> tuple[set[Moment], set[Any]]:
        """Every moment from here on, and who (as asked for) may be refused on the way."""
        found, pending, doomed = set(starts), list(starts), set()
        while pending:
            states, ahead = pending.pop()
            after: set[Moment] = set()
            for at, (manager, state) in enumerate(zip(self.managers, states, strict=True)):
                after |= {
                    ((*states[:at], later, *states[at + 1 :]), ahead)
                    for later in manager.later(state)
                }
            for number in ahead:
                admitted, refused = self.admit(states, coming[number].request)
                left = tuple(each for each in ahead if each != number)
                after |= {(each, left) for each in admitted}
                if refused:
                    doomed.add(coming[number].request.key)
                    after.add((states, left))
            pending += after - found
            found |= after
        return found, doomed

    def verdict(
        self, bases: Sequence[States], coming: Sequence[PendingAdmission], newcomer: HintRequest
    ) -> SearchResult:
        """Nobody of those on their way is heard to run."""
        for base in bases:
            everybody = tuple(range(len(coming)))
            before, doomed = self.explored([(base, everybody)], coming)
            after: list[Moment] = []
            for states, ahead in before:
                admitted, refused = self.admit(states, newcomer)
                if refused:
                    return "refused"
                after += [(each, ahead) for each in admitted]
            if self.explored(after, coming)[1] - doomed:
                return "endangers"
        return "admitted"
