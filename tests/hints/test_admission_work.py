"""Resource managers are asked no more often than their answers can differ."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from shared.domain.pod import ContainerKind
from shared.hints.admission import KubeletModel
from shared.hints.provider import RequestedAmounts, ResourceManager, Reusable
from shared.hints.request import ContainerRequest, HintRequest
from shared.hints.splits import UndecidedStateError
from shared.kubelet.hint import Hint
from shared.kubelet.topology_manager import TopologyManager

ASKED: RequestedAmounts = (("example.com/chip", 1),)


class Choosing(ResourceManager):
    """A manager that allocates in one or several ways, and counts its calls."""

    def __init__(self, states: Sequence[str]) -> None:
        self.states, self.calls = states, 0

    def allocate(
        self,
        state: Hashable,
        reusable: Reusable,
        requested: RequestedAmounts,
        kind: ContainerKind,
        hint: Hint,
    ) -> Sequence[tuple[Hashable, Reusable]]:
        self.calls += 1
        return [(each, reusable) for each in self.states]


class Open(Choosing):
    """A provider with two first states, whose difference does not matter afterwards."""

    def allocate(
        self,
        state: Hashable,
        reusable: Reusable,
        requested: RequestedAmounts,
        kind: ContainerKind,
        hint: Hint,
    ) -> Sequence[tuple[Hashable, Reusable]]:
        if state == "open":
            raise UndecidedStateError(state, ["open, with room", "open, without room"])
        return super().allocate(state, reusable, requested, kind, hint)


def admit(first: ResourceManager, second: ResourceManager, containers: int) -> None:
    model = KubeletModel(TopologyManager("none", "none", 0b11), (first, second))
    step = ContainerRequest("app", (ASKED, ASKED))
    request = HintRequest((), (step,) * containers, (ASKED, ASKED), False)
    assert model.admit(("open", "free"), request).states


def test_a_manager_is_asked_once_however_many_ways_the_one_before_it_has() -> None:
    counted = Choosing(["taken"])
    admit(Choosing(["a", "b", "c"]), counted, containers=1)
    assert counted.calls == 1


def test_ways_that_led_to_one_state_are_followed_once() -> None:
    counted = Choosing(["taken"])
    admit(Open(["closed"]), counted, containers=2)
    # Twice for the first container, whose state is decided in two ways, then once.
    assert counted.calls == 3
