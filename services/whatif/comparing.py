"""The recorded workload under two configurations, side by side: the results, and the first decision
that differs.

Both sides run at once, one process each, or one after the other in this process. Until the first
decision that differs both are in the same state, so each can be asked there how it judged the
other's choice.
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
    """The inputs of one side's run."""

    name: str
    world: World
    choice: Choice
    seed: int
    reports: Reports
    ask: tuple[int, str] = NOBODY


class SideMessage(msgspec.Struct, frozen=True):
    """A message of a running side: its progress, its result, or the answer to a question."""

    share: float = 0.0
    side: Side | None = None
    asked: tuple[Decided, float, list[str]] | None = None
    error: str = ""


class FirstDifference(msgspec.Struct, frozen=True):
    """The first decision that differs. `at_s` is seconds from the start of the history. `before`
    and `after` are the decisions of the two sides; `..._of_other` is a side's judgement of the node
    that the other side chose.
    """

    number: int
    at_s: float
    pod: str
    uid: str
    before: str
    before_of_other: list[str]
    after: str
    after_of_other: list[str]


def as_recorded(recorded: Recorded) -> Side:
    """Return the results in the history itself.

    The wait of a pod that waited already when the history begins counts from there, as on the
    simulated sides. Zones in use and fragmentation are 0, because the history does not show them.
    """
    replaced = set(recorded.replaced.values())
    roots = [
        uid
        for uid, past in recorded.pods.items()
        if uid not in replaced and _counts(recorded, past)
    ]
    waits, waiting, underway = list[float](), list[float](), 0
    for uid in roots:
        last = uid
        while last in recorded.replaced:
            last = recorded.replaced[last]
        past, seen_us = recorded.pods[last], max(recorded.pods[uid].seen_us, recorded.begin_us)
        if past.running_us:
            waits.append((past.running_us - seen_us) / 1e6)
        elif not past.ended_us or past.rejected:
            waiting.append((recorded.end_us - seen_us) / 1e6)
            underway += bool(past.node) and not past.rejected
    all_waits = sorted([*waits, *waiting])
    rejected = sum(past.rejected for past in recorded.pods.values())
    mean, p99 = (
        sum(all_waits) / max(1, len(all_waits)),
        all_waits[min(len(all_waits) - 1, int(len(all_waits) * 0.99))] if all_waits else 0.0,
    )
    counts = len(all_waits), len(waits), rejected, len(waiting)
    return Side("recorded", *counts, round(mean, 2), round(p99, 2), 0.0, 0.0, underway)


def _counts(recorded: Recorded, past: Past) -> bool:
    return (
        not past.bound_by_others
        and not 0 < max(past.running_us, past.bound_us) <= recorded.begin_us
    )


def side_by_side(
    first: Player, second: Player, progress: Callable[[float], None], jobs: int = 2
) -> tuple[Side, Side]:
    """Run both sides to the end. `progress` receives the share that is done. Raises SideFailed."""
    first_side, second_side = (message.side for message in _played((first, second), progress, jobs))
    if first_side is None or second_side is None:
        raise SideFailed("a side ended before its last decision")
    return first_side, second_side


def first_difference(
    first: Player, second: Player, sides: tuple[Side, Side], keys: dict[str, str], jobs: int = 2
) -> FirstDifference | None:
    """Return the first difference; None if every decision is the same. Both sides run again
    up to it.
    """
    first_decisions, second_decisions = (side.decisions for side in sides)
    number = next(
        (
            index
            for index, pair in enumerate(zip(first_decisions, second_decisions, strict=False))
            if not _alike(*pair)
        ),
        min(len(first_decisions), len(second_decisions)),
    )
    if number >= min(len(first_decisions), len(second_decisions)):
        return None
    mine, theirs = first_decisions[number], second_decisions[number]
    about = (
        theirs.node if theirs.uid == mine.uid else "",
        mine.node if theirs.uid == mine.uid else "",
    )
    players = [
        msgspec.structs.replace(player, ask=(number, node))
        for player, node in zip((first, second), about, strict=True)
    ]
    asked, answered = (message.asked for message in _played(players, lambda _: None, jobs))
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
    """Return how many pods have a different last node (or none) on the two sides."""
    first_nodes, second_nodes = (
        {decision.uid: decision.node for decision in side.decisions} for side in sides
    )
    return sum(
        first_nodes.get(uid, "") != second_nodes.get(uid, "")
        for uid in {*first_nodes, *second_nodes}
    )


def _alike(first: Decided, second: Decided) -> bool:
    return (first.uid, first.node) == (second.uid, second.node)


def _played(
    players: Sequence[Player], progress: Callable[[float], None], jobs: int
) -> list[SideMessage]:
    """Run each player in a process of its own, or all in this one (`jobs` 1). Returns their last
    messages in order.
    """
    if jobs == 1:
        return [
            _alone(number, player, len(players), progress) for number, player in enumerate(players)
        ]
    context = multiprocessing.get_context("spawn")
    waiting, running = list(enumerate(players)), dict[Connection, tuple[int, Any]]()
    last, shares = dict[int, SideMessage](), dict[int, float]()
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
                message = _received(ready, players[number].name)
                shares[number] = message.share
                progress(sum(shares.values()) / len(players))
                if message.side is not None or message.asked is not None:  # its last message
                    last[number] = message
                    process.join()
                    del running[ready]
    finally:
        for _, process in running.values():
            process.terminate()
    return [last[number] for number in range(len(players))]


def _received(ready: Connection, name: str) -> SideMessage:
    try:
        message = msgspec.msgpack.decode(ready.recv_bytes(), type=SideMessage)
    except EOFError:
        raise SideFailed(f"the side {name!r} ended without a result") from None
    if message.error:
        raise SideFailed(f"the side {name!r} failed: {message.error}")
    return message


def _alone(
    number: int, player: Player, count: int, progress: Callable[[float], None]
) -> SideMessage:
    message = _last_message(player, lambda share: progress((number + share) / count))
    if message.error:
        raise SideFailed(f"the side {player.name!r} failed: {message.error}")
    return message


def _play_one(player: Player, pipe: Connection) -> None:
    lean.collect_seldom()

    def say(message: SideMessage) -> None:
        pipe.send_bytes(msgspec.msgpack.encode(message))

    say(_last_message(player, lambda share: say(SideMessage(share))))


def _last_message(player: Player, progress: Callable[[float], None]) -> SideMessage:
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
        return SideMessage(1.0, asked=(reached.decided, reached.at_s, reached.judgement))
    except Exception as error:
        return SideMessage(error=f"{type(error).__name__}: {error}")
    return SideMessage(
        1.0, msgspec.structs.replace(side, cpu_s=round(time.process_time() - began, 2))
    )
