"""Do two processes that fold one log see the same? Marks tell, and hold a release back that would
see it otherwise.

A mark is a digest of what a fold promises (`Fold.promises`) at a position that every process
chooses alike. Whoever makes one compares it with those kept at the same place of the same history:

- of its own code, another digest means that folding depends on something else than the log: red;
- of another code, met while catching up, the newcomer promises something else than the release at
  work: it does not become ready, so that a rolling update stops and the release at work goes on,
  until an operator says that the change is meant (`TOPOLOG_FOLD_DIFFERS=go`). One that is at work
  already only tells it.

Effects need no mark: only the holder of a lease has them, and it holds it from an epoch on (design
section 3). Must not know what is promised. A fold that has set a stream aside makes no marks: what
it lacks is told already.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from typing import Generic, Literal, TypeVar

import msgspec

from shared.eventlog.errors import LogUnavailable
from shared.eventlog.port import EventLog, Mark, Place
from shared.runtime.health import Health
from shared.telemetry import logs, names
from shared.telemetry.instruments import count

S = TypeVar("S")

EVERY_FACTS = 1000
"""Between two marks of a small state. One of many pods makes them more rarely, so that they cost a fact the same."""
EVERY_WEIGHT = 4000
PIECES_A_TURN = 100
"""Pieces between which others get their turn."""
Differs = Literal["wait", "go"]


class Promises(msgspec.Struct, Generic[S], frozen=True):
    """`pieces(state)` is what the fold promises, in an order and form of its own that all releases
    share; `weight(state)` how many things that is."""

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
        self._awaited: set[int] = set()
        self._otherwise = ""
        self._out = logs.get(f"marks {projection}")

    def problem(self) -> str:
        """For readiness: with which release this one disagrees, and what to do."""
        return self._otherwise

    async def begin(self, skipped: Iterable[int]) -> None:
        """The fold begins anew, without these facts: learn where others, who skip the same, have
        made marks.
        """
        self._otherwise = ""
        self._health.recover(self._component)
        without = ",".join(map(str, sorted(skipped)))
        self._code = f"{self._fingerprint}/{hashlib.sha256(without.encode()).hexdigest()[:8] if without else ''}"
        self._awaited = {mark.place.position for mark in await self._kept()}

    def due(self, state: S, position: int, live: bool) -> bool:
        """Whether a mark is to be made here: where others made one, and from the end of the log on
        at even distances.
        """
        if position in self._awaited:
            return True
        return live and position % EVERY_FACTS == 0 and position % self._distance(state) == 0

    def may_be_due(self, first: int, last: int, live: bool) -> list[int]:
        """Those of the positions first..last where `due` is to be asked, in order: nearly no fact
        has to ask.
        """
        found = {position for position in self._awaited if first <= position <= last}
        if live:
            found.update(range(first + -first % EVERY_FACTS, last + 1, EVERY_FACTS))
        return sorted(found)

    async def make(self, state: S, place: Place, live: bool) -> None:
        """Make the mark of a state that stands at `place`, compare and keep it."""
        digest = hashlib.sha256()
        for number, piece in enumerate(self._promises.pieces(state), 1):
            digest.update(piece)
            digest.update(b"\n")
            if number % PIECES_A_TURN == 0:
                await asyncio.sleep(0)
        made = Mark(self._code, place, digest.hexdigest()[:16])
        for kept in await self._kept():
            if kept.place == place:
                self._compare(made, kept, live)
        try:
            await self._log.save_mark(self._projection, made)
        except LogUnavailable:
            return  # the next one will do

    def _distance(self, state: S) -> int:
        """The same for all that see the same: a power of two of EVERY_FACTS."""
        return EVERY_FACTS << (self._promises.weight(state) // EVERY_WEIGHT).bit_length()

    async def _kept(self) -> list[Mark]:
        """Those of folds that skip the same facts."""
        try:
            kept = await self._log.marks(self._projection)
        except LogUnavailable:
            return []
        return [
            mark
            for mark in kept
            if mark.fingerprint.partition("/")[2] == self._code.partition("/")[2]
        ]

    def _compare(self, made: Mark, kept: Mark, live: bool) -> None:
        same = made.digest == kept.digest
        whose = "own" if kept.fingerprint == made.fingerprint else "other"
        count(
            names.FOLDS_COMPARED,
            projection=self._projection,
            code=whose,
            result="same" if same else "differs",
        )
        if same:
            return
        self._out.error(
            names.FOLD_DIFFERS, projection=self._projection, position=made.place.position, code=whose, digest=made.digest,
            kept=kept.digest,
        )  # fmt: skip
        text = f"at position {made.place.position} this process promises pods something else ({made.digest}) than"
        if whose == "own":
            self._health.fail(
                self._component,
                f"{text} another of the same release ({kept.digest}); topolog replay verify",
            )
        elif not live and self._differs == "wait":
            self._otherwise = (
                f"{text} the release {kept.fingerprint[:12]} ({kept.digest}); if CHANGELOG says that charges change: "
                "TOPOLOG_FOLD_DIFFERS=go"
            )

    @property
    def _component(self) -> str:
        return f"{self._projection}: marks"
