"""Secrets in files: the text of one, and an address whose URL stands in one and is read again at
every connection.

Whoever rotates a password writes the file; a mounted Secret is replaced so too. Must not know which
servers are meant.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from shared.file_signature import signature
from shared.telemetry.reasons import plain

MAX_BYTES = 65_536
ENDING = "_FILE"
"""Of a variable that names the file of a secret: TOPOLOG_X_FILE."""


SECRETS = ("TOPOLOG_DATABASE_URL", "TOPOLOG_NATS_URL", "TOPOLOG_HTTP_TOKEN")


Token = str | Callable[[], str]
"""A token, or what knows the one that counts now."""


class SecretUnreadable(OSError):
    """The file cannot be had, or holds nothing that can be used: names the file and the remedy,
    never what is in it. A system's error, since it may be another one at the next look: the file is
    just being written."""


class UrlFile:
    """An `Address` (`shared.domain.secret_url`). `trouble` tells what is wrong with a URL."""

    def __init__(self, path: str, trouble: Callable[[str], str]) -> None:
        self._path, self._trouble = path, trouble

    def __call__(self) -> str:
        """The URL that stands there now. Raises SecretUnreadable."""
        url = read(self._path)
        if trouble := self._trouble(url):
            raise SecretUnreadable(f"the URL in {self._path} {trouble}")
        return url

    def __repr__(self) -> str:
        return f"UrlFile({self._path!r})"


class SecretFile:
    """A secret that stands in a file, read again when the file is another one or was written. While
    it cannot be read, which it could at the start, what it held last counts: never nothing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = signature(self._path)
        self._text = read(path)

    def __call__(self) -> str:
        """What stands there now."""
        seen = signature(self._path)
        if seen != self._seen:
            with suppress(SecretUnreadable):
                self._text = read(self._path)
                self._seen = seen
        return self._text

    def __repr__(self) -> str:
        return f"SecretFile({self._path!r})"


def read(path: str) -> str:
    """The text without what is around it. Raises SecretUnreadable."""
    try:
        with Path(path).open("rb") as opened:
            text = opened.read(MAX_BYTES).decode().strip()
    except OSError as error:
        raise SecretUnreadable(
            f"{path} cannot be read ({plain(error)}); name a readable file that holds the value"
        ) from None
    except UnicodeDecodeError:
        raise SecretUnreadable(f"{path} is no text; write the value alone into it") from None
    if not text:
        raise SecretUnreadable(f"{path} is empty; write the value into it")
    return text


@contextmanager
def withheld() -> Iterator[None]:
    """For the start of processes that inherit the environment and need none of its addresses and
    tokens: they are out of it.
    """
    held = {name: os.environ.pop(name) for name in SECRETS if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(held)


def given(environment: Mapping[str, str], variable: str) -> str:
    """A variable's value, else what stands in the file of `variable`_FILE; "" for neither. Raises
    SecretUnreadable.
    """
    file = environment.get(variable + ENDING, "")
    return environment.get(variable) or (read(file) if file else "")
