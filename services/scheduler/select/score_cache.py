"""The score cache: for each pod class and node a rank or "ruled out", and whether it is sure.

0. The kept scores are ranks (`score/ranks.py`).
1. An unsure score is an upper bound of the true one, so that only nodes that come out on top need a
   second look.
2. A change of a node sets its scores to OPTIMISTIC. A change that can only take from the node
   (`tightened`) keeps ruled-out nodes ruled out.
3. Every decision looks at the whole row of its pod class: that costs less than keeping the best.

Must not know why a node has its score.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import xxhash

from services.scheduler.score.ranks import OPTIMISTIC, RULED_OUT
from services.scheduler.snapshot import kernel
from services.scheduler.snapshot.node_arrays import (
    EXCLUDED,
    FIRST_SLOTS,
    Bools,
    ScoreOffsets,
    Slots,
    grown,
)

FIRST_ROWS = 8

Scores = npt.NDArray[np.int32]


class ScoreCache:
    """`scores`, `sure` and `exact` (evaluated singly as the node is now) are [pod class, node].

    `order` decides between nodes of equal score, differently for every pod. `changes` counts
    changes of nodes, and `changed_at` has by slot the count after the node's latest change.
    """

    def __init__(self) -> None:
        self.scores: Scores = np.full((FIRST_ROWS, FIRST_SLOTS), RULED_OUT, dtype=np.int32)
        self.sure = np.ones((FIRST_ROWS, FIRST_SLOTS), dtype=np.bool_)
        self.exact = np.zeros((FIRST_ROWS, FIRST_SLOTS), dtype=np.bool_)
        self.order = np.zeros(FIRST_SLOTS, dtype=np.uint64)
        self.changed_at = np.zeros(FIRST_SLOTS, dtype=np.int64)
        self.size = self.changes = 0
        # Row -> the changes when no node of it was unsure at OPTIMISTIC.
        self.ranked: dict[int, int] = {}

    # -- rows and columns

    def reserve(self, slot: int, name: str) -> None:
        """Add a new node in this slot, which no pod class has evaluated yet."""
        self.size = max(self.size, slot + 1)
        rows, wide = self.scores.shape
        if slot >= wide:
            more = grown(wide) - wide
            unknown = np.full((rows, more), RULED_OUT, dtype=np.int32)
            self.scores = np.concatenate([self.scores, unknown], axis=1)
            self.sure = np.concatenate([self.sure, np.ones((rows, more), np.bool_)], axis=1)
            self.exact = np.concatenate([self.exact, np.zeros((rows, more), np.bool_)], axis=1)
            self.order = np.append(self.order, np.zeros(more, dtype=np.uint64))
            self.changed_at = np.append(self.changed_at, np.zeros(more, dtype=np.int64))
        self.order[slot] = xxhash.xxh3_64_intdigest(name.encode())
        self.changed(slot)

    def start(self, row: int, filled: Bools) -> None:
        """Begin a new pod class in this row; `filled` says which slots have a node."""
        while row >= self.scores.shape[0]:
            self.scores = np.concatenate([self.scores, np.full_like(self.scores, RULED_OUT)])
            self.sure = np.concatenate([self.sure, np.ones_like(self.sure)])
            self.exact = np.concatenate([self.exact, np.zeros_like(self.exact)])
        scores, sure = self.row(row)
        scores[:], sure[:] = np.where(filled, OPTIMISTIC, RULED_OUT), ~filled
        self.exact[row] = False
        self.ranked.pop(row, None)

    def row(self, row: int) -> tuple[Scores, Bools]:
        """Return the scores and certainty of one pod class, as views to be written to."""
        return self.scores[row, : self.size], self.sure[row, : self.size]

    # -- changes of nodes

    def _note_change(self, slot: int) -> None:
        self.changes += 1
        self.changed_at[slot] = self.changes

    def changed(self, slot: int) -> None:
        """Note that anything may have changed on the node."""
        self._note_change(slot)
        self.scores[:, slot] = OPTIMISTIC
        self.sure[:, slot], self.exact[:, slot] = False, False

    def tightened(self, slot: int) -> None:
        """Note that the node has less free: its scores may be any, but ruled-out classes stay ruled
        out.
        """
        self._note_change(slot)
        if kernel.COMPILED is not None:
            kernel.COMPILED.tighten(self.scores, self.sure, self.exact, slot)
            return
        ruled_out = self.scores[:, slot] == RULED_OUT
        self.scores[~ruled_out, slot] = OPTIMISTIC
        self.sure[:, slot], self.exact[:, slot] = ruled_out, False

    def reranked(self) -> None:
        """Note that every score may have changed, while ruled-out nodes stay ruled out."""
        self.changes += 1
        ruled_out = self.scores == RULED_OUT
        self.scores[~ruled_out] = OPTIMISTIC
        self.sure &= ruled_out
        self.exact[:] = False

    def confirmed(self, slot: int) -> None:
        """Note that the node's kubelet states and refusals may have changed, but its bounds have
        not.
        """
        self._note_change(slot)
        self.exact[:, slot] = False

    def emptied(self, slot: int) -> None:
        """Note that the node ended."""
        self._note_change(slot)
        self.scores[:, slot] = RULED_OUT
        self.sure[:, slot] = True

    # -- results

    def note_score(self, row: int, slot: int, score: int) -> None:
        """Keep the node's true score, which is at most the kept one."""
        self.scores[row, slot] = score
        self.sure[row, slot] = self.exact[row, slot] = True

    def lower_bound(self, row: int, slot: int, bound: int) -> None:
        """Keep a lower upper bound of an unsure score."""
        self.scores[row, slot] = bound

    def note_bounds(self, row: int, bounds: Mapping[int, int]) -> None:
        """Set slots back to upper bounds of their scores."""
        slots = list(bounds)
        self.scores[row, slots] = list(bounds.values())
        self.sure[row, slots] = self.exact[row, slots] = False
        self.ranked.pop(row, None)

    # -- looking

    def best(
        self, row: int, salt: int, offsets: ScoreOffsets | None = None
    ) -> tuple[int, int, int]:
        """Return the slot of the best node, its score, and how many nodes are not ruled out. Equal
        scores are in the pod's own order; the score is RULED_OUT if no node remains. `offsets` are
        added for a pod that prefers nodes or is kept from some.
        """
        scores = self.scores[row, : self.size]
        if kernel.COMPILED is not None:
            best: tuple[int, int, int] = kernel.COMPILED.best(scores, self.order, salt, offsets)
            return best
        is_open = scores != RULED_OUT
        sums = np.where(is_open, scores if offsets is None else scores + offsets, EXCLUDED)
        most = int(sums.max(initial=EXCLUDED))
        if most <= EXCLUDED // 2:
            return -1, RULED_OUT, self.candidates(row)
        slots = np.flatnonzero(sums == most)
        slot = int(slots[(self.order[slots] ^ np.uint64(salt)).argmin()])
        return slot, int(scores[slot]), self.candidates(row)

    def candidates(self, row: int) -> int:
        """Return how many nodes are not ruled out."""
        return int(np.count_nonzero(self.scores[row, : self.size] != RULED_OUT))

    def unsure_at(self, row: int, score: int) -> Slots:
        """Return the nodes that have this score and are not sure of it."""
        scores, sure = self.row(row)
        unsure: Slots = np.flatnonzero((scores == score) & ~sure)
        return unsure

    def unsure(self, row: int) -> Slots:
        """Return the nodes that are neither ruled out nor sure of their score."""
        scores, sure = self.row(row)
        unsure: Slots = np.flatnonzero((scores != RULED_OUT) & ~sure)
        return unsure
