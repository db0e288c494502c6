"""Exchanges with containerd 1.7.24 and 2.1.9 (Debian), byte for byte.

Each was recorded between the agent and a containerd with two running containers on a machine of two
CPUs: registration, a pod with CPU 1 for itself, two pods that are refused, an update of the set by
CRI, and the end of the pod, after which the agent gives the CPU back by a call of its own.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.agent import ttrpc
from services.agent.connection import CallError
from services.agent.core import Cpuset, Machine
from services.agent.handlers import NAME, Plugin
from services.agent.nri import nri_pb2 as pb
from services.agent.settings import AgentSettings
from services.agent.ttrpc import PLUGIN, REQUEST, RUNTIME, Message

FOLDER = Path(__file__).parent
VERSIONS = ("1.7.24", "2.1.9")


def messages(version: str) -> Iterator[tuple[str, Message]]:
    """Yield (sender, message) in the order of the recording."""
    decoders = {"plugin": ttrpc.Decoder(), "runtime": ttrpc.Decoder()}
    with gzip.open(FOLDER / f"containerd-{version}.jsonl.gz", "rt") as lines:
        for line in lines:
            sender, data = json.loads(line)
            for message in decoders[sender].feed(base64.b64decode(data)):
                yield sender, message


def answered(plugin: Plugin, request: pb.Request) -> pb.Response:
    try:
        return pb.Response(payload=plugin.answer(request.method, request.payload))
    except CallError as error:
        return pb.Response(status=pb.Status(code=error.code, message=str(error)))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_agent_answers_as_it_was_recorded(version: str) -> None:
    plugin = Plugin(AgentSettings(), Machine({0: 0b11}, memory=1))
    answers: dict[int, pb.Response] = {}
    seen: list[str] = []
    for sender, message in messages(version):
        if message.connection == PLUGIN and sender == "runtime":
            request = pb.Request.FromString(message.data)
            seen.append(request.method)
            answers[message.stream] = answered(plugin, request)
        elif message.connection == PLUGIN:
            assert pb.Response.FromString(message.data) == answers.pop(message.stream)
        elif message.connection == RUNTIME and message.kind == REQUEST:
            request = pb.Request.FromString(message.data)
            seen.append(request.method)
            if request.method == "RegisterPlugin":
                registration = pb.RegisterPluginRequest.FromString(request.payload)
                assert (registration.plugin_name, registration.plugin_idx) == (NAME, "80")
            else:
                sent = pb.UpdateContainersRequest.FromString(request.payload).update
                due = plugin.settings_due()
                assert {update.container_id for update in sent} == set(due)
                assert set(due.values()) == {Cpuset(0b11)}
        else:
            assert pb.Response.FromString(message.data).status.code == 0
    assert answers == {}
    assert seen[:3] == ["RegisterPlugin", "Configure", "Synchronize"]
    assert {"CreateContainer", "UpdateContainer", "StopContainer", "UpdateContainers"} < set(seen)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_recorded_runtime_said_what_the_test_relies_on(version: str) -> None:
    """Two containers at the start, one set of CPU 1 with memory, two refusals."""
    own_pods, refusals, start = [], 0, 0
    for sender, message in messages(version):
        if message.connection != PLUGIN:
            continue
        if sender == "plugin":
            response = pb.Response.FromString(message.data)
            refusals += response.status.code == 9
            if response.payload and not response.status.code:
                created = pb.CreateContainerResponse.FromString(response.payload)
                own_pods += [created.adjust.linux.resources.cpu]
        else:
            request = pb.Request.FromString(message.data)
            if request.method == "Synchronize":
                start = len(pb.SynchronizeRequest.FromString(request.payload).containers)
    assert (refusals, start) == (2, 2)
    assert [(cpu.cpus, cpu.mems) for cpu in own_pods if cpu.cpus] == [("1", "0")]


def test_a_message_reaches_the_runtime_as_containerds_own_client_sends_it() -> None:
    """Frames are cut at messages, so encoding what was decoded gives the recorded bytes."""
    with gzip.open(FOLDER / "containerd-2.1.9.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    sent = b"".join(base64.b64decode(data) for sender, data in rows if sender == "plugin")
    again = b"".join(ttrpc.encode(message) for who, message in messages("2.1.9") if who == "plugin")
    assert again == sent
