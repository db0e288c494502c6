"""The recorded workload under two configurations, side by side: what came out, and the first
decision that differs.

Both sides play at once, a process each, or one after the other in this process. Until the first
decision that differs they are in one state, so that each can be asked there what the other's choice
was to it.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import msgspec

from services.comparison.cells import Reports
from services.scheduler.settings import Choice
from services.whatif.playing import Asked, Decided, Side, play
from services.whatif.recorded import Past, Recorded
from services.whatif.world import World
from shared.runtime import lean
from shared.runtime.secret_file import withheld

NOBODY = (-1, "")


class SideFailed(Exception):
    """A side's process ended without a result."""


class Player(msgspec.Struct, frozen=True):
    """Everything that one side is played with."""

    name: str
    world: World
    choice: Choice
    seed: int
    reports: Reports
    ask: tuple[int, str] = NOBODY


class Word(msgspec.Struct, frozen=True):
    """What a playing process says: how far it is, what came out, or what it was asked."""

    share: float = 0.0
    side: Side | None = None
    asked: tuple[Decided, float, list[str]] | None = None
    error: str = ""


class FirstDifference(msgspec.Struct, frozen=True):
    """The first decision that differs: its number, when (seconds from the history's beginning),
    whose, and each side's reason with what the other's node was to it."""

    number: int
    at_s: float
    pod: str
    uid: str
    before: str
    before_of_other: list[str]
    after: str
    after_of_other: list[str]


def as_recorded(found: Recorded) -> Side:
    """What the history itself says came out. Who waited before it begins waits from there, as on
    the played sides. Zones in use and fragmentation it does not tell (0)."""
    replaced = set(found.replaced.values())
    roots = [
        uid for uid, past in found.pods.items() if uid not in replaced and _counts(found, past)
    ]
    waits, waiting, underway = list[float](), list[float](), 0
    for uid in roots:
        last = uid
        while last in found.replaced:
            last = found.replaced[last]
        past, seen_us = found.pods[last], max(found.pods[uid].seen_us, found.begin_us)
        if past.running_us:
            waits.append((past.running_us - seen_us) / 1e6)
        elif not past.ended_us or past.rejected:
            waiting.append((found.end_us - seen_us) / 1e6)
            underway += bool(past.node) and not past.rejected
    every = sorted([*waits, *waiting])
    rejected = sum(past.rejected for past in found.pods.values())
    mean, p99 = (
        sum(every) / max(1, len(every)),
        every[min(len(every) - 1, int(len(every) * 0.99))] if every else 0.0,
    )
    counts = len(every), len(waits), rejected, len(waiting)
    return Side("recorded", *counts, round(mean, 2), round(p99, 2), 0.0, 0.0, underway)


def _counts(found: Recorded, past: Past) -> bool:
    return (
        not past.bound_by_others and not 0 < max(past.running_us, past.bound_us) <= found.begin_us
    )


def side_by_side(
    one: Player, other: Player, progress: Callable[[float], None], jobs: int = 2
) -> tuple[Side, Side]:
    """Play both to the end. `progress` hears the share that is done. Raises SideFailed."""
    before, after = (word.side for word in _played((one, other), progress, jobs))
    if before is None or after is None:
        raise SideFailed("a side ended where nobody asked it")
    return before, after


def first_difference(
    one: Player, other: Player, sides: tuple[Side, Side], keys: dict[str, str], jobs: int = 2
) -> FirstDifference | None:
    """None where every decision is the same. Both sides play again up to it."""
    before, after = (side.decisions for side in sides)
    number = next(
        (at for at, pair in enumerate(zip(before, after, strict=False)) if not _alike(*pair)),
        min(len(before), len(after)),
    )
    if number >= min(len(before), len(after)):
        return None
    mine, theirs = before[number], after[number]
    about = (
        theirs.node if theirs.uid == mine.uid else "",
        mine.node if theirs.uid == mine.uid else "",
    )
    players = [
        msgspec.structs.replace(player, ask=(number, node))
        for player, node in zip((one, other), about, strict=True)
    ]
    asked, answered = (word.asked for word in _played(players, lambda _: None, jobs))
    if asked is None or answered is None:
        raise SideFailed("a side did not come to the same decision again")
    pod = keys.get(mine.uid, mine.uid)
    said = (
        theirs.text
        if theirs.uid == mine.uid
        else f"decided {keys.get(theirs.uid, theirs.uid)} then: {theirs.text}"
    )
    return FirstDifference(
        number + 1, round(asked[1], 3), pod, mine.uid, mine.text, asked[2], said, answered[2]
    )


def count_differing(sides: tuple[Side, Side]) -> int:
    """Pods whose last decision put them elsewhere, or nowhere, on the two sides."""
    one, other = ({each.uid: each.node for each in side.decisions} for side in sides)
    return sum(one.get(uid, "") != other.get(uid, "") for uid in {*one, *other})


def _alike(one: Decided, other: Decided) -> bool:
    return (one.uid, one.node) == (other.uid, other.node)


def _played(players: Sequence[Player], progress: Callable[[float], None], jobs: int) -> list[Word]:
    """Each player in a process of its own, or all in this one (`jobs` 1); their last words in
    order.
    """
    if jobs == 1:
        return [
            _alone(number, player, len(players), progress) for number, player in enumerate(players)
        ]
    context = multiprocessing.get_context("spawn")
    waiting, running = list(enumerate(players)), dict[Connection, tuple[int, Any]]()
    last, shares = dict[int, Word](), dict[int, float]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                number, player = waiting.pop(0)
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_play_one, args=(player, theirs), daemon=True)
                with withheld():
                    process.start()
                theirs.close()
                running[ours] = number, process
            for ready in cast("list[Connection]", wait(list(running))):
                number, process = running[ready]
                word = _received(ready, players[number].name)
                shares[number] = word.share
                progress(sum(shares.values()) / len(players))
                if word.side is not None or word.asked is not None:  # its last one
                    last[number] = word
                    process.join()
                    del running[ready]
    finally:
        for _, process in running.values():
            process.terminate()
    return [last[number] for number in range(len(players))]


def _received(ready: Connection, name: str) -> Word:
    try:
        word = msgspec.msgpack.decode(ready.recv_bytes(), type=Word)
    except EOFError:
        raise SideFailed(f"the side {name!r} ended without a result") from None
    if word.error:
        raise SideFailed(f"the side {name!r} failed: {word.error}")
    return word


def _alone(number: int, player: Player, count: int, progress: Callable[[float], None]) -> Word:
    word = _last_word(player, lambda share: progress((number + share) / count))
    if word.error:
        raise SideFailed(f"the side {player.name!r} failed: {word.error}")
    return word


def _play_one(player: Player, told: Connection) -> None:
    lean.collect_seldom()

    def say(word: Word) -> None:
        told.send_bytes(msgspec.msgpack.encode(word))

    say(_last_word(player, lambda share: say(Word(share))))


def _last_word(player: Player, progress: Callable[[float], None]) -> Word:
    began = time.process_time()
    try:
        side = play(
            player.name,
            player.world,
            player.choice,
            player.seed,
            player.reports,
            progress,
            player.ask,
        )
    except Asked as reached:
        return Word(1.0, asked=(reached.decided, reached.at_s, reached.told))
    except Exception as error:
        return Word(error=f"{type(error).__name__}: {error}")
    return Word(1.0, msgspec.structs.replace(side, cpu_s=round(time.process_time() - began, 2)))
