"""The picture from a console's HTTP API, for a reader without a database login."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from services.replay.explain import Story
from services.replay.filters import FilterError
from services.top.model import Picture, resource_at
from shared.runtime.http_get import get
from shared.runtime.waiting import set_within

API = "/api/v1"
ASK_EVERY_S = 2.0
TIMEOUT_S = 30.0
UNAVAILABLE = 503
T = TypeVar("T")


class ConsoleError(Exception):
    """The console does not answer, or refuses; the text says why."""


class RemotePicture:
    """Asks a console again and again. The address may be that of its page, with its token."""

    def __init__(self, address: str, token: str = "") -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConsoleError(f"{address!r} is no http:// or https:// address")
        self._url = f"{parts.scheme}://{parts.netloc}{API}"
        self._token = token or parse_qs(parts.fragment).get("token", [""])[0]
        self._picture = Picture()
        self._number = 0
        self._is_outdated = asyncio.Event()

    async def follow(self) -> AsyncIterator[None]:
        """Ask for ever. Raises ConsoleError."""
        while True:
            await self.ask()
            yield
            self._is_outdated.clear()
            await set_within(self._is_outdated, ASK_EVERY_S)

    async def ask(self) -> None:
        """Ask once. A console that still folds its log is asked again."""
        resource = resource_at(self._picture.totals.resources, self._number)
        try:
            self._picture = await self._answer("/top", Picture, resource=resource)
        except HTTPError as error:
            if error.code != UNAVAILABLE:
                raise self._refused(error) from error
        except OSError as error:
            raise ConsoleError(f"{self._url} does not answer: {error}") from error

    def picture(self, number: int) -> Picture:
        """Return the newest answer; another resource comes with the next one."""
        if number != self._number:
            self._number = number
            self._is_outdated.set()
        return self._picture

    async def node(self, name: str) -> dict[str, Any]:
        """Return one node. Raises FilterError."""
        return await self._page("/node", dict[str, Any], node=name)

    async def story(self, uid: str) -> list[Story]:
        """Return the story of a pod. Raises FilterError."""
        return await self._page("/story", list[Story], pod=uid)

    async def _page(self, path: str, kind: type[T], **query: str) -> T:
        try:
            return await self._answer(path, kind, **query)
        except HTTPError as error:
            raise FilterError(str(self._refused(error)), "") from error
        except OSError as error:
            raise FilterError(f"{self._url} does not answer: {error}", "") from error

    async def _answer(self, path: str, kind: type[T], **query: str) -> T:
        url = f"{self._url}{path}?{urlencode(query)}"
        return msgspec.json.decode(
            await asyncio.to_thread(get, url, self._token, TIMEOUT_S), type=kind
        )

    def _refused(self, error: HTTPError) -> ConsoleError:
        try:
            text = str(msgspec.json.decode(error.read())["error"])
        except (msgspec.DecodeError, KeyError, TypeError, OSError):
            text = str(error)
        return ConsoleError(f"{self._url}: {text}")
