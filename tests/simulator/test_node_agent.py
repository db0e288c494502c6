"""The simulated agent enforces what annotations say, and refuses what no scheduler may do."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from services.exporter.statement import NOBODY, StatementReader
from services.simulator.cluster import NodeShape, Policies, lay_out
from services.simulator.node_agent import NodeAgent
from shared.domain.pod import Container, Pod
from shared.domain.zone_allocation import DeviceHolding, ZoneAllocation, annotations_of

GIB = 2**30
NODE = lay_out("n1", NodeShape(), Policies(owner="topolog"))


def given(name: str, cpus: str = "", memory_gib: int = 1) -> Pod:
    amounts = {"cpu": 4_000, "memory": memory_gib * GIB}
    annotations = annotations_of(ZoneAllocation({0: amounts}, cpus))
    return Pod(f"uid-{name}", "ns", name, "Guaranteed", (Container("c"),), annotations=annotations)


@pytest.fixture
def agent(tmp_path: Path) -> NodeAgent:
    return NodeAgent(NODE, tmp_path)


def test_a_cpu_that_two_pods_were_given_is_an_error(agent: NodeAgent) -> None:
    assert agent.create(given("a", "2-5")) == ""
    assert agent.create(given("b", "5-8")) == "CPUs 5 belong to pod ns/a"
    agent.end("uid-a")
    assert agent.create(given("b", "5-8")) == ""


def test_a_zone_with_more_than_it_has_is_an_error(agent: NodeAgent) -> None:
    assert agent.create(given("a", memory_gib=40)) == ""
    assert agent.create(given("b", memory_gib=40)) == (
        "zone 0 has less memory than its pods were given"
    )


def test_a_card_of_which_two_pods_were_given_more_than_it_has_is_an_error(agent: NodeAgent) -> None:
    def share(name: str, percent: int) -> Pod:
        card = DeviceHolding("gpu", 3, {"koordinator.sh/gpu-core": percent})
        annotations = annotations_of(ZoneAllocation(devices=(card,)))
        return msgspec.structs.replace(given(name), annotations=annotations)

    assert agent.create(share("a", 60)) == agent.create(share("b", 40)) == ""
    message = "gpu 3 has less koordinator.sh/gpu-core than its pods were given"
    assert agent.create(share("c", 1)) == message
    agent.end("uid-b")
    assert agent.create(share("c", 1)) == ""


def test_the_exporter_reads_what_containers_have_while_the_agent_lives(
    agent: NodeAgent, tmp_path: Path
) -> None:
    reader = StatementReader(str(tmp_path))
    agent.create(given("a", "2-5"))
    statement = reader.read()
    assert statement is not None
    assert [amount.ids for entry in statement.containers for amount in entry.held] == ["2-5"]
    assert reader.read() is statement
    agent.close()
    assert reader.read() is NOBODY
    assert StatementReader("").read() is None
    assert msgspec.json.encode(NOBODY) != b"{}"
