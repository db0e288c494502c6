"""Coroutines driven by hand: a loop of a service runs until it asks the outside for something, the
world answers when it likes.

Whatever a service awaits (the log, the API server, its fold, a sleep) is an `Ask` here. Must not
know what an answer means.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Coroutine, Generator
from typing import Any


class Ask:
    """A question of a fiber (`asker`). `answer` is set when the outside has acted, while the answer
    is still on its way.
    """

    def __init__(self, kind: str, *args: Any) -> None:
        self.kind = kind
        self.args = args
        self.answer: Any = None
        self.asker: Fiber | None = None

    def __await__(self) -> Generator[Ask, Any, Any]:
        return (yield self)


class _Died(BaseException):
    """Ends a fiber; no code may catch it."""


class Fiber:
    """A coroutine. `ask` is the question for whose answer it waits, None when it has ended. `error`
    is the exception with which it ended, if any.
    """

    def __init__(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        self.name = name
        self.ask: Ask | None = None
        self.error: Exception | None = None
        self._work = work
        self._context = contextvars.copy_context()
        self.resume(None)

    def resume(self, answer: Any) -> None:
        """Answer the question."""
        self._step(lambda: self._work.send(answer))

    def throw(self, error: Exception) -> None:
        """Answer with an error."""
        self._step(lambda: self._work.throw(error))

    def close(self) -> None:
        """End the fiber, because its process was killed. A coroutine within an asynchronous
        generator cannot be closed, so an exception is thrown into it first.
        """
        self.ask = None
        with contextlib.suppress(_Died, StopIteration):
            self._context.run(self._work.throw, _Died())
        self._context.run(self._work.close)

    def _step(self, go: Any) -> None:
        try:
            self.ask = self._context.run(go)
            self.ask.asker = self
        except StopIteration:
            self.ask = None
        except Exception as error:
            self.ask, self.error = None, error


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits for something")
