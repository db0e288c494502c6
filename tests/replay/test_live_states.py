"""`replay verify` compares its own folds with those of the services, asks each by the token, and
names services without an answer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from services.binder import core as binder
from services.replay.commands import Verdict, verify
from services.replay.filters import FilterError
from services.topology_store import following
from shared.domain.state_hash import state_hash
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft
from shared.events.catalog import Event
from shared.events.cluster_events import NodeEnded
from shared.events.codec import decode
from shared.events.report_events import NodeReportExpired
from shared.events.scheduling_events import PodReserved
from shared.ledger.fold import evolve
from shared.ledger.state import Ledger
from tests.eventlog.test_redacting import a_log

TOKEN = "s3cret"
Told = dict[str, Any]


async def log() -> MemoryEventLog:
    """Return a log with pods that ended, and one pod that is not bound yet."""
    event_log = await a_log()
    await event_log.append(
        [Commit("more", "test", 0, 99, (Draft("pod/u9", PodReserved("u9", "n1", 1)),))]
    )
    return event_log


async def states(log: MemoryEventLog, until: int | None = None) -> dict[str, Told]:
    """Return the states of services that folded the log."""
    ledger, work, nodes = Ledger(), binder.initial(), following.Nodes()
    for envelope in log._events[:until]:
        event = decode(envelope)
        evolve(ledger, envelope, event)
        binder.evolve(work, envelope, event)
        following.evolve(nodes, envelope, event)
    position = ledger.position
    return {
        "scheduler": {"projection": "ledger", "position": position, "hash": state_hash(ledger)},
        "binder": {"projection": "binder", "position": position, "hash": binder.digest(work)},
        "topology-store": {
            "projection": "topology-store",
            "position": position,
            "nodes": following.digests(nodes),
        },
    }


class Services:
    """Answer `/NAME/state` by a token."""

    def __init__(self, states: dict[str, Told]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = states.get(self.path.split("/")[1])
                wrong = self.headers.get("Authorization") != f"Bearer {TOKEN}"
                self.send_response(401 if wrong else 200 if answer is not None else 404)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.told = states

    def asked(self) -> list[tuple[str, str]]:
        return [
            (name, f"http://127.0.0.1:{self._server.server_port}/{name}/state")
            for name in self.told
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def services() -> Iterator[Services]:
    fake_services = Services({})
    yield fake_services
    fake_services.close()


async def found(
    services: Services,
    states: dict[str, Told],
    token: str = TOKEN,
    history: MemoryEventLog | None = None,
) -> Verdict:
    services.told.update(states)
    return await verify(history or await log(), services.asked(), token=token)


async def test_every_service_with_a_state_is_compared_at_its_own_position(
    services: Services,
) -> None:
    history = await log()
    for until in (3, 17, len(history._events)):
        verdict = await found(services, await states(history, until))
        assert {each.service for each in verdict.compared} == {
            "scheduler",
            "binder",
            "topology-store",
        }
        assert (verdict.violations, verdict.unreported) == ([], [])


@pytest.mark.parametrize("name", ["scheduler", "binder", "topology-store"])
async def test_a_state_that_differs_is_named(services: Services, name: str) -> None:
    service_states = await states(await log())
    service_states[name] |= (
        {"nodes": {"n1": [service_states[name]["nodes"]["n1"][0], "0" * 16]}}
        if "nodes" in service_states[name]
        else {"hash": "0" * 16}
    )
    verdict = await found(services, service_states)
    assert [
        (violation.invariant, name in violation.message) for violation in verdict.violations
    ] == [("S6", True)]


@pytest.mark.parametrize("name", ["scheduler", "binder", "topology-store"])
async def test_a_state_from_beyond_the_log_is_named(services: Services, name: str) -> None:
    service_states = await states(await log())
    service_states[name] |= (
        {"position": 10_000} if name != "topology-store" else {"nodes": {"n1": [999, "0" * 16]}}
    )
    verdict = await found(services, service_states)
    assert [
        (violation.invariant, name in violation.message) for violation in verdict.violations
    ] == [("S6", True)]


async def test_a_service_without_an_answer_or_with_another_token_is_named(
    services: Services,
) -> None:
    service_states = await states(await log())
    verdict = await verify(await log(), [("binder-2", "http://127.0.0.1:9/state")])
    assert [(each.service, each.why) for each in verdict.unreported] == [
        ("binder-2", "connection refused")
    ]
    verdict = await found(services, service_states, token="other")
    assert {each.service for each in verdict.unreported} == set(service_states)
    assert "TOPOLOG_HTTP_TOKEN" in verdict.unreported[0].why
    assert (verdict.ok, verdict.compared) == (True, [])
    (_, url) = services.asked()[0]
    assert (
        await verify(await log(), [("other", url.replace("scheduler", "other"))], token=TOKEN)
    ).unreported == []
    with pytest.raises(FilterError, match="it has none"):
        await verify(await log(), [], [url.replace("scheduler", "other")], TOKEN)


async def test_a_service_that_has_folded_nothing_is_not_compared(services: Services) -> None:
    verdict = await found(
        services,
        {"scheduler": {"projection": "ledger", "position": 0, "hash": state_hash(Ledger())}},
    )
    assert verdict.ok


async def test_of_a_node_that_is_not_heard_nothing_is_compared(services: Services) -> None:
    history = await log()
    events: list[tuple[str, Event]] = [
        ("report/n1", NodeReportExpired("n1", 1)),
        ("node/n1", NodeEnded("n1", "uid-n1", "deleted")),
    ]
    for number, (stream, event) in enumerate(events):
        await history.append([Commit(f"end{number}", "test", 0, 100, (Draft(stream, event),))])
    service_states = await states(history)
    assert service_states["topology-store"]["nodes"] == {}
    assert (await found(services, service_states, history=history)).ok


async def test_a_log_that_ends_before_its_head_is_no_whole_one(services: Services) -> None:
    class Cut(MemoryEventLog):
        async def read(self, after: int, limit: int = 1000) -> list[Any]:
            return [each for each in await super().read(after, limit) if each.position < 9]

    cut = Cut("log-1")
    cut._events += (await log())._events
    verdict = await found(services, await states(await log()), history=cut)
    assert [(violation.invariant, violation.position) for violation in verdict.violations] == [
        ("S1", 9)
    ]
