"""Placed pods, as constraints ask for them: how many pods of a selection a node has, and what
constraints keep of the pods there.

Counts are kept by selection and node from the first question on; assumed pods count at once. At
150,000 pods the first count of a selection costs a pass over them, each later change one comparison
for each selection. A constraint that keeps a list of texts has them counted by text and by node,
because names of claims differ from pod to pod. Must not know zones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from services.scheduler.filter.constraints.selectors import Selection
from services.scheduler.snapshot.node_columns import NodeColumns, NodeCounts
from shared.domain.pod import Pod

# Selections that are counted; the longest unused one is counted again when a constraint asks.
MOST_SELECTIONS = 256

_encode = msgspec.json.Encoder(order="deterministic").encode


class PlacedPod(msgspec.Struct, frozen=True):
    """A pod on a node. `leaving`: it is being deleted."""

    pod: Pod
    node: str
    leaving: bool = False


class Keeping(NamedTuple):
    """What a constraint keeps of some pods, and how many of those pods each node has."""

    kept: Any
    nodes: NodeCounts


class Rules:
    """What one constraint keeps of placed pods, by encoded value."""

    def __init__(self) -> None:
        self.by_value: dict[bytes, Keeping] = {}
        # What the constraint derived from the values, until a value comes or goes.
        self.derived: dict[Any, Any] = {}


class Texts:
    """How many placed pods have each text (`counts`), which texts the pods of a node have, and how
    many those are (`numbers`).
    """

    def __init__(self, columns: NodeColumns) -> None:
        self.counts: dict[str, int] = {}
        self.numbers = NodeCounts(columns)
        # By node what the constraint derived from the texts, until a pod with texts comes or goes.
        self.derived: dict[str, Any] = {}
        self._by_node: dict[str, Counter[str]] = {}

    def add(self, node: str, texts: Iterable[str], sign: int) -> None:
        """Count a pod with these texts that came to the node, or left it (`sign` -1)."""
        on_node = self._by_node.setdefault(node, Counter())
        earlier = len(on_node)
        self.derived.pop(node, None)
        for text in texts:
            for counts in (self.counts, on_node):
                counts[text] = counts.get(text, 0) + sign
                if not counts[text]:
                    del counts[text]
        self.numbers.add(node, len(on_node) - earlier)
        if not on_node:
            del self._by_node[node]

    def on(self, node: str) -> Mapping[str, int]:
        """Return the texts of the node's pods."""
        return self._by_node.get(node, {})


class PlacedPods:
    """Placed pods by uid, counts of selections, and what constraints keep of the pods by node.

    `leaving` counts each node's pods that are being deleted, `priorities` all pods by priority.
    """

    def __init__(self, columns: NodeColumns | None = None) -> None:
        # Counts by slot are counts by the slots of these nodes.
        self.columns = NodeColumns() if columns is None else columns
        self.leaving, self.priorities = NodeCounts(self.columns), Counter[int]()
        self._placed: dict[str, PlacedPod] = {}
        self._counts: dict[tuple[Selection, bool], NodeCounts] = {}
        self._rules: dict[str, Rules] = {}
        self._texts: dict[str, Texts] = {}

    def put(self, pod: Pod, node: str, leaving: bool = False) -> PlacedPod | None:
        """Put the pod on the node; return its earlier placement if that was a different one."""
        earlier = self._placed.get(pod.uid)
        if (
            earlier is not None
            and earlier.pod is pod
            and (earlier.node, earlier.leaving) == (node, leaving)
        ):
            return None
        self.remove(pod.uid)
        placed = self._placed[pod.uid] = PlacedPod(pod, node, leaving)
        self._note(placed, 1)
        return earlier

    def remove(self, uid: str) -> PlacedPod | None:
        """Remove the pod and return its earlier placement."""
        placed = self._placed.pop(uid, None)
        if placed is not None:
            self._note(placed, -1)
        return placed

    def _note(self, placed: PlacedPod, sign: int) -> None:
        priority = placed.pod.priority
        self.priorities[priority] += sign
        if not self.priorities[priority]:
            del self.priorities[priority]
        if placed.leaving:
            self.leaving.add(placed.node, sign)
        self._keep(placed, sign)
        for (selection, leaving), counts in self._counts.items():
            if (leaving or not placed.leaving) and selection.matches(placed.pod):
                counts.add(placed.node, sign)

    def _keep(self, placed: PlacedPod, sign: int) -> None:
        for name, kept in placed.pod.constraints.kept.items():
            if _is_texts(kept):
                self._texts.setdefault(name, Texts(self.columns)).add(placed.node, kept, sign)
                continue
            rules, key = self._rules.setdefault(name, Rules()), _encode(kept)
            keeping = rules.by_value.get(key)
            if keeping is None:
                keeping = rules.by_value[key] = Keeping(kept, NodeCounts(self.columns))
                rules.derived.clear()
            keeping.nodes.add(placed.node, sign)
            if not keeping.nodes:
                del rules.by_value[key]
                rules.derived.clear()

    def keeping(self, name: str) -> Collection[Keeping]:
        """Return what the constraint of that name keeps of placed pods, each distinct value once;
        lists of texts are in `texts`.
        """
        rules = self._rules.get(name)
        return rules.by_value.values() if rules is not None else ()

    def derived(self, name: str) -> dict[Any, Any]:
        """Return what the constraint of that name derived from these values, to be extended; it is
        empty once a value has come or gone.
        """
        return self._rules.setdefault(name, Rules()).derived

    def texts(self, name: str) -> Texts:
        """Return the same of a constraint that keeps lists of texts."""
        return self._texts.setdefault(name, Texts(self.columns))

    def has(self, uid: str) -> bool:
        return uid in self._placed

    def leaves(self, uid: str) -> bool:
        """Return whether the pod is placed and being deleted."""
        placed = self._placed.get(uid)
        return placed is not None and placed.leaving

    def counted(self, selection: Selection, leaving: bool = True) -> NodeCounts:
        """Return node -> pods of the selection, with or without pods that are being deleted; nodes
        without any are left out.
        """
        key = selection, leaving
        counts = self._counts.pop(key, None)
        if counts is None:
            counted = Counter(
                placed.node
                for placed in self._placed.values()
                if (leaving or not placed.leaving) and selection.matches(placed.pod)
            )
            counts = NodeCounts(self.columns, counted)
        self._counts[key] = counts
        if len(self._counts) > MOST_SELECTIONS:
            del self._counts[next(iter(self._counts))]
        return counts


def _is_texts(kept: Any) -> bool:
    return isinstance(kept, list) and all(isinstance(item, str) for item in kept)
