"""Marks show whether two processes that fold one log compute the same state, and hold back a
release that does not.

A mark is a digest of what a fold promises (`Fold.promises`) at a position that every process
chooses alike. A process that makes a mark compares it with the kept marks of the same place:

- If a mark of the same release differs, folding depends on something besides the log: red.
- If a mark of another release differs while this process catches up, it does not become ready, so
  that a rolling update stops and the running release goes on, until an operator sets
  `TOPOLOG_FOLD_DIFFERS=go`. A process that already works only logs the difference.

Effects need no mark: only the holder of a lease has them, under its epoch (ARCHITECTURE.md, S3). A
fold that has quarantined a stream makes no marks, because its gap is already reported.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, Literal, TypeVar

import msgspec

from shared.eventlog.errors import LogUnavailable
from shared.eventlog.port import EventLog, Mark, Place
from shared.runtime.child import LARGE, Child
from shared.runtime.health import Health
from shared.telemetry import logs, names
from shared.telemetry.instruments import count

S = TypeVar("S")

# Events between two marks of a small state. A state of many pods makes marks more rarely, so that
# the cost per event stays the same.
EVERY_FACTS = 1000
EVERY_WEIGHT = 4000
# Pieces between two yields to the event loop.
PIECES_A_TURN = 100
Differs = Literal["wait", "go"]


class Promises(msgspec.Struct, Generic[S], frozen=True):
    """`pieces(state)` are the fold's promises, in an order and form that all releases share;
    `weight(state)` is their number."""

    pieces: Callable[[S], Iterable[bytes]]
    weight: Callable[[S], int]


class Marks(Generic[S]):
    """Makes and compares the marks of one projection."""

    def __init__(
        self,
        projection: str,
        fingerprint: str,
        promises: Promises[S],
        log: EventLog,
        health: Health,
        differs: Differs = "wait",
    ) -> None:
        self._projection, self._fingerprint, self._promises = projection, fingerprint, promises
        self._log, self._health, self._differs = log, health, differs
        self._code = f"{fingerprint}/"
        self._child = Child()
        self._awaited: set[int] = set()
        self._disagreement = ""
        self._out = logs.get(f"marks {projection}")

    def problem(self) -> str:
        """For readiness: the release that this one disagrees with, and what to do."""
        return self._disagreement

    async def begin(self, skipped: Iterable[int]) -> None:
        """Start a fold without the skipped events: learn the positions of marks by folds that skip
        the same events."""
        self._disagreement = ""
        self._health.recover(self._component)
        without = ",".join(map(str, sorted(skipped)))
        suffix = hashlib.sha256(without.encode()).hexdigest()[:8] if without else ""
        self._code = f"{self._fingerprint}/{suffix}"
        self._awaited = {mark.place.position for mark in await self._kept()}

    def due(self, state: S, position: int, live: bool) -> bool:
        """Return whether to make a mark here: at the positions of existing marks and, once live, at
        regular distances."""
        if position in self._awaited:
            return True
        return live and position % EVERY_FACTS == 0 and position % self._distance(state) == 0

    def may_be_due(self, first: int, last: int, live: bool) -> list[int]:
        """Return the positions in first..last at which `due` must be called, in order."""
        positions = {position for position in self._awaited if first <= position <= last}
        if live:
            positions.update(range(first + -first % EVERY_FACTS, last + 1, EVERY_FACTS))
        return sorted(positions)

    async def make(self, state: S, place: Place, live: bool) -> None:
        """Make the mark of a state at `place`, compare it and keep it. Once live, a child process
        makes the mark of a large state, and this returns when the state may change again."""
        if live and self._promises.weight(state) >= LARGE:
            return await self._child.begin(
                lambda: self._digest(state).encode(), partial(self._made, place, live)
            )
        digest = hashlib.sha256()
        for number, piece in enumerate(self._promises.pieces(state), 1):
            _add(digest, piece)
            if number % PIECES_A_TURN == 0:
                await asyncio.sleep(0)
        return await self._made(place, live, _short(digest).encode())

    async def stop(self) -> None:
        """End what `make` began."""
        await self._child.stop()

    def _digest(self, state: S) -> str:
        digest = hashlib.sha256()
        for piece in self._promises.pieces(state):
            _add(digest, piece)
        return _short(digest)

    async def _made(self, place: Place, live: bool, digest: bytes | None) -> None:
        if digest is None:
            return  # the next mark is enough
        mark = Mark(self._code, place, digest.decode())
        for kept in await self._kept():
            if kept.place == place:
                self._compare(mark, kept, live)
        try:
            await self._log.save_mark(self._projection, mark)
        except LogUnavailable:
            return  # the next mark is enough

    def _distance(self, state: S) -> int:
        """Return a power of two of EVERY_FACTS, which is equal for equal states."""
        return EVERY_FACTS << (self._promises.weight(state) // EVERY_WEIGHT).bit_length()

    async def _kept(self) -> list[Mark]:
        """Return the marks of folds that skip the same events."""
        try:
            marks = await self._log.marks(self._projection)
        except LogUnavailable:
            return []
        return [
            mark
            for mark in marks
            if mark.fingerprint.partition("/")[2] == self._code.partition("/")[2]
        ]

    def _compare(self, mark: Mark, kept: Mark, live: bool) -> None:
        same = mark.digest == kept.digest
        whose = "own" if kept.fingerprint == mark.fingerprint else "other"
        count(
            names.FOLDS_COMPARED,
            projection=self._projection,
            code=whose,
            result="same" if same else "differs",
        )
        if same:
            return
        self._out.error(
            names.FOLD_DIFFERS,
            projection=self._projection,
            position=mark.place.position,
            code=whose,
            digest=mark.digest,
            kept=kept.digest,
        )
        text = (
            f"at position {mark.place.position} this process promises pods something else "
            f"({mark.digest}) than"
        )
        if whose == "own":
            self._health.fail(
                self._component,
                f"{text} another of the same release ({kept.digest}); topolog replay verify",
            )
        elif not live and self._differs == "wait":
            self._disagreement = (
                f"{text} the release {kept.fingerprint[:12]} ({kept.digest}); if the CHANGELOG "
                "says that charges change, set TOPOLOG_FOLD_DIFFERS=go"
            )

    @property
    def _component(self) -> str:
        return f"{self._projection}: marks"


def _add(digest: hashlib._Hash, piece: bytes) -> None:
    digest.update(piece)
    digest.update(b"\n")


def _short(digest: hashlib._Hash) -> str:
    return digest.hexdigest()[:16]
