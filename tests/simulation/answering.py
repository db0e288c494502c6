"""How the outside answers the loops: at once, late, wrongly, never, twice; and which calls are
carried out although no loop waits. Binding calls and appends of a process that died or lost its
lease may still arrive.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

from services.scheduler.watch.kinds import identity
from shared.eventlog.errors import LogUnavailable
from shared.eventlog.port import Appended, Commit, Outcome
from shared.kube.port import Answer, KubeUnavailableError, Listed, Lost
from tests.simulation.cluster import Api
from tests.simulation.fibers import Ask, Fiber
from tests.simulation.log import SimLog
from tests.simulation.node import Add
from tests.simulation.process import Process

STRAYS = 20
# What a patch is noted as that is executed although its sender no longer waits for it.
PATCHES = {"patch_node": "late patch", "patch_pod": "late patch of a pod"}


class Outside:
    """Answers the loops' questions to the outside. `strays` are questions for which no loop waits.
    `binding` (uid, node) and `evicting` (uid) get every such call before it is carried out,
    `appended` every append after it. `lied` are the loops whose newest list was wrongly empty, so
    that none gets two such lists in a row.
    """

    def __init__(
        self, log: SimLog, api: Api, rng: random.Random, mark: Callable[[str], None]
    ) -> None:
        self.log, self.api, self.rng, self.mark = log, api, rng, mark
        self.strays: list[Ask] = []
        self.lied: set[str] = set()
        self.binding: Callable[[str, str], None] = lambda _uid, _node: None
        self.evicting: Callable[[str], None] = lambda _uid: None
        self.appended: Callable[[Ask, list[Outcome]], None] = lambda _ask, _outcomes: None

    def abandoned(self, ask: Ask) -> None:
        """Drop a question whose process was killed. Its call is lost, or still under way."""
        if ask.kind in ("bind", "evict", "append", "patch_node") and self.rng.random() < 0.5:
            self.strays.append(ask)
            del self.strays[:-STRAYS]

    def offer(self, add: Add, processes: list[Process]) -> None:
        """Offer every answer that could be given next."""
        for process in processes:
            for fiber in process.fibers:
                if fiber.ask is not None:
                    self._offer_one(add, process, fiber, fiber.ask)
        for stray in self.strays:
            add("execute", f"stray {stray.kind}", lambda stray=stray: self._execute_stray(stray))  # type: ignore[misc]

    def _offer_one(self, add: Add, process: Process, fiber: Fiber, ask: Ask) -> None:
        about = f"{process.name} {fiber.name}"

        def offer(kind: str, what: str, act: Callable[[], str | None]) -> None:
            add(kind, f"{about} {what}", lambda: self._then_settle(process, act))

        if ask.kind == "append":
            what = " ".join(commit.commit_id for commit in ask.args[0])[:90]
            offer("append", what, lambda: self._append(fiber, ask))
            offer("append lost", what, lambda: self._append_unheard(fiber, ask))
            offer("append down", what, lambda: fiber.throw(LogUnavailable("the log is down")))
        elif ask.kind == "reach":
            if process.position >= ask.args[0]:
                offer("reach", str(ask.args[0]), lambda: fiber.resume(True))
            else:
                offer("reach late", str(ask.args[0]), lambda: fiber.resume(False))
        elif ask.kind == "sleep":
            offer("wake", "", lambda: fiber.resume(None))
        elif ask.kind == "list":
            self._offer_list(offer, process, fiber, ask)
        else:
            self._offer_call(offer, fiber, ask)

    def _offer_list(self, offer: Add, process: Process, fiber: Fiber, ask: Ask) -> None:
        """Offer the answer to a list, which shows the objects at the time of the request, whenever
        its last page arrives.
        """
        about = f"{process.name} {fiber.name}"
        if ask.answer is None:
            offer("execute", "list", lambda: self._list(ask))
            return
        offer("answer", "list", lambda: self._hand(fiber, about, ask.answer))
        error = KubeUnavailableError(
            f"list of {ask.args[1]}: the token of its second page has expired"
        )
        offer("list cut", "", lambda: fiber.throw(error))
        if ask.answer.items and about not in self.lied:
            empty = Listed([], ask.answer.resource_version)
            offer("list empty", "", lambda: self._hand(fiber, about, empty, lie="empty list"))
            short = Listed(ask.answer.items[:1], ask.answer.resource_version)
            if _lacks_most(process, ask.args[1], short):
                offer("list short", "", lambda: self._hand(fiber, about, short, lie="short list"))

    def _list(self, ask: Ask) -> str:
        lists, kind = ask.args
        ask.answer = lists(kind)
        return f"{len(ask.answer.items)} at {ask.answer.resource_version}"

    def _hand(self, fiber: Fiber, about: str, listed: Listed, lie: str = "") -> str:
        (self.lied.add if lie else self.lied.discard)(about)
        if lie:
            self.mark(lie)
        fiber.resume(listed)
        return f"{len(listed.items)} items"

    def _offer_call(self, offer: Add, fiber: Fiber, ask: Ask) -> None:
        what = f"{ask.kind} {ask.args[1]}"
        if ask.answer is not None:
            offer("answer", what, lambda: self._answer(fiber, ask))
            offer("answer lost", what, lambda: self._lose(fiber))
            return
        offer("execute", what, lambda: self._execute(ask))
        if ask.kind in ("bind", "evict", *PATCHES):
            offer("execute late", what, lambda: self._execute_later(fiber, ask))
            offer(
                "busy",
                what,
                lambda: fiber.resume(Answer(self.rng.choice((429, 500, 503)), "", "come again")),
            )
        else:
            offer("read lost", what, lambda: fiber.resume(Lost("no answer")))

    def _then_settle(self, process: Process, act: Callable[[], str | None]) -> str | None:
        said = act()
        process.settle()
        return said

    # -- the log
    # ----------------------------------------------------------------------------------------------

    def append(self, ask: Ask) -> list[Outcome]:
        """Append, and record the outcome."""
        commits: list[Commit] = ask.args[0]
        outcomes = self.log.append_now(commits)
        self.appended(ask, outcomes)
        for commit, outcome in zip(commits, outcomes, strict=True):
            if not isinstance(outcome, Appended):
                self.mark(f"{type(outcome).__name__} {commit.role.partition('/')[0]}")
        return outcomes

    def _append(self, fiber: Fiber, ask: Ask) -> str:
        outcomes = self.append(ask)
        fiber.resume(outcomes)
        return " ".join(_said(outcome) for outcome in outcomes)

    def _append_unheard(self, fiber: Fiber, ask: Ask) -> str:
        outcomes = self.append(ask)
        fiber.throw(LogUnavailable("the answer was lost"))
        return "unheard: " + " ".join(_said(outcome) for outcome in outcomes)

    # -- the API server
    # ----------------------------------------------------------------------------------------------

    def _execute(self, ask: Ask) -> str:
        if ask.kind == "get_pod":
            ask.answer = self.api.get_pod(*ask.args)
        elif ask.kind == "get_node":
            ask.answer = self.api.get_node(ask.args[1])
        elif ask.kind == "pods_on":
            ask.answer = self.api.pods_on(ask.args[1])
        elif ask.kind == "patch_node":
            ask.answer = self.api.patch_node(*ask.args[1:])
        elif ask.kind == "patch_pod":
            ask.answer = self.api.patch_pod(*ask.args)
        elif ask.kind == "evict":
            if not ask.args[3]:
                self.evicting(ask.args[2])
            ask.answer = self.api.evict(*ask.args)
        else:
            self.binding(ask.args[2], ask.args[3])
            ask.answer = self.api.bind(*ask.args)
        return str(ask.answer.status)

    def _answer(self, fiber: Fiber, ask: Ask) -> str:
        fiber.resume(ask.answer)
        return str(ask.answer.status)

    def _lose(self, fiber: Fiber) -> str:
        fiber.resume(Lost("no answer"))
        return "lost"

    def _execute_later(self, fiber: Fiber, ask: Ask) -> str:
        self.strays.append(ask)
        self.mark(PATCHES.get(ask.kind, "late binding"))
        fiber.resume(Lost("no answer in time"))
        return "still under way"

    def _execute_stray(self, ask: Ask) -> str:
        self.strays.remove(ask)
        if ask.kind == "append":
            return "stray: " + " ".join(_said(outcome) for outcome in self.append(ask))
        return f"stray: {self._execute(ask)}"


def _lacks_most(process: Process, kind: str, listed: Listed) -> bool:
    """A list that lacks most of the known objects is recognizable; a list that lacks unknown
    objects cannot be doubted.
    """
    ledger = process.state.ledger
    objects = (
        set(ledger.pods)
        if kind == "pods"
        else {name for name, node in ledger.nodes.items() if node.observed is not None}
    )
    return 2 * len(objects - {identity(cast(Any, kind), obj) for obj in listed.items}) > len(
        objects
    )


def _said(outcome: Outcome) -> str:
    name = type(outcome).__name__
    return f"{name}@{outcome.last}" if hasattr(outcome, "last") else name
