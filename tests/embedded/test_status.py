"""The numbers that `topolog up` shows, asked of a service that wants a token."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.embedded.up.children import http_token
from services.embedded.up.status import Scheduling, ask_schedulers
from shared.runtime.health import Health
from shared.runtime.http import HttpServer
from shared.telemetry.setup import Telemetry

NUMBERS = Scheduling(position=99, pods_running=3)


async def test_a_scheduler_that_asks_for_a_token_gives_its_numbers_to_who_has_it() -> None:
    async def stats(_: Request) -> Response:
        return Response(msgspec.json.encode(NUMBERS))

    server = HttpServer("127.0.0.1", 0, Health(), cast(Telemetry, None), "s3cret")
    server.add(Route("/stats", stats))
    await server.start()
    try:
        port = int(server.url.rpartition(":")[2])
        before = Scheduling()
        assert await ask_schedulers([port], before) is before
        assert await ask_schedulers([port], before, "s3cret") == NUMBERS
    finally:
        await server.close()


def test_the_token_is_the_one_that_the_children_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOPOLOG_HTTP_TOKEN", raising=False)
    assert http_token() == ""
    file = tmp_path / "token"
    monkeypatch.setenv("TOPOLOG_HTTP_TOKEN_FILE", str(file))
    assert http_token() == "", "it is being written"
    file.write_text("s3cret\n")
    assert http_token() == "s3cret"
    monkeypatch.setenv("TOPOLOG_HTTP_TOKEN", "first")
    assert http_token() == "first"
