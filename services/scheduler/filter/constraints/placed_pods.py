"""Who runs where, as constraints ask for it: how many pods of a selection a node has, and which
selections bar newcomers.

What a constraint keeps as a list of texts is counted by text and by node: names of claims differ
from pod to pod. Counts are kept by selection and node from the first time that a selection is asked
for; own reservations count at once. At 150,000 pods the first count of a selection costs a pass
over them, each later change one comparison by selection. Must not know zones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from services.scheduler.filter.constraints.selectors import Selection
from shared.domain.pod import Pod

SELECTIONS_LIMIT = 256
"""Selections counted; the longest unused one is counted anew when it is asked for again."""


class Placed(msgspec.Struct, frozen=True):
    """A pod on a node. `leaving`: it is being deleted."""

    pod: Pod
    node: str
    leaving: bool = False


class Keeping(NamedTuple):
    """What a constraint keeps of some pods, and how many of those each node has."""

    kept: Any
    nodes: Counter[str]


class Texts:
    """How many placed pods have each text, and which texts the pods of a node have."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self.derived: dict[str, Any] = {}
        """By node what its constraint made of the texts there, until a pod with some comes or goes."""
        self._on: dict[str, Counter[str]] = {}

    def add(self, node: str, texts: Iterable[str], sign: int) -> None:
        """A pod with these came to the node, or left it (`sign` -1)."""
        on = self._on.setdefault(node, Counter())
        self.derived.pop(node, None)
        for text in texts:
            for counts in (self.held, on):
                counts[text] = counts.get(text, 0) + sign
                if not counts[text]:
                    del counts[text]
        if not on:
            del self._on[node]

    def on(self, node: str) -> Mapping[str, int]:
        """The texts of the node's pods."""
        return self._on.get(node, {})


def is_texts(kept: Any) -> bool:
    """A list of texts and nothing else?"""
    return isinstance(kept, list) and all(isinstance(each, str) for each in kept)


_encode = msgspec.json.Encoder(order="deterministic").encode


class PlacedPods:
    """Placed pods by uid, counts of selections, and what constraints keep of the pods by node."""

    def __init__(self) -> None:
        self._placed: dict[str, Placed] = {}
        self._counts: dict[tuple[Selection, bool], Counter[str]] = {}
        self._keeping: dict[str, dict[bytes, Keeping]] = {}
        self._texts: dict[str, Texts] = {}

    def put(self, pod: Pod, node: str, leaving: bool = False) -> Placed | None:
        """The pod stands there, or is on its way; returns how it stood before, if otherwise."""
        known = self._placed.get(pod.uid)
        if (
            known is not None
            and known.pod is pod
            and known.node == node
            and known.leaving == leaving
        ):
            return None
        self.remove(pod.uid)
        placed = self._placed[pod.uid] = Placed(pod, node, leaving)
        self._keep(placed, 1)
        self._count(placed, 1)
        return known

    def remove(self, uid: str) -> Placed | None:
        """The pod stands nowhere; returns how it stood before."""
        placed = self._placed.pop(uid, None)
        if placed is not None:
            self._keep(placed, -1)
            self._count(placed, -1)
        return placed

    def _keep(self, placed: Placed, sign: int) -> None:
        for name, kept in placed.pod.constraints.kept.items():
            if is_texts(kept):
                self._texts.setdefault(name, Texts()).add(placed.node, kept, sign)
                continue
            alike, key = self._keeping.setdefault(name, {}), _encode(kept)
            keeping = alike.setdefault(key, Keeping(kept, Counter()))
            keeping.nodes[placed.node] += sign
            if not keeping.nodes[placed.node]:
                del keeping.nodes[placed.node]
            if not keeping.nodes:
                del alike[key]

    def _count(self, placed: Placed, sign: int) -> None:
        for (selection, leaving), counts in self._counts.items():
            if (leaving or not placed.leaving) and selection.matches(placed.pod):
                counts[placed.node] += sign
                if not counts[placed.node]:
                    del counts[placed.node]

    def keeping(self, name: str) -> Collection[Keeping]:
        """What placed pods have for the constraint of that name, each distinct value once; lists of
        texts are in `texts`.
        """
        return self._keeping.get(name, {}).values()

    def texts(self, name: str) -> Texts:
        """The same of a constraint that keeps lists of texts."""
        return self._texts.setdefault(name, Texts())

    def stands(self, uid: str) -> bool:
        """Is the pod placed?"""
        return uid in self._placed

    def leaves(self, uid: str) -> bool:
        """Is the pod being deleted, and placed still?"""
        placed = self._placed.get(uid)
        return placed is not None and placed.leaving

    def counted(self, selection: Selection, leaving: bool = True) -> Mapping[str, int]:
        """Node -> pods of the selection, those being deleted included or not; nodes without any are
        left out.
        """
        key = selection, leaving
        found = self._counts.pop(key, None)
        if found is None:
            standing = (p for p in self._placed.values() if leaving or not p.leaving)
            found = Counter(placed.node for placed in standing if selection.matches(placed.pod))
        self._counts[key] = found
        if len(self._counts) > SELECTIONS_LIMIT:
            del self._counts[next(iter(self._counts))]
        return found
