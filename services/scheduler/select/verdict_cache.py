"""Verdicts kept per shape and node: a score or "ruled out", and whether that is sure.

An unsure score is an upper bound on the true one, so that only nodes that come out on top need a
second look. A change that can only lower scores makes them unsure; any other change sets them to
OPTIMISTIC. Between two of the latter scores only fall, so that the nodes that once shared the top
hold it until each of them fell. Must not know why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from services.scheduler.snapshot.node_arrays import BARRED, ScoreOffsets, Slots, grown

OPTIMISTIC = 101
RULED_OUT = -1

LOGGED = 1024
"""Changes that are remembered at least."""

NOTHING_NEW: Slots = np.zeros(0, dtype=np.int64)


class _Top(NamedTuple):
    """Those who stood at the best score of a row when it was looked for last, when so many changes
    were told.
    """

    best: int
    slots: Slots
    ranks: npt.NDArray[np.uint64]
    told: int


class ScoreCache:
    """`scores`, `sure` and `exact` (judged singly as things stand) are [shape, node]; `ranks`
    orders ties by node name, apart for every pod. `changes` counts changes of nodes."""

    def __init__(self) -> None:
        self.scores = np.full((8, 64), RULED_OUT, dtype=np.int16)
        self.sure = np.ones((8, 64), dtype=np.bool_)
        self.exact = np.zeros((8, 64), dtype=np.bool_)
        self.ranks = np.zeros(64, dtype=np.uint64)
        self.size = self.changes = 0
        self._tops: dict[int, _Top] = {}
        self._candidates: dict[int, int] = {}
        self._log: list[int] = []
        self._forgotten = 0
        self._read: dict[int, int] = {}

    def reserve(self, slot: int, name: str) -> None:
        """A new node in this slot: every shape has yet to judge it."""
        self.size = max(self.size, slot + 1)
        wide = self.scores.shape[1]
        if slot >= wide:
            rows, more = self.scores.shape[0], grown(wide) - wide
            self.scores = np.concatenate(
                [self.scores, np.full((rows, more), RULED_OUT, dtype=np.int16)], axis=1
            )
            self.sure = np.concatenate([self.sure, np.ones((rows, more), dtype=np.bool_)], axis=1)
            self.exact = np.concatenate(
                [self.exact, np.zeros((rows, more), dtype=np.bool_)], axis=1
            )
            self.ranks = np.append(self.ranks, np.zeros(more, dtype=np.uint64))
        self.ranks[slot] = xxhash.xxh3_64_intdigest(name.encode())
        self.changed(slot)

    def start(self, row: int) -> None:
        """A new shape in this row."""
        while row >= self.scores.shape[0]:
            self.scores = np.concatenate([self.scores, np.full_like(self.scores, RULED_OUT)])
            self.sure = np.concatenate([self.sure, np.ones_like(self.sure)])
            self.exact = np.concatenate([self.exact, np.zeros_like(self.exact)])
        self.sure[row], self.exact[row] = False, False

    def changed(self, slot: int) -> None:
        """Anything may have changed on the node."""
        self.changes += 1
        self.scores[:, slot] = OPTIMISTIC
        self.sure[:, slot], self.exact[:, slot] = False, False
        self._tell(slot)
        self._candidates.clear()

    def tightened(self, slot: int) -> None:
        """Something more is held on the node: its scores may be any, but what is ruled out stays
        so.
        """
        self.changes += 1
        scores = self.scores[:, slot]
        ruled_out = scores == RULED_OUT
        scores[~ruled_out] = OPTIMISTIC
        self.sure[:, slot], self.exact[:, slot] = ruled_out, False
        self._tell(slot)

    def reranked(self) -> None:
        """Every score may be any, what is ruled out stays so."""
        self.changes += 1
        ruled_out = self.scores == RULED_OUT
        self.scores[~ruled_out] = OPTIMISTIC
        self.sure &= ruled_out
        self.exact[:] = False
        self._tops.clear()
        self._read.clear()

    def lowered(self, slot: int, drops: npt.NDArray[np.int16] | None = None) -> None:
        """Scores on the node can only have fallen, by `drops` at least for each shape; what is
        ruled out stays so.
        """
        self.changes += 1
        scores = self.scores[:, slot]
        if drops is not None:
            np.maximum(scores - drops, np.minimum(scores, 0), out=scores)
        np.less(scores, 0, out=self.sure[:, slot])
        self.exact[:, slot] = False

    def confirmed(self, slot: int) -> None:
        """Bounds on the node are what they were; what kubelet states were asked for, and what
        refusals tell of, may not be.
        """
        self.changes += 1
        self.exact[:, slot] = False

    def emptied(self, slot: int) -> None:
        """The node is gone."""
        self.changes += 1
        self.scores[:, slot] = RULED_OUT
        self.sure[:, slot] = True
        self._candidates.clear()

    def judged(self, row: int, slot: int, score: int) -> None:
        """The node's true score for the shape, which is no more than it stood at."""
        before = self.scores[row, slot]
        if score == RULED_OUT and row in self._candidates and before != RULED_OUT:
            self._candidates[row] -= 1
        if (
            before == OPTIMISTIC or score > before
        ):  # those who were the best before may not be all of them
            self._tops.pop(row, None)
        self.scores[row, slot] = score
        self.sure[row, slot] = self.exact[row, slot] = True

    def doubted(self, row: int, bounds: Mapping[int, int]) -> None:
        """Slot -> the upper bound of its score, as it was before."""
        slots = list(bounds)
        self.scores[row, slots], self.sure[row, slots], self.exact[row, slots] = (
            list(bounds.values()),
            False,
            False,
        )
        self._tops.pop(row, None)
        self._candidates.pop(row, None)
        self._read.pop(row, None)

    # -- what changed since a row was ranked
    # -------------------------------------------------------------------------

    def _tell(self, slot: int) -> None:
        """Some rows stand at OPTIMISTIC on the node from now on."""
        self._log.append(slot)
        if len(self._log) > max(LOGGED, 2 * self.size):
            half = len(self._log) // 2
            del self._log[:half]
            self._forgotten += half

    def news(self, row: int) -> Slots:
        """The nodes that stand at OPTIMISTIC, without being sure of it; those that changed since
        the row was `ranked_all`, where that is known. Looks at all where much changed."""
        read, told = self._read.get(row), self._forgotten + len(self._log)
        if read == told:
            return NOTHING_NEW
        if read is None or told - read > self.size // 4:  # whatever was forgotten is more than that
            return self.unsure_at(row, OPTIMISTIC)
        slots = np.array(list(dict.fromkeys(self._log[read - self._forgotten :])), dtype=np.int64)
        found: Slots = slots[self.scores[row].take(slots) == OPTIMISTIC]
        return found

    def ranked_all(
        self, row: int, slots: Slots, scores: Slots, sure: npt.NDArray[np.bool_]
    ) -> None:
        """The scores of all of `news`, upper bounds where they are not sure: no node stands at
        OPTIMISTIC any more.
        """
        top, told, standing = (
            self._tops.get(row),
            self._forgotten + len(self._log),
            self.scores[row],
        )
        if top is not None and len(slots) and top.told == self._read.get(row):
            self._keep_top(row, top, slots, scores, told)
        standing[slots], self.sure[row][slots] = scores, sure
        if row in self._candidates and len(slots) and np.minimum.reduce(scores) == RULED_OUT:
            self._candidates[row] -= int(np.count_nonzero(scores == RULED_OUT))
        self._read[row] = told

    def _keep_top(self, row: int, top: _Top, slots: Slots, scores: Slots, told: int) -> None:
        """The best of those that stood there, who may have dropped, and of these."""
        best = int(np.maximum.reduce(scores))
        if best < top.best:
            self._tops[row] = top._replace(told=told)
            return
        joined = slots[scores == best]
        if best == top.best:
            joined = np.concatenate((top.slots[self.scores[row].take(top.slots) == best], joined))
        self._keep(row, best, joined, told)

    def swept(self, row: int) -> None:
        """All nodes of the row were scored as they stand."""
        self._read[row] = self._forgotten + len(self._log)

    # -- the best
    # ----------------------------------------------------------------------------------------------------

    def top(self, row: int, salt: int) -> tuple[int, int]:
        """(slot, score) of the best node, ties in the pod's own order; score RULED_OUT when nobody
        is left.
        """
        scores, mixer = self.scores[row], np.uint64(salt)
        top = self._tops.get(row)
        if top is None or top.told != self._forgotten + len(self._log):
            top = self._found(row)
        while top.best != RULED_OUT:
            at = int((top.ranks ^ mixer).argmin()) if len(top.ranks) > 1 else 0
            slot = int(top.slots[at])
            if scores[slot] == top.best:
                return slot, top.best
            top = self._after_drops(row, top)
        return -1, RULED_OUT

    def top_lifted(self, row: int, salt: int, offsets: ScoreOffsets) -> tuple[int, int]:
        """The same for a pod that prefers nodes, or is kept from some: the slot of the best sum,
        with its own score.
        """
        scores = self.scores[row, : self.size]
        sums = np.where(scores == RULED_OUT, BARRED, scores + offsets[: self.size])
        best = int(sums.max()) if self.size else BARRED
        if best <= BARRED // 2:
            return -1, RULED_OUT
        slots = np.flatnonzero(sums == best)
        slot = int(slots[(self.ranks[slots] ^ np.uint64(salt)).argmin()])
        return slot, int(scores[slot])

    def _found(self, row: int) -> _Top:
        scores = self.scores[row, : self.size]
        best = int(scores.max()) if self.size else RULED_OUT
        return self._keep(
            row, best, (scores == best).nonzero()[0], self._forgotten + len(self._log)
        )

    def _after_drops(self, row: int, top: _Top) -> _Top:
        """Without those whose score dropped since; the next best when all of them did."""
        still = top.slots[self.scores[row, top.slots] == top.best]
        return self._keep(row, top.best, still, top.told) if len(still) else self._found(row)

    def _keep(self, row: int, best: int, slots: Slots, told: int) -> _Top:
        top = self._tops[row] = _Top(best, slots, self.ranks[slots], told)
        return top

    def unsure_at(self, row: int, score: int) -> Slots:
        """The nodes that stand at this score without being sure of it."""
        found: Slots = np.flatnonzero(
            (self.scores[row, : self.size] == score) & ~self.sure[row, : self.size]
        )
        return found

    def unsure(self, row: int) -> Slots:
        """The nodes that are not ruled out for the shape and not sure of their score."""
        found: Slots = np.flatnonzero(
            (self.scores[row, : self.size] != RULED_OUT) & ~self.sure[row, : self.size]
        )
        return found

    def candidates(self, row: int) -> int:
        """Nodes not ruled out."""
        found = self._candidates.get(row)
        if found is None:
            found = self._candidates[row] = int(
                np.count_nonzero(self.scores[row, : self.size] != RULED_OUT)
            )
        return found

    def row(self, row: int) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.bool_]]:
        """The scores and certainty of one shape, as views to be written to."""
        self._tops.pop(row, None)
        self._candidates.pop(row, None)
        return self.scores[row, : self.size], self.sure[row, : self.size]


def salt_of(uid: str) -> int:
    """A pod's hash for breaking ties."""
    return xxhash.xxh3_64_intdigest(uid.encode())
