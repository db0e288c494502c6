"""The numbers of `topolog up`, from a service with a token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import repeat
from pathlib import Path
from typing import cast

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.embedded.up.children import http_token
from services.embedded.up.status import Scheduling, ask_schedulers, until_all_report
from shared.runtime.health import Health
from shared.runtime.http import HttpServer
from shared.telemetry.setup import Telemetry

NUMBERS = Scheduling(position=99, pods_running=3)


@asynccontextmanager
async def scheduler(answers: Iterator[Scheduling], token: str = "") -> AsyncIterator[int]:
    """Yield the port of a scheduler that answers with these numbers in turn."""

    async def stats(_: Request) -> Response:
        return Response(msgspec.json.encode(next(answers)))

    server = HttpServer("127.0.0.1", 0, Health(), cast(Telemetry, None), token)
    server.add(Route("/stats", stats))
    await server.start()
    try:
        yield int(server.url.rpartition(":")[2])
    finally:
        await server.close()


async def test_a_scheduler_with_a_token_answers_only_with_the_token() -> None:
    async with scheduler(repeat(NUMBERS), "s3cret") as port:
        earlier = Scheduling()
        assert await ask_schedulers([port], earlier) is earlier
        assert await ask_schedulers([port], earlier, "s3cret") == NUMBERS


async def test_a_workload_waits_until_every_node_reports_but_not_for_ever() -> None:
    some = [Scheduling(nodes=4, nodes_reporting=count) for count in (0, 3, 4, 9)]
    async with scheduler(iter(some)) as port:
        assert (await until_all_report([port], 4, 60)).nodes_reporting == 4
    async with scheduler(repeat(some[1])) as port:
        assert (await until_all_report([port], 4, 0.2)).nodes_reporting == 3


def test_the_token_is_that_of_the_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOPOLOG_HTTP_TOKEN", raising=False)
    assert http_token() == ""
    file = tmp_path / "token"
    monkeypatch.setenv("TOPOLOG_HTTP_TOKEN_FILE", str(file))
    assert http_token() == "", "it is being written"
    file.write_text("s3cret\n")
    assert http_token() == "s3cret"
    monkeypatch.setenv("TOPOLOG_HTTP_TOKEN", "first")
    assert http_token() == "first"
