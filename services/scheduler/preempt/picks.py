"""Every way in which a kubelet may admit one pod: it chooses at random among devices, which may lie
in different zones.

Devices that lie in the same zones are alike, under policy none all of a resource: of those the
lowest ids are taken. Must not know who asks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from shared.domain.pod import Pod
from shared.domain.policies import NONE
from shared.hints.splits import splits
from shared.kubelet.admission import Admission, admit
from shared.kubelet.machine import KubeletState

MOST_PICKS = 64
"""Admissions that are looked at for one pod."""

Places = tuple[int | None, ...]
"""The zones of a device, in each resource that has one of its id."""


def admitted_whatever_it_picks(state: KubeletState, pod: Pod) -> bool:
    """False where there are more ways than are looked at, too."""
    found = islice(admissions(state, pod), MOST_PICKS + 1)
    return all(each.admitted and number < MOST_PICKS for number, each in enumerate(found))


def admissions(state: KubeletState, pod: Pod) -> Iterator[Admission]:
    """One admission for each combination of choices, nearly always a single one. Of more than
    MOST_PICKS some may be left out.
    """
    pending: list[tuple[int, ...]] = [()]
    while pending:
        picks = _Picks(state, pending.pop())
        yield admit(state, pod, picks.pick)
        pending += picks.others()


class _Picks:
    """Chooses as the script says, and the first way beyond its end; remembers how many ways there
    were each time.
    """

    def __init__(self, state: KubeletState, script: tuple[int, ...]) -> None:
        self._pools = (
            list(state.devices.registered.values())
            if state.kubelet.config.topology_policy != NONE
            else []
        )
        self._script, self._chosen, self._ways = script, list[int](), list[int]()

    def pick(self, ids: Collection[str], count: int) -> list[str]:
        """So many of these."""
        alike: dict[Places, list[str]] = {}
        for each in sorted(ids):
            alike.setdefault(
                tuple([pool[each].mask for pool in self._pools if each in pool]), []
            ).append(each)
        ways = list(islice(splits(count, [len(group) for group in alike.values()]), MOST_PICKS + 1))
        at = len(self._chosen)
        self._chosen.append(self._script[at] if at < len(self._script) else 0)
        self._ways.append(len(ways))
        taken = ways[self._chosen[at]]
        return [
            each
            for group, number in zip(alike.values(), taken, strict=True)
            for each in group[:number]
        ]

    def others(self) -> Iterator[tuple[int, ...]]:
        """Scripts that part from this one where it had ended."""
        for at in range(len(self._script), len(self._chosen)):
            yield from ((*self._chosen[:at], other) for other in range(1, self._ways[at]))
