"""The score cache: for each pod class and node a rank or "ruled out", and whether it is sure.

0. What is kept as a score is the rank (`score/ranks.py`): a node's score, less its spread.
1. An unsure score is an upper bound of the true one, so that only nodes that come out on top need a
   second look.
2. A change of a node sets its scores to OPTIMISTIC. A change that can only take from the node
   (`tightened`) keeps ruled-out nodes ruled out.
3. A log of changed slots says which nodes a row must rank again. If more changed than the log
   remembers, all nodes at OPTIMISTIC are ranked.
4. The best nodes of a row are kept (`_Top`). Between two changes scores only fall, so that the
   nodes that once shared the top hold it until each of them fell.

Must not know why a node has its score.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from services.scheduler.score.ranks import RULED_OUT
from services.scheduler.snapshot.node_arrays import (
    EXCLUDED,
    FIRST_SLOTS,
    Bools,
    ScoreOffsets,
    Slots,
    grown,
)

OPTIMISTIC = 101

# Changes that are remembered at least.
LOGGED = 1024
FIRST_ROWS = 8
NO_SLOTS: Slots = np.zeros(0, dtype=np.int64)

Scores = npt.NDArray[np.int32]


class _Top(NamedTuple):
    """The nodes that had the best score of a row after this many logged changes."""

    best: int
    slots: Slots
    ranks: npt.NDArray[np.uint64]
    logged: int


class ScoreCache:
    """`scores`, `sure` and `exact` (evaluated singly as the node is now) are [pod class, node].

    `ranks` orders nodes of equal score, differently for every pod. `changes` counts changes of
    nodes.
    """

    def __init__(self) -> None:
        self.scores: Scores = np.full((FIRST_ROWS, FIRST_SLOTS), RULED_OUT, dtype=np.int32)
        self.sure = np.ones((FIRST_ROWS, FIRST_SLOTS), dtype=np.bool_)
        self.exact = np.zeros((FIRST_ROWS, FIRST_SLOTS), dtype=np.bool_)
        self.ranks = np.zeros(FIRST_SLOTS, dtype=np.uint64)
        self.size = self.changes = 0
        self._tops: dict[int, _Top] = {}
        self._candidates: dict[int, int] = {}
        self._log: list[int] = []
        self._forgotten = 0
        # Row -> the number of logged changes that it has ranked.
        self._read: dict[int, int] = {}

    # -- rows and columns

    def reserve(self, slot: int, name: str) -> None:
        """Put a new node into this slot: every pod class has yet to evaluate it."""
        self.size = max(self.size, slot + 1)
        rows, wide = self.scores.shape
        if slot >= wide:
            more = grown(wide) - wide
            unknown = np.full((rows, more), RULED_OUT, dtype=np.int32)
            self.scores = np.concatenate([self.scores, unknown], axis=1)
            self.sure = np.concatenate([self.sure, np.ones((rows, more), np.bool_)], axis=1)
            self.exact = np.concatenate([self.exact, np.zeros((rows, more), np.bool_)], axis=1)
            self.ranks = np.append(self.ranks, np.zeros(more, dtype=np.uint64))
        self.ranks[slot] = xxhash.xxh3_64_intdigest(name.encode())
        self.changed(slot)

    def start(self, row: int) -> None:
        """Begin a new pod class in this row."""
        while row >= self.scores.shape[0]:
            self.scores = np.concatenate([self.scores, np.full_like(self.scores, RULED_OUT)])
            self.sure = np.concatenate([self.sure, np.ones_like(self.sure)])
            self.exact = np.concatenate([self.exact, np.zeros_like(self.exact)])
        self.sure[row], self.exact[row] = False, False

    def row(self, row: int) -> tuple[Scores, Bools]:
        """Return the scores and certainty of one pod class, as views to be written to."""
        self._tops.pop(row, None)
        self._candidates.pop(row, None)
        return self.scores[row, : self.size], self.sure[row, : self.size]

    # -- changes of nodes

    def changed(self, slot: int) -> None:
        """Anything may have changed on the node."""
        self.changes += 1
        self.scores[:, slot] = OPTIMISTIC
        self.sure[:, slot], self.exact[:, slot] = False, False
        self._note_change(slot)
        self._candidates.clear()

    def tightened(self, slot: int) -> None:
        """The node has less free: its scores may be any, but ruled-out classes stay ruled out."""
        self.changes += 1
        scores = self.scores[:, slot]
        ruled_out = scores == RULED_OUT
        scores[~ruled_out] = OPTIMISTIC
        self.sure[:, slot], self.exact[:, slot] = ruled_out, False
        self._note_change(slot)

    def reranked(self) -> None:
        """Every score may be any, but ruled-out nodes stay ruled out."""
        self.changes += 1
        ruled_out = self.scores == RULED_OUT
        self.scores[~ruled_out] = OPTIMISTIC
        self.sure &= ruled_out
        self.exact[:] = False
        self._tops.clear()
        self._read.clear()

    def confirmed(self, slot: int) -> None:
        """The node's bounds are unchanged; its kubelet states and its refusals may not be."""
        self.changes += 1
        self.exact[:, slot] = False

    def emptied(self, slot: int) -> None:
        """The node ended."""
        self.changes += 1
        self.scores[:, slot] = RULED_OUT
        self.sure[:, slot] = True
        self._candidates.clear()

    # -- results

    def note_score(self, row: int, slot: int, score: int) -> None:
        """Keep the node's true score, which is at most the kept one."""
        earlier = self.scores[row, slot]
        if score == RULED_OUT and row in self._candidates and earlier != RULED_OUT:
            self._candidates[row] -= 1
        if earlier == OPTIMISTIC or score > earlier:
            # The nodes at the top may not be all that belong there now.
            self._tops.pop(row, None)
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
        self._tops.pop(row, None)
        self._candidates.pop(row, None)
        self._read.pop(row, None)

    def note_evaluated(self, row: int) -> None:
        """All nodes of the row have scores as they are now."""
        self._read[row] = self._logged()

    def note_ranks(
        self, row: int, slots: Slots, scores: npt.NDArray[np.int64], sure: Bools
    ) -> None:
        """Keep the scores of all of `changed_slots`, upper bounds if they are not sure: no node of
        the row is at OPTIMISTIC any more.
        """
        top = self._tops.get(row)
        if top is not None and len(slots) and top.logged == self._read.get(row):
            self._update_top(row, top, slots, scores)
        self.scores[row][slots], self.sure[row][slots] = scores, sure
        if row in self._candidates and len(slots) and np.minimum.reduce(scores) == RULED_OUT:
            self._candidates[row] -= int(np.count_nonzero(scores == RULED_OUT))
        self._read[row] = self._logged()

    def changed_slots(self, row: int) -> Slots:
        """Return the unsure nodes at OPTIMISTIC: the nodes that changed since the row was ranked,
        or all of them if much changed. If there are none, the row counts as ranked.
        """
        slots = self._unranked(row)
        if not len(slots):
            self._read[row] = self._logged()
        return slots

    def _unranked(self, row: int) -> Slots:
        read, logged = self._read.get(row), self._logged()
        if read == logged:
            return NO_SLOTS
        # What the log forgot is more than a quarter of the nodes.
        if read is None or logged - read > self.size // 4:
            return self.unsure_at(row, OPTIMISTIC)
        recent = dict.fromkeys(self._log[read - self._forgotten :])
        slots = np.array(list(recent), dtype=np.int64)
        changed: Slots = slots[self.scores[row].take(slots) == OPTIMISTIC]
        return changed

    def _note_change(self, slot: int) -> None:
        self._log.append(slot)
        if len(self._log) > max(LOGGED, 2 * self.size):
            half = len(self._log) // 2
            del self._log[:half]
            self._forgotten += half

    def _logged(self) -> int:
        return self._forgotten + len(self._log)

    # -- the best

    def top(self, row: int, salt: int) -> tuple[int, int]:
        """Return (slot, score) of the best node, equal scores in the pod's own order; the score is
        RULED_OUT if no node remains.
        """
        scores, mixer = self.scores[row], np.uint64(salt)
        top = self._tops.get(row)
        if top is None or top.logged != self._logged():
            top = self._new_top(row)
        while top.best != RULED_OUT:
            index = int((top.ranks ^ mixer).argmin()) if len(top.ranks) > 1 else 0
            slot = int(top.slots[index])
            if scores[slot] == top.best:
                return slot, top.best
            top = self._after_drops(row, top)
        return -1, RULED_OUT

    def top_with_offsets(self, row: int, salt: int, offsets: ScoreOffsets) -> tuple[int, int]:
        """Return the slot of the best sum, and the slot's own score, for a pod that prefers nodes
        or is kept from some.
        """
        scores = self.scores[row, : self.size]
        sums = np.where(scores == RULED_OUT, EXCLUDED, scores + offsets[: self.size])
        best = int(sums.max()) if self.size else EXCLUDED
        if best <= EXCLUDED // 2:
            return -1, RULED_OUT
        slots = np.flatnonzero(sums == best)
        slot = int(slots[(self.ranks[slots] ^ np.uint64(salt)).argmin()])
        return slot, int(scores[slot])

    def _update_top(self, row: int, top: _Top, slots: Slots, scores: npt.NDArray[np.int64]) -> None:
        """Merge new scores into the top nodes, some of which may have dropped."""
        best = int(np.maximum.reduce(scores))
        if best < top.best:
            self._tops[row] = top._replace(logged=self._logged())
            return
        at_best = slots[scores == best]
        if best == top.best:
            still_best = top.slots[self.scores[row].take(top.slots) == best]
            at_best = np.concatenate((still_best, at_best))
        self._keep_top(row, best, at_best, self._logged())

    def _new_top(self, row: int) -> _Top:
        scores = self.scores[row, : self.size]
        best = int(scores.max()) if self.size else RULED_OUT
        return self._keep_top(row, best, (scores == best).nonzero()[0], self._logged())

    def _after_drops(self, row: int, top: _Top) -> _Top:
        """Without the nodes that dropped; the next best if all of them did."""
        still_best = top.slots[self.scores[row, top.slots] == top.best]
        if len(still_best):
            return self._keep_top(row, top.best, still_best, top.logged)
        return self._new_top(row)

    def _keep_top(self, row: int, best: int, slots: Slots, logged: int) -> _Top:
        top = self._tops[row] = _Top(best, slots, self.ranks[slots], logged)
        return top

    # -- looking

    def unsure_at(self, row: int, score: int) -> Slots:
        """Return the nodes that have this score and are not sure of it."""
        at_score = self.scores[row, : self.size] == score
        unsure: Slots = np.flatnonzero(at_score & ~self.sure[row, : self.size])
        return unsure

    def unsure(self, row: int) -> Slots:
        """Return the nodes that are neither ruled out nor sure of their score."""
        open_slots = self.scores[row, : self.size] != RULED_OUT
        unsure: Slots = np.flatnonzero(open_slots & ~self.sure[row, : self.size])
        return unsure

    def candidates(self, row: int) -> int:
        """Return how many nodes are not ruled out."""
        count = self._candidates.get(row)
        if count is None:
            count = int(np.count_nonzero(self.scores[row, : self.size] != RULED_OUT))
            self._candidates[row] = count
        return count
