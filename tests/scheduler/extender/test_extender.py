"""The extender over HTTP in kube-scheduler's wire format: filtering, scores, preemption, and the
outcome of bindings.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.extender import extender as extender_module
from services.scheduler.extender.extender import Extender
from services.scheduler.extender.server import ExtenderServer
from services.scheduler.extender.settings import ExtenderSettings
from services.scheduler.handlers import Decider, fold_of
from shared.domain.report import Zone
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft
from shared.events import streams
from shared.events.binding_events import BindIntended, BindRefused, PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import ClusterListed, NodeObserved, PodEnded, PodObserved
from shared.events.codec import decode
from shared.events.log_events import LogOpened
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import PodReserved, ReservationWithdrawn
from shared.events.surroundings_events import NominationObserved
from shared.runtime.clock import SYSTEM_CLOCK
from shared.runtime.projector import Projector
from tests.ledger.given import report, zone
from tests.runtime.helpers import QUICK, lent, running, until

Json = dict[str, Any]
JSON = {"Content-Type": "application/json"}
CONFIG = CoreConfig()
ROOMY = {"cpu": 64_000, "memory": 1 << 40, "pods": 110}


def pod(name: str, cpus: int = 4, **spec: Any) -> Json:
    """A pod as kube-scheduler sends it: no kind, no apiVersion."""
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    container = {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "7"}
    return {
        "metadata": metadata,
        "spec": {"schedulerName": "default-scheduler", "containers": [container], **spec},
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    }


class World:
    """A log, a scheduler that decides on it, its extender over HTTP, and a binder with a chosen
    behaviour.
    """

    def __init__(self, config: CoreConfig = CONFIG) -> None:
        self.log, self.config = MemoryEventLog("extender"), config
        self.url = ""
        self.client = httpx2.AsyncClient(timeout=20)
        self.core: SchedulerCore | None = None

    async def tell(self, stream: str, event: Event) -> None:
        await self.log.append(
            [Commit(f"told/{await self.log.head()}", "test", 0, 0, (Draft(stream, event),))]
        )

    async def node(
        self, name: str, *zones: Zone, offers: Mapping[str, int] = ROOMY, **fields: object
    ) -> None:
        await self.tell(
            streams.node(name), NodeObserved(name, f"uid-{name}", allocatable={**offers})
        )
        made = msgspec.structs.replace(report(*zones, tracked=("cpu",), **fields), node=name)  # type: ignore[arg-type]
        await self.tell(streams.report(name), NodeReported(made))

    async def events(self, kind: type[Event]) -> list[Any]:
        return [
            event
            for envelope in await self.log.read(0)
            if isinstance(event := decode(envelope), kind)
        ]

    async def post(self, verb: str, body: Any) -> Any:
        answer = await self.client.post(f"{self.url}/{verb}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def filter(self, made: Json, *nodes: str) -> Json:
        answer: Json = await self.post(
            "filter", {"Pod": made, "Nodes": None, "NodeNames": list(nodes)}
        )
        return answer

    async def bind(self, made: Json, node: str) -> str:
        metadata = made["metadata"]
        asked = {
            "PodName": metadata["name"],
            "PodNamespace": "ns",
            "PodUID": metadata["uid"],
            "Node": node,
        }
        return str((await self.post("bind", asked))["Error"])

    @asynccontextmanager
    async def at_work(self, binder: str = "binds", **settings: Any) -> AsyncIterator[World]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        decider = Decider(self.log, lent("scheduler/topolog/0"), SYSTEM_CLOCK)
        extenders: list[Extender] = []

        def after(core: SchedulerCore, page: Any) -> None:
            decider.folded(core, page)
            for extender in extenders:
                extender.folded(core, page)

        chosen = ExtenderSettings(port=port, **{"bind_within_s": 5.0, **settings})
        fold = fold_of(self.config)
        projector: Projector[SchedulerCore] = Projector(
            "scheduler", self.log, fold, after=after, options=QUICK
        )
        extender = Extender(projector, decider.wake, chosen.bind_within_s)
        extenders.append(extender)
        decider.after_turn = extender.answered
        server = ExtenderServer(extender, chosen)
        async with running(
            projector.run(), decider.run(projector), server.run(), self._binder(binder)
        ):
            await projector.wait_live()
            await projector.wait_for(await self.log.head(), 10)
            await until(lambda: bool(server.url))
            self.url, self.core, self.extender = server.url, projector.state, extender
            yield self
        await self.client.aclose()

    async def _binder(self, mood: str) -> None:
        """Takes up each reservation once."""
        position, withdrawn = 0, set[str]()
        while mood != "is away":
            for envelope in await self.log.read(position):
                position, event = envelope.position, decode(envelope)
                if isinstance(event, PodReserved) and event.uid not in withdrawn:
                    await self.tell(
                        streams.pod(event.uid),
                        BindIntended(event.uid, "ns", "p", event.node, position),
                    )
                    outcome = PodBound(event.uid, event.node)
                    denied = BindRefused(event.uid, event.node, "denied", "closed for maintenance")
                    await self.tell(
                        streams.pod(event.uid), denied if mood == "is denied" else outcome
                    )
            await asyncio.sleep(0.01)
        await asyncio.Event().wait()


async def small_and_large() -> World:
    """n1 has two zones of 8 CPUs, 2 and 3 of them free; n2 two of 8, all free; n3 has zones of 2;
    n4 no report.
    """
    world = World()
    await world.node("n1", zone(0, 8, 2), zone(1, 8, 3))
    await world.node("n2", zone(0, 8), zone(1, 8))
    await world.node("n3", zone(0, 2), zone(1, 2))
    await world.tell(streams.node("n4"), NodeObserved("n4", "uid-n4", allocatable=ROOMY))
    return world


async def test_filter_names_zone_resource_and_numbers_and_what_eviction_cannot_fix() -> None:
    async with (await small_and_large()).at_work() as world:
        answer = await world.filter(pod("p"), "n1", "n2", "n3", "n4", "nobody")
    assert answer["NodeNames"] == ["n2"]
    assert answer["Nodes"] is None
    assert answer["Error"] == ""
    assert answer["FailedNodes"] == {}, (
        "kube-scheduler would dry-run evictions there, without asking for zones"
    )
    assert answer["FailedAndUnresolvableNodes"] == {
        "n1": "node(s) had no NUMA zone with 4 free cpu (best: 3 in zone 1)",
        "n3": "node(s) had no NUMA zone as large as 4 cpu (best: 2 in zone 0)",
        "n4": "node(s) had no topology report",
        "nobody": "node not seen yet",
    }


async def test_the_nominated_node_is_not_beyond_help_while_its_victims_end() -> None:
    nominated = {**pod("p"), "status": {"nominatedNodeName": "n1"}}
    async with (await small_and_large()).at_work() as world:
        answer = await world.filter(nominated, "n1")
        assert list(answer["FailedNodes"]) == ["n1"], (
            "kube-scheduler would evict pods on another node as well"
        )
        assert answer["FailedAndUnresolvableNodes"] == {}
        elsewhere = await world.filter(nominated, "n1", "n3")
        assert list(elsewhere["FailedAndUnresolvableNodes"]) == ["n3"]
        too_small = await world.filter({**pod("q"), "status": {"nominatedNodeName": "n3"}}, "n3")
        assert list(too_small["FailedAndUnresolvableNodes"]) == ["n3"], (
            "nobody's end gives it a zone as large"
        )


async def test_pods_of_lower_priority_leave_a_nominee_its_zone() -> None:
    """kube-scheduler adds its nominees to the node by amounts, and asks of zones for each pod
    alone.
    """
    world = World()
    await world.node("n1", zone(0, 8), zone(1, 8, 4))
    nominee = NominationObserved(
        "uid-other", "ns/other", "n1", priority=5, requests={"cpu": 6000}, zonal={"cpu": 6000}
    )
    await world.tell("nomination/uid-other", nominee)
    kept = {"n1": "node(s) were kept free for the nominated pod ns/other of another scheduler"}
    async with world.at_work():
        assert (await world.filter(pod("p"), "n1"))["FailedAndUnresolvableNodes"] == kept
        assert "kept free" in await world.bind(pod("p"), "n1")
        assert (await world.filter(pod("small", cpus=2), "n1"))["NodeNames"] == ["n1"]
        assert (await world.filter(pod("above", priority=6), "n1"))["NodeNames"] == ["n1"]
        own_nominee = {**pod("other", cpus=6, priority=5), "status": {"nominatedNodeName": "n1"}}
        assert (await world.filter(own_nominee, "n1"))["NodeNames"] == ["n1"]


def waiting(made: Json) -> Json:
    """As kube-scheduler shows a pod for which it once found no place."""
    return {
        **made,
        "status": {
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
        },
    }


async def test_pods_that_waited_see_room_that_comes_while_they_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """kube-scheduler asks again when a pod ended, and may know it before the log does; it does not
    ask again for minutes.
    """
    monkeypatch.setattr(extender_module, "MOST_S", 7200.0)
    async with (await small_and_large()).at_work() as world, asyncio.timeout(60):
        assert (await world.filter(pod("new"), "n1"))["NodeNames"] == [], (
            "a new pod is answered at once"
        )
        asked = [asyncio.create_task(world.filter(waiting(pod(name)), "n1")) for name in ("p", "q")]
        await until(lambda: world.extender._patience._left_s < 2000)
        await world.tell(
            streams.report("n1"),
            NodeReported(report(zone(0, 8), zone(1, 8), tracked=("cpu",), at=2)),
        )
        assert [(await each)["NodeNames"] for each in asked] == [["n1"], ["n1"]]


async def test_a_pod_for_which_no_room_comes_is_refused_all_the_same() -> None:
    async with (await small_and_large()).at_work() as world:
        for name in ("p", "q", "r"):
            answer = await world.filter(waiting(pod(name)), "n1")
            assert answer["FailedAndUnresolvableNodes"] == {
                "n1": "node(s) had no NUMA zone with 4 free cpu (best: 3 in zone 1)"
            }


async def test_without_node_cache_whole_nodes_come_and_nodes_go_back() -> None:
    async with (await small_and_large()).at_work() as world:
        nodes = {
            "items": [
                {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "64"}}}
                for name in ("n1", "n2")
            ]
        }
        answer = await world.post("filter", {"Pod": pod("p"), "Nodes": nodes, "NodeNames": None})
    assert answer["NodeNames"] is None
    assert [node["metadata"]["name"] for node in answer["Nodes"]["items"]] == ["n2"]


async def test_constraints_of_the_pod_are_kube_schedulers_affair() -> None:
    """Volumes, claims and affinity are why the extender is there."""
    claims: dict[str, Any] = {
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        "nodeSelector": {"no": "match"},
    }
    async with (await small_and_large()).at_work() as world:
        made = pod("p", **claims)
        assert (await world.filter(made, "n1", "n2"))["NodeNames"] == ["n2"]
        assert await world.bind(made, "n2") == ""
    (seen,) = await world.events(PodObserved)
    assert seen.pod.key == "ns/p"


async def test_scores_are_0_to_10_and_favour_the_better_fit() -> None:
    world = World()
    await world.node("full", zone(0, 8, 4))
    await world.node("empty", zone(0, 8))
    async with world.at_work():
        rated = await world.post(
            "prioritize", {"Pod": pod("p"), "NodeNames": ["full", "empty", "nobody"]}
        )
    scores = {each["Host"]: each["Score"] for each in rated}
    assert 10 >= scores["full"] > scores["empty"] > scores["nobody"] == 0


async def test_a_bind_reserves_and_answers_with_the_binders_outcome() -> None:
    async with (await small_and_large()).at_work() as world:
        await world.filter(made := pod("p"), "n2")
        assert await world.bind(made, "n2") == ""
        assert world.core is not None
        assert world.core.ledger.nodes["n2"].charges["uid-p"].zones
        assert await world.bind(made, "n2") == "", "a repeated request is answered by what stands"
        assert "the pod is on n2" in await world.bind(made, "n1")
    assert len(await world.events(PodReserved)) == 1


async def test_a_refused_binding_says_why_and_the_node_is_set_aside() -> None:
    async with (await small_and_large()).at_work("is denied") as world:
        await world.filter(made := pod("p"), "n2")
        assert "denied: closed for maintenance" in await world.bind(made, "n2")
        assert (await world.filter(made, "n2"))["FailedAndUnresolvableNodes"] == {
            "n2": "node(s) excluded for pods that request cpu 4, memory 1Gi after a denied binding"
        }


async def test_two_kube_schedulers_cannot_have_one_zone() -> None:
    """Both filtered before either bound; the second gets an error, and filter knows the reservation
    from then on.
    """
    world = World()
    await world.node("n1", zone(0, 6))
    async with world.at_work():
        first, second = pod("a"), pod("b")
        for made in (first, second):
            assert (await world.filter(made, "n1"))["NodeNames"] == ["n1"]
        answers = await asyncio.gather(world.bind(first, "n1"), world.bind(second, "n1"))
        assert sorted(answers, key=len)[0] == ""
        version = "undecided: another kubelet version"
        assert (
            f"n1: node(s) had no NUMA zone with 4 free cpu (best: 2 in zone 0; {version})"
            in answers
        )
        assert (await world.filter(pod("c"), "n1"))["NodeNames"] == []


async def test_a_bind_without_a_waiting_client_is_withdrawn_if_the_binder_has_not_begun() -> None:
    async with (await small_and_large()).at_work("is away", bind_within_s=0.3) as world:
        await world.filter(made := pod("p"), "n2")
        assert "no outcome within" in await world.bind(made, "n2")
        async with asyncio.timeout(5):
            while not (withdrawn := await world.events(ReservationWithdrawn)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert withdrawn == [ReservationWithdrawn("uid-p", "n2", "unasked")]
        assert world.core is not None
        await until(lambda: not world.core.ledger.nodes["n2"].charges)  # type: ignore[union-attr]


async def test_a_kube_scheduler_that_hangs_up_no_longer_counts_as_waiting() -> None:
    async with (await small_and_large()).at_work("is away", bind_within_s=60.0) as world:
        await world.filter(made := pod("p"), "n2")
        body = {"PodName": "p", "PodNamespace": "ns", "PodUID": "uid-p", "Node": "n2"}
        with pytest.raises(httpx2.TimeoutException):
            await world.client.post(f"{world.url}/bind", json=body, timeout=0.3)
        async with asyncio.timeout(5):
            while not await world.events(ReservationWithdrawn):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert made["metadata"]["uid"] == "uid-p"


async def test_a_pod_that_ends_while_it_is_bound_is_an_answer() -> None:
    async with (await small_and_large()).at_work("is away") as world:
        await world.filter(made := pod("p"), "n2")
        asking = asyncio.create_task(world.bind(made, "n2"))
        async with asyncio.timeout(5):
            while not await world.events(PodReserved):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await world.tell(streams.pod("uid-p"), PodEnded("uid-p", "deleted"))
        assert "the pod ended" in await asking


async def test_a_pod_that_was_never_observed_is_not_bound() -> None:
    async with (await small_and_large()).at_work() as world:
        assert "was not seen yet" in await world.bind(pod("p"), "n2")
    assert await world.events(PodReserved) == []


async def test_preempt_keeps_sufficient_offers_widens_others_and_drops_hopeless_ones() -> None:
    world = World()
    for name, size in (("n1", 8), ("n2", 8), ("n3", 2)):
        await world.node(name, zone(0, size, 0), zone(1, size, 0))
    from tests.ledger.given import held
    from tests.ledger.given import pod as running_pod

    for name in ("n1", "n2"):
        placements = tuple(held(f"{name}-{at}", at % 2, 4) for at in range(4))
        made = msgspec.structs.replace(
            report(zone(0, 8, 0), zone(1, 8, 0), tracked=("cpu",), at=2, placements=placements),
            node=name,
        )
        for index in range(4):
            low = running_pod(f"{name}-{index}", cpus=4)
            await world.tell(streams.pod(low.uid), PodObserved(low, node=name, phase="Running"))
        await world.tell(streams.report(name), NodeReported(made))
    asking = pod("p", 8)
    asking["spec"]["priority"] = 1000
    async with world.at_work():
        offers = {
            "n1": {"Pods": [{"UID": "uid-n1-0"}, {"UID": "uid-n1-2"}], "NumPDBViolations": 1},
            "n2": {"Pods": [{"UID": "uid-n2-0"}, {"UID": "uid-n2-1"}], "NumPDBViolations": 0},
            "n3": {"Pods": [], "NumPDBViolations": 0},
        }
        answer = await world.post(
            "preempt", {"Pod": asking, "NodeNameToVictims": None, "NodeNameToMetaVictims": offers}
        )
        whole = {
            "n1": {
                "Pods": [{"metadata": {"uid": "uid-n1-0"}}, {"metadata": {"uid": "uid-n1-2"}}],
                "NumPDBViolations": 1,
            }
        }
        same = await world.post(
            "preempt", {"Pod": asking, "NodeNameToVictims": whole, "NodeNameToMetaVictims": None}
        )
    kept = answer["NodeNameToMetaVictims"]
    assert kept["n1"] == offers["n1"], "zone 0 is free without both"
    victims = [each["UID"] for each in kept["n2"]["Pods"]]
    assert victims == ["uid-n2-0", "uid-n2-2"], "those offered free no zone; two of all do"
    assert "n3" not in kept
    assert same["NodeNameToMetaVictims"] == {"n1": kept["n1"]}


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"{", b'{"Pod": 3}', b"\xff\xfe", b'{"NodeNames": ["n1"]}']
)
@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
async def test_nonsense_is_400_with_a_sentence_and_ends_nothing(verb: str, body: bytes) -> None:
    async with (await small_and_large()).at_work() as world:
        answer = await world.client.post(f"{world.url}/{verb}", content=body, headers=JSON)
        assert answer.status_code == 400
        assert answer.text.startswith("topolog: not the body of an extender/v1 request")
        assert (await world.filter(pod("p"), "n2"))["NodeNames"] == ["n2"]


async def test_a_manifest_that_cannot_be_read_is_refused_everywhere_by_its_field() -> None:
    made = pod("p")
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "four"
    async with (await small_and_large()).at_work() as world:
        answer = await world.filter(made, "n1", "n2")
    assert set(answer["FailedAndUnresolvableNodes"]) == {"n1", "n2"}
    assert "cpu" in answer["FailedAndUnresolvableNodes"]["n1"]


def test_beyond_loopback_no_client_is_served_without_a_certificate(tmp_path: Path) -> None:
    pem = str(tmp_path / "it.pem")
    Path(pem).write_text("x")
    assert ExtenderSettings(port=0, host="0.0.0.0").problems() == []
    assert ExtenderSettings(port=1).problems() == []
    assert "would let anybody bind" in ExtenderSettings(port=1, host="0.0.0.0").problems()[0]
    assert "CLIENT_CA" in ExtenderSettings(port=1, certificate=pem, key=pem).problems()[0]
    assert (
        ExtenderSettings(port=1, host="0.0.0.0", certificate=pem, key=pem, client_ca=pem).problems()
        == []
    )
    assert (
        "is not a file"
        in ExtenderSettings(port=1, certificate=pem, key=pem, client_ca="/nowhere").problems()[0]
    )


async def test_of_a_restored_log_it_answers_once_the_cluster_was_listed() -> None:
    world = await small_and_large()
    await world.tell(streams.LOG, LogOpened("extender", 2))
    async with world.at_work() as address:
        asked = {"Pod": pod("p"), "Nodes": None, "NodeNames": ["n2"]}
        answer = await address.client.post(f"{address.url}/filter", json=asked)
        assert answer.status_code == 503
        assert "nodes and pods of the cluster were not listed yet on timeline 2" in answer.text
        for kind in ("nodes", "pods"):
            await world.tell(streams.listing(kind), ClusterListed(kind, 2))
        await until(lambda: world.core is not None and not world.core.folded.listings.lacking())
        assert (await world.filter(pod("p"), "n2"))["NodeNames"] == ["n2"]


async def test_a_bind_of_a_uid_under_another_name_is_refused() -> None:
    async with (await small_and_large()).at_work() as world:
        made = pod("p")
        await world.filter(made, "n2")
        made["metadata"]["name"] = "other"
        assert await world.bind(made, "n2") == "uid uid-p is ns/p, not ns/other"
        assert await world.events(PodReserved) == []


async def test_a_bind_is_answered_when_its_reservation_is_withdrawn() -> None:
    """The node left before the binder began; the answer does not wait for the time limit."""
    async with (await small_and_large()).at_work("is away") as world:
        await world.filter(pod("p"), "n2")
        binding = asyncio.create_task(world.bind(pod("p"), "n2"))
        async with asyncio.timeout(3):
            while not await world.events(PodReserved):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            withdrawn = ReservationWithdrawn("uid-p", "n2", "node_ended")
            await world.tell(streams.pod("uid-p"), withdrawn)
            assert await binding == "the reservation on n2 was withdrawn: node_ended"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({**JSON, "Origin": "http://evil.example"}, 403),
        ({**JSON, "Host": "evil.example:8080"}, 421),
        ({**JSON, "Host": "127.0.0.1.evil.example"}, 421),
        (JSON, 200),
        ({**JSON, "Host": "localhost:1"}, 200),
        ({**JSON, "Host": "[::1]:1"}, 200),
    ],
)
async def test_a_web_page_cannot_ask_the_loopback_address(
    headers: dict[str, str], status: int
) -> None:
    body = msgspec.json.encode({"Pod": pod("p"), "NodeNames": ["n2"]})
    async with (await small_and_large()).at_work() as world:
        answer = await world.client.post(f"{world.url}/filter", content=body, headers=headers)
        assert answer.status_code == status


async def test_half_open_connections_neither_block_requests_nor_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """520 connections that send half a request head."""
    monkeypatch.setattr("services.scheduler.extender.server._Protocol.read_limit_s", 1.0)
    async with (await small_and_large()).at_work() as world:
        port = httpx2.URL(world.url).port
        streams_ = [await asyncio.open_connection("127.0.0.1", port) for _ in range(520)]
        for _, writer in streams_:
            writer.write(b"POST /filter HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(3):
            assert (await world.filter(pod("p"), "n2"))["NodeNames"] == ["n2"]
        async with asyncio.timeout(5):
            for reader, _ in streams_:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
        for _, writer in streams_:
            writer.close()
