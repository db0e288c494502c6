"""A service for tests of the skeleton. TOPOLOG_MODE says how its task behaves."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from shared.eventlog.errors import LogUnavailable
from shared.runtime.app import Service, run_service
from shared.runtime.http import json_response
from shared.runtime.leadership import LeaseLost
from shared.runtime.settings import CommonSettings


class TinySettings(CommonSettings, frozen=True, kw_only=True):
    mode: str = "run"
    size: int = 1


async def build(service: Service, settings: TinySettings) -> None:
    if settings.mode == "unreachable":
        raise LogUnavailable("no log here; is Postgres up?")

    async def hello(_request: Request) -> Response:
        return json_response({"hello": settings.size})

    async def work() -> None:
        if settings.mode == "fail":
            raise RuntimeError("postgresql://me:hunter2@db broke")
        if settings.mode == "fenced":
            raise LeaseLost("another leads")
        if settings.mode == "red":
            service.health.fail("consumer ledger", "fact 7 cannot be read")
        await asyncio.Event().wait()

    async def drain() -> None:
        await service.stopping.wait()
        if settings.mode == "stuck":
            await asyncio.Event().wait()
        print("drained", flush=True)

    async def close() -> None:
        print("closed", flush=True)

    service.route("/hello", hello)
    service.task("work", work)
    service.task("drain", drain, drains=True)
    service.on_close("thing", close)


if __name__ == "__main__":
    raise SystemExit(run_service("tiny", TinySettings, build))
