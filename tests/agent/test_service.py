"""The agent over a real socket: the CPUs that containers get, and what happens if agent or runtime
dies.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.agent.connection import CallError
from services.agent.core import Machine
from services.agent.handlers import Plugin
from services.agent.node import Node
from services.agent.nri import nri_pb2 as pb
from services.agent.service import Agent
from services.agent.settings import AgentSettings
from shared.domain.statement import LOCK_FILE, STATEMENT_FILE, Statement
from shared.domain.zone_allocation import DEVICE_ALLOCATED
from tests.agent.fake_runtime import FakeRuntime
from tests.runtime.helpers import until

SET = '{"cpuset":"2-3"}'
SHARE = '{"numaNodeResources":[{"node":0,"resources":{"cpu":"1","memory":"1Gi"}}]}'


def node(folder: Path, **other: Any) -> AgentSettings:
    """Make a machine of two zones with four CPUs each; CPU 0 is reserved."""
    system = folder / "sys/devices/system"
    for zone, cpus in enumerate(("0-3", "4-7")):
        (system / f"node/node{zone}").mkdir(parents=True)
        (system / f"node/node{zone}/cpulist").write_text(cpus)
    (system / "cpu").mkdir()
    (system / "cpu/online").write_text("0-7\n")
    (system / "node/online").write_text("0-1\n")
    (folder / "proc").mkdir()
    return AgentSettings(
        nri_socket=str(folder / "nri.sock"),
        sysfs=str(folder / "sys"),
        cgroups=str(folder / "cgroups"),
        host_proc=str(folder / "proc"),
        kubelet_dir=str(folder / "kubelet"),
        agent_dir=str(folder / "enforced"),
        reserved_cpus="0",
        interval_s=0.1,
        **other,
    )


@asynccontextmanager
async def running(settings: AgentSettings) -> AsyncIterator[Agent]:
    agent = Agent(settings)
    task = asyncio.create_task(agent.run())
    try:
        yield agent
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await agent.close()


def stated(folder: Path) -> dict[str, str]:
    path = folder / "enforced" / STATEMENT_FILE
    if not path.exists():
        return {}
    statement = msgspec.json.decode(path.read_bytes(), type=Statement)
    return {entry.pod: entry.held[0].ids for entry in statement.containers}


@pytest.mark.parametrize(("variable", "expected"), [("", []), ("VISIBLE", ["VISIBLE=GPU-a,1"])])
def test_containers_get_the_gpus_of_their_pod_by_environment(
    tmp_path: Path, variable: str, expected: list[str]
) -> None:
    plugin = Plugin(node(tmp_path, gpu_env=variable), Machine({0: 0b1110}))
    cards = '{"gpu":[{"minor":0,"resources":{},"id":"GPU-a"},{"minor":1,"resources":{}}]}'
    pod = pb.PodSandbox(id="s", uid="u", annotations={DEVICE_ALLOCATED: cards})
    request = pb.ContainerRequest(pod=pod, container=pb.Container(id="c", pod_sandbox_id="s"))
    answer = plugin.answer("CreateContainer", request.SerializeToString())
    adjust = pb.CreateContainerResponse.FromString(answer).adjust
    assert [f"{entry.key}={entry.value}" for entry in adjust.env] == expected
    request.pod.annotations[DEVICE_ALLOCATED] = "{"
    if variable:
        with pytest.raises(CallError, match=DEVICE_ALLOCATED):
            plugin.answer("CreateContainer", request.SerializeToString())


@pytest.mark.parametrize("has_driver", [True, False])
def test_containers_get_the_device_files_of_their_gpus(tmp_path: Path, has_driver: bool) -> None:
    settings = node(tmp_path, gpu_devices=True)
    listed = "Character devices:\n195 nvidia\n195 nvidiactl\n510 nvidia-uvm\n\nBlock devices:\n"
    (tmp_path / "proc/devices").write_text(listed if has_driver else "  1 mem\n")
    plugin = Plugin(settings, Machine({0: 0b1110}))
    cards = '{"gpu":[{"minor":3,"resources":{}}],"rdma":[{"minor":1,"resources":{}}]}'
    pod = pb.PodSandbox(id="s", uid="u", annotations={DEVICE_ALLOCATED: cards})
    request = pb.ContainerRequest(pod=pod, container=pb.Container(id="c", pod_sandbox_id="s"))
    answer = plugin.answer("CreateContainer", request.SerializeToString())
    adjust = pb.CreateContainerResponse.FromString(answer).adjust
    assert list(adjust.env) == []
    files = [(each.path, each.type, each.major, each.minor) for each in adjust.linux.devices]
    assert files == (
        [
            ("/dev/nvidia3", "c", 195, 3),
            ("/dev/nvidiactl", "c", 195, 255),
            ("/dev/nvidia-uvm", "c", 510, 0),
            ("/dev/nvidia-uvm-tools", "c", 510, 1),
        ]
        if has_driver
        else []
    )


async def test_sets_shares_and_other_pods_get_their_cpus(tmp_path: Path) -> None:
    async with FakeRuntime(tmp_path) as runtime, running(node(tmp_path)):
        await runtime.ready.wait()
        await runtime.create(runtime.pod("plain"), "plain")
        await runtime.create(runtime.pod("share", SHARE), "share")
        assert (runtime.cpus("plain"), runtime.cpus("share")) == ("0-7", "1-3")
        own_pod = runtime.pod("own", SET)
        await runtime.create(own_pod, "own")
        assert [runtime.cpus(name) for name in ("own", "share", "plain")] == ["2-3", "1", "0-1,4-7"]
        refused = await runtime.create(runtime.pod("second", SET), "second")
        assert (refused.status.code, refused.status.message) == (
            9,
            "topolog-agent: CPUs 2-3 belong to pod default/own",
        )
        await until(lambda: stated(tmp_path) == {"own": "2-3", "share": "1"})
        updated = (await runtime.update("own")).update
        assert [(u.container_id, u.linux.resources.cpu.cpus) for u in updated] == [("own", "2-3")]
        await runtime.end(own_pod)
        await until(lambda: runtime.cpus("plain") == "0-7" and runtime.cpus("share") == "1-3")
        await until(lambda: stated(tmp_path) == {"share": "1-3"})


async def test_memory_is_bound_if_the_pod_says_so(tmp_path: Path) -> None:
    async with FakeRuntime(tmp_path) as runtime, running(node(tmp_path, memory_policy="bind")):
        await runtime.ready.wait()
        await runtime.create(runtime.pod("bound", SHARE), "bound")
        assert (tmp_path / "cgroups/bound/cpuset.mems.effective").read_text() == "0"
        await until(lambda: "bound" in stated(tmp_path))


async def test_with_warn_a_pod_runs_outside_the_cpu_sets(tmp_path: Path) -> None:
    async with FakeRuntime(tmp_path) as runtime, running(node(tmp_path, unkept="warn")):
        await runtime.ready.wait()
        await runtime.create(runtime.pod("own", SET), "own")
        assert not (await runtime.create(runtime.pod("second", SET), "second")).status.code
        assert runtime.cpus("second") == "0-1,4-7"


async def test_a_killed_runtime_is_found_again_and_repaired(tmp_path: Path) -> None:
    """Containers that were made meanwhile get their CPUs by Synchronize."""
    async with FakeRuntime(tmp_path) as runtime, running(node(tmp_path)) as agent:
        await runtime.ready.wait()
        await runtime.create(runtime.pod("own", SET), "own")
        runtime.drop()
        await until(lambda: agent.problem)
        sandbox = runtime.pod("share", SHARE)
        runtime.containers["share"] = runtime.container(sandbox, "share")
        runtime.write("share", "0-7")
        await runtime.ready.wait()
        await until(lambda: not agent.problem)
        assert (runtime.cpus("own"), runtime.cpus("share")) == ("2-3", "1")
        assert runtime.connections == 2


async def test_a_pod_whose_end_was_not_reported_gives_its_cpus_back(tmp_path: Path) -> None:
    """The pod between two of its containers keeps them."""
    async with FakeRuntime(tmp_path) as runtime, running(node(tmp_path)):
        await runtime.ready.wait()
        await runtime.create(runtime.pod("plain"), "plain")
        await runtime.create(runtime.pod("own", SET), "own")
        await runtime.call("StopContainer", runtime.request(runtime.containers.pop("own")))
        await asyncio.sleep(0.3)
        assert runtime.cpus("plain") == "0-1,4-7"
        shutil.rmtree(tmp_path / "cgroups/own")
        await until(lambda: runtime.cpus("plain") == "0-7")


async def test_a_cpu_that_goes_offline_leaves_the_pools(tmp_path: Path) -> None:
    async with FakeRuntime(tmp_path) as runtime, running(node(tmp_path)):
        await runtime.ready.wait()
        await runtime.create(runtime.pod("share", SHARE), "share")
        (tmp_path / "sys/devices/system/cpu/online").write_text("0-1,3-7")
        await until(lambda: runtime.cpus("share") == "1,3")


async def test_an_unreadable_request_is_answered(tmp_path: Path) -> None:
    async with FakeRuntime(tmp_path) as runtime, running(node(tmp_path)):
        await runtime.ready.wait()
        assert (await runtime.call("StopContainer", pb.Empty(), b"\xff")).status.code == 3
        assert (await runtime.call("Other", pb.Empty())).status.code == 12


async def test_what_something_else_writes_is_set_again(tmp_path: Path) -> None:
    async with FakeRuntime(tmp_path) as runtime, running(node(tmp_path)):
        await runtime.ready.wait()
        await runtime.create(runtime.pod("own", SET), "own")
        runtime.write("own", "0-7")
        await until(lambda: runtime.cpus("own") == "2-3")


async def test_a_failed_update_is_tried_again(tmp_path: Path) -> None:
    async with FakeRuntime(tmp_path) as runtime, running(node(tmp_path)):
        await runtime.ready.wait()
        well = runtime.update_answer
        runtime.update_answer = pb.Response(status=pb.Status(code=2, message="failed"))
        await runtime.create(runtime.pod("own", SET), "own")
        runtime.write("own", "0-7")
        await asyncio.sleep(0.5)
        runtime.update_answer = well
        await until(lambda: runtime.cpus("own") == "2-3")
        assert runtime.connections == 1


@pytest.mark.parametrize("other", ["static", "koordlet"])
async def test_the_agent_sets_nothing_while_another_component_sets_cpus(
    tmp_path: Path, other: str
) -> None:
    settings = node(tmp_path)
    path = tmp_path / ("kubelet/cpu_manager_state" if other == "static" else "proc/7/comm")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"policyName": "static"}) if other == "static" else "koordlet\n")
    async with FakeRuntime(tmp_path) as runtime, running(settings) as agent:
        await until(lambda: other in agent.problem)
        assert runtime.connections == 0
        path.unlink()
        await runtime.ready.wait()
        await until((tmp_path / "enforced" / STATEMENT_FILE).exists)
        path.write_text('{"policyName":"static"}' if other == "static" else "koordlet\n")
        await until(lambda: other in agent.problem)
        assert not (tmp_path / "enforced" / STATEMENT_FILE).exists()


def variables(settings: AgentSettings) -> dict[str, str]:
    changed = ("nri_socket", "sysfs", "cgroups", "host_proc", "kubelet_dir", "agent_dir")
    values = {f"TOPOLOG_{name.upper()}": getattr(settings, name) for name in changed}
    return {**values, "TOPOLOG_INTERVAL_S": "0.1", "PATH": os.environ["PATH"]}


def is_locked(folder: Path) -> bool:
    with (folder / "enforced" / LOCK_FILE).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        return False


async def test_a_killed_agent_leaves_no_lock_and_the_next_one_takes_over(tmp_path: Path) -> None:
    settings = node(tmp_path)

    async def started() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.agent", env=variables(settings),
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip

    async with FakeRuntime(tmp_path) as runtime:
        first = await started()
        async with asyncio.timeout(20):
            await runtime.ready.wait()
        await runtime.create(runtime.pod("own", SET), "own")
        await until(lambda: stated(tmp_path) == {"own": "2-3"})
        assert is_locked(tmp_path)
        first.send_signal(signal.SIGKILL)
        await first.wait()
        assert not is_locked(tmp_path)
        runtime.drop()
        second = await started()
        async with asyncio.timeout(20):
            await runtime.ready.wait()
        assert (await runtime.create(runtime.pod("second", SET), "second")).status.code == 9
        second.send_signal(signal.SIGTERM)
        assert await second.wait() == 0
        assert not (tmp_path / "enforced" / STATEMENT_FILE).exists()


async def test_an_uneventful_tick_measures_cgroups_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for owner, name in ((Node, "measured"), (Agent, "_tick")):
        original = getattr(owner, name)

        def counted(*arguments: Any, name: str = name, original: Any = original) -> Any:
            calls.append(name)
            return original(*arguments)

        monkeypatch.setattr(owner, name, counted)
    async with FakeRuntime(tmp_path) as runtime, running(node(tmp_path)):
        await runtime.ready.wait()
        await until(lambda: calls.count("_tick") > 4)
    assert calls.count("measured") <= calls.count("_tick") + 1
