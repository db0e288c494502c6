"""Parts of the chaos run that can be tested alone: the proxy, and whether the judge sees
violations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from shared.events import streams
from shared.events.cluster_events import PodEnded
from shared.events.scheduling_events import PodReserved
from shared.ledger.state import Charge, Ledger, LedgerNode
from tests.chaos import __main__ as chaos
from tests.chaos import judging
from tests.chaos.looking import Folded, Look
from tests.chaos.proxy import Proxy
from tests.ledger import given
from tests.replay.test_rejected import sent_and_refused
from tests.road.harness import Road


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """A proxy to a server that echoes."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while heard := await reader.read(100):
            writer.write(heard)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        proxy_server = Proxy(server.sockets[0].getsockname()[1])
        await proxy_server.start()
        yield proxy_server
        await proxy_server.stop()


async def said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Return the echo; nothing if the connection is gone."""
    writer.write(b"hello")
    try:
        return await asyncio.wait_for(reader.read(100), 10)
    except ConnectionError:
        return b""


async def test_it_carries_and_cuts(proxy: Proxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await said(reader, writer) == b"hello"
    assert proxy.cut() == 1
    assert await said(reader, writer) == b""
    writer.close()


async def test_connections_during_an_outage_are_rejected_and_accepted_afterwards(
    proxy: Proxy,
) -> None:
    proxy.away = True
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await said(reader, writer) == b""
    writer.close()
    proxy.away = False
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    assert await said(reader, writer) == b"hello"
    writer.close()


def pod(uid: str, node: str = "", reason: str = "", phase: str = "Running") -> dict[str, Any]:
    status = {"phase": phase, "reason": reason}
    return {
        "metadata": {"name": f"p-{uid}", "uid": uid},
        "spec": {"nodeName": node} if node else {},
        "status": status,
    }


@pytest.mark.parametrize(
    ("seen", "bound", "broken"),
    [
        (pod("a", "n1"), {"a": "n1"}, []),
        # A log that was set back learned of this pod from a list. `of_the_charges` checks its
        # charge.
        (pod("a", "n1"), {}, []),
        (pod("a", "n2"), {"a": "n1"}, ["the log has p-a on n1, the API server on n2"]),
        (pod("a"), {"a": "n1"}, ["the log has p-a on n1, the API server on no node"]),
    ],
)
def test_the_judge_sees_bindings_of_which_the_log_says_otherwise(
    seen: dict[str, Any], bound: dict[str, str], broken: list[str]
) -> None:
    assert judging.of_the_cluster(Look(10, [seen]), bound) == broken


@pytest.mark.parametrize("reason", ["TopologyAffinityError", "OutOfcpu"])
@pytest.mark.parametrize(
    ("ends", "broken", "beside"),
    [
        ((), ["a kubelet refused p-uid-p: {}"], []),
        (
            ("idle", "other"),
            [],
            ["a kubelet refused p-uid-p: {}; beside the end of ns/idle, ns/other"],
        ),
    ],
)
async def test_a_refusal_breaks_nothing_where_an_end_explains_it(
    ends: tuple[str, ...], broken: list[str], beside: list[str], reason: str
) -> None:
    story, seen = await sent_and_refused(*ends), Look(10, [pod("uid-p", "n1", reason, "Failed")])
    texts = ([each.format(reason) for each in broken], [each.format(reason) for each in beside])
    assert await judging.of_the_refused(seen, story.log) == texts


async def test_a_rejection_whose_decision_was_lost_with_the_log_is_reported_separately() -> None:
    judged_pods = await judging.of_the_refused(
        Look(10, [pod("lost", "n1", "OutOfcpu", "Failed")]), (await sent_and_refused()).log
    )
    assert judged_pods == (
        [],
        ["a kubelet refused p-lost: OutOfcpu; what it was decided on is not in the log"],
    )


async def test_an_end_excuses_no_pod_that_would_not_be_sent_there_again() -> None:
    """The decision was wrong from the beginning: the pod fits no zone, whichever pod ends there."""
    story = await sent_and_refused("idle", "other")
    await story.arrives(made := given.pod("q", cpus=7))
    based_on = await story.log.head()
    await story.tell(streams.pod(made.uid), PodReserved(made.uid, "n1", 1, based_on))
    await story.tell(streams.pod(made.uid), PodEnded(made.uid, "rejected", "n1", reason="OutOfcpu"))
    judged_pods = await judging.of_the_refused(
        Look(10, [pod(made.uid, "n1", "OutOfcpu", "Failed")]), story.log
    )
    assert judged_pods == (["a kubelet refused p-uid-q: OutOfcpu"], [])


async def test_a_rejection_that_the_log_lacks_is_not_excused() -> None:
    story = await sent_and_refused()
    await story.arrives(made := given.pod("q", cpus=1))
    await story.decide()
    judged_pods = await judging.of_the_refused(
        Look(10, [pod(made.uid, "n1", "OutOfcpu", "Failed")]), story.log
    )
    assert judged_pods == (["a kubelet refused p-uid-q: OutOfcpu"], [])


class Counting:
    """A road whose simulated cluster has these counts."""

    def __init__(self, **workload: int) -> None:
        self._workload = workload

    def summary(self) -> dict[str, Any]:
        return {"workload": self._workload}


def test_the_cluster_counts_no_more_refusals_than_it_shows() -> None:
    seen = [pod("a", "n1", "OutOfcpu", "Failed")]
    assert judging.of_the_workload(cast(Road, Counting(rejected=1)), seen) == []
    hidden = "1 pods rejected that the API server does not show"
    assert judging.of_the_workload(cast(Road, Counting(rejected=2, lost=3)), seen) == [
        hidden,
        "3 pods lost",
    ]
    assert judging.of_the_workload(cast(Road, Counting(rejected=2)), None) == []


def log(charges: dict[str, tuple[str, int]], ended: dict[str, int]) -> Folded:
    """Return a log with these charges: uid -> (node, position since which it is charged)."""
    ledger = Ledger(nodes={name: LedgerNode(name, charges={}) for name, _ in charges.values()})
    for uid, (name, position) in charges.items():
        ledger.nodes[name].charges[uid] = Charge(uid, f"default/p-{uid}", position)
    return Folded(ledger, ended)


BOUND, UNBOUND, DONE = [pod("a", "n1")], [pod("a")], [pod("a", "n1", phase="Succeeded")]
UNCHARGED = ["the API server has p-a on n1, where the log does not charge it"]


@pytest.mark.parametrize(
    ("first", "last", "charges", "ended", "broken"),
    [
        (BOUND, BOUND, {"a": ("n1", 5)}, {}, []),
        (BOUND, BOUND, {}, {}, UNCHARGED),
        (BOUND, DONE, {}, {}, UNCHARGED),
        (BOUND, DONE, {}, {"a": 18}, []),
        (BOUND, [], {}, {"a": 18}, []),
        (BOUND, BOUND, {}, {"a": 25}, []),
        (
            BOUND,
            BOUND,
            {},
            {"a": 18},
            ["the API server has p-a on n1, which ended by the log at position 18"],
        ),
        (
            BOUND,
            BOUND,
            {"a": ("n2", 5)},
            {},
            [*UNCHARGED, "the log charges n2 for p-a, which the API server has on n1"],
        ),
        (
            UNBOUND,
            BOUND,
            {"a": ("n2", 15)},
            {},
            ["the log charges n2 for p-a, which the API server has on n1"],
        ),
        (UNBOUND, UNBOUND, {"a": ("n1", 5)}, {}, []),
        (
            DONE,
            DONE,
            {"a": ("n1", 5)},
            {},
            ["the log charges n1 for default/p-a (a), which is gone"],
        ),
        ([], [], {"a": ("n1", 5)}, {}, ["the log charges n1 for default/p-a (a), which is gone"]),
        ([], [], {"a": ("n1", 15)}, {}, []),
    ],
)
def test_the_judge_holds_charges_and_pods_against_each_other(
    first: list[dict[str, Any]],
    last: list[dict[str, Any]],
    charges: dict[str, tuple[str, int]],
    ended: dict[str, int],
    broken: list[str],
) -> None:
    """The first look is at position 10 and the last at position 20. The log ends later."""
    assert judging.of_the_charges(Look(10, first), Look(20, last), log(charges, ended)) == broken


@pytest.mark.parametrize("looks", [(Look(10, None), Look(20, [])), (Look(10, []), Look(20, None))])
def test_an_api_server_that_does_not_answer_is_no_empty_cluster(looks: tuple[Look, Look]) -> None:
    assert judging.of_the_charges(*looks, Folded()) == [judging.SILENT]
    assert judging.of_the_cluster(Look(10, None), {}) == [judging.SILENT]


def test_an_unknown_fault_is_rejected_with_the_list_of_faults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["chaos", "--only", "flood"])
    with pytest.raises(SystemExit):
        chaos.main()
    assert "kill postgres" in capsys.readouterr().err


@asynccontextmanager
async def bare_stage(*_: object) -> AsyncIterator[SimpleNamespace]:
    """Return a stage on which no process runs."""
    yield SimpleNamespace(road=None)


def drawn(
    connected: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """Return the output of a run with seed 5 and that many connections, without its times."""

    async def one_of_them(stage: Any) -> str:
        return "one" if stage.rng.choice(range(connected)) < connected else ""

    async def a_while(stage: Any) -> str:
        return f"for {stage.rng.uniform(0, 9):.3f} s"

    monkeypatch.setattr(chaos, "FAULTS", {"one of them": one_of_them, "a while": a_while})
    assert chaos.main() == 0
    return [
        line[:62] if line[0] == " " else line
        for line in capsys.readouterr().out.splitlines()
        if " s" in line or "again" in line
    ]


def test_a_seed_draws_the_same_faults_with_any_connections(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    twins = {
        "own_mounts": lambda: True,
        "_stage": bare_stage,
        "_probe": AsyncMock(),
        "_judged": AsyncMock(return_value=([], [], None)),
    }
    for name, twin in twins.items():
        monkeypatch.setattr(chaos, name, twin)
    monkeypatch.setattr("sys.argv", ["chaos", "--faults", "9", "--seed", "5", "--only", "e"])
    draws = drawn(1, monkeypatch, capsys)
    assert draws == drawn(40, monkeypatch, capsys)
    assert {"a while", "one of them"} <= {line[6:30].strip() for line in draws}
    assert draws[-1].endswith("python -m tests.chaos --faults 9 --seed 5 --only e")
