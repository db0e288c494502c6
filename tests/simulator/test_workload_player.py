"""The player, the simulated cluster and HTTP together, with a test's own scheduler that knows the
kubelets' true state.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from services.simulator import kubelet, options
from services.simulator.cluster_port import Change
from services.simulator.feasibility import Infeasible
from services.simulator.http_client import HttpClient, Unreachable
from services.simulator.options import Options, OptionsError
from services.simulator.pace import Pace, fixed, parse_speed
from services.simulator.progress import ENDED_KEPT, ENDLESS, PlayedBefore, Progress
from services.simulator.simulation import PLAYED_FILE, Simulation
from services.simulator.workload import GANG_SIZE, demo_tasks, manifest
from shared.domain.manifest import pod_from_manifest
from shared.domain.pod import Pod


class Oracle:
    """A scheduler that binds each waiting pod to the first node whose kubelet would admit it now,
    with one unconfirmed pod per node.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._store = simulation.store
        self._kubelets = simulation.kubelets

    async def run(self) -> None:
        while True:
            for entry in self._store.list("pods", field_selector="spec.nodeName="):
                pod = pod_from_manifest(entry.obj)
                assert isinstance(pod, Pod)
                self._bind(pod)
            await asyncio.sleep(0.01)

    def _bind(self, pod: Pod) -> None:
        busy = {
            e.obj["spec"].get("nodeName")
            for e in self._store.list("pods")
            if e.obj["status"]["phase"] == "Pending"
        }
        for entry in self._store.list("nodes"):
            node = self._kubelets.agent(entry.name).node
            if entry.name in busy or any(known.phase != "running" for known in node.pods.values()):
                continue
            if kubelet.begin(kubelet.assign(node, pod), pod.uid)[1].verdict.admitted:
                self._store.bind(pod.name, pod.namespace, entry.name, pod.uid)
                return


@pytest.fixture
async def simulation(tmp_path: Path) -> AsyncIterator[Simulation]:
    chosen = Options(
        tmp_path,
        nodes=3,
        workload="demo",
        pods=30,
        speed="200",
        load=2.0,
        status_file=str(tmp_path / "status"),
    )
    made, stopping = Simulation(chosen), asyncio.Event()
    running = asyncio.create_task(made.run(stopping))
    yield made
    stopping.set()
    await running


async def until_done(simulation: Simulation) -> None:
    async with asyncio.timeout(120):
        while not simulation.status().done:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def played(made: Simulation, empty: bool = False) -> None:
    """Run to the end of the workload (until it is empty, if `empty`), with a scheduler, and
    stop.
    """
    stopping = asyncio.Event()
    running = asyncio.create_task(made.run(stopping))
    await asyncio.sleep(0.05)
    scheduling = asyncio.create_task(Oracle(made).run())
    await until_done(made)
    async with asyncio.timeout(60):
        while empty and made.store.list("pods"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    scheduling.cancel()
    stopping.set()
    await running


async def test_every_feasible_pod_runs_to_its_end_and_is_deleted(
    simulation: Simulation, tmp_path: Path
) -> None:
    scheduling = asyncio.create_task(Oracle(simulation).run())
    await until_done(simulation)
    scheduling.cancel()
    summary = simulation.status().workload
    assert summary is not None
    assert (summary.created, summary.succeeded, summary.rejected, summary.lost) == (30, 29, 0, 0)
    assert [one.task for one in summary.infeasible] == ["demo-0025-infeasible"]
    assert summary.left == ()
    assert summary.to_running.count > 0
    async with asyncio.timeout(60):
        while len(simulation.store.list("pods")) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert msgspec.json.decode((tmp_path / "status").read_bytes())["api_url"].startswith(
        "http://127.0.0.1:"
    )


async def test_second_start_in_the_same_folder_goes_on(tmp_path: Path) -> None:
    chosen = Options(tmp_path, nodes=2, pods=8, speed="400", load=2.0)
    ended = []
    for _ in range(2):
        simulation_run = Simulation(chosen)
        await played(simulation_run)
        ended.append(simulation_run.status().workload)
    assert [summary.succeeded for summary in ended if summary] == [8, 8]
    assert ended[1] is not None
    assert ended[1].to_running.count == 0


async def test_start_that_wants_fewer_pods_than_were_created_plays_those_to_their_end(
    tmp_path: Path,
) -> None:
    for pods, scheduled in ((27, False), (3, True)):
        made, stopping = (
            Simulation(Options(tmp_path, nodes=2, pods=pods, speed="400", load=2.0)),
            asyncio.Event(),
        )
        running = asyncio.create_task(made.run(stopping))
        await asyncio.sleep(0.05)
        if scheduled:
            scheduling = asyncio.create_task(Oracle(made).run())
            await until_done(made)
            scheduling.cancel()
        async with asyncio.timeout(30):
            while (summary := made.status().workload) is None or summary.created < 27:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        stopping.set()
        await running
    assert summary is not None
    assert (summary.total, summary.succeeded, summary.left) == (27, 26, ())
    assert [one.task for one in summary.infeasible] == ["demo-0025-infeasible"]


async def test_an_object_is_written_to_the_file_before_it_is_deleted(tmp_path: Path) -> None:
    """A process that is killed after that loses no pod which the API no longer has."""
    simulation_run = Simulation(Options(tmp_path, nodes=2, pods=12, speed="400", load=2.0))
    deleted: list[int] = []

    def look(change: Change) -> None:
        if change.kind == "DELETED":
            written = msgspec.json.decode((tmp_path / PLAYED_FILE).read_bytes(), type=PlayedBefore)
            deleted.append(written.succeeded)

    simulation_run.store.listen("pods", look)
    await played(simulation_run, empty=True)
    assert len(deleted) == 12
    assert all(written >= number for number, written in enumerate(deleted, 1))


async def test_pods_that_a_killed_process_asked_for_and_never_saw_are_created_by_the_next(
    tmp_path: Path,
) -> None:
    chosen = Options(tmp_path, nodes=2, pods=8, speed="400", load=2.0)
    tasks = [task.name for task in islice(demo_tasks(chosen.seed), 8)]
    (tmp_path / PLAYED_FILE).write_bytes(
        msgspec.json.encode(PlayedBefore(3, 3, missing=(tasks[1], tasks[3])))
    )
    simulation_run = Simulation(chosen)
    names = set()
    simulation_run.store.listen(
        "pods", lambda change: names.add(change.entry.obj["metadata"]["name"])
    )
    await played(simulation_run)
    summary = simulation_run.status().workload
    assert summary is not None
    assert sorted(names) == sorted([tasks[1], tasks[3], *tasks[5:]])
    assert (summary.created, summary.succeeded) == (8, 8)


def test_pod_that_was_asked_for_is_missing_until_it_is_seen() -> None:
    first = Progress(3)
    for uid in "abc":
        first.asked(f"pod-{uid}")
    first.seen("ADDED", entry("b"), 1.0)
    first.created("c", "pod-c", 1.0)
    assert first.ended == PlayedBefore(2, missing=("pod-a",))
    later = Progress(3, first.ended)
    assert (later.asked_before, later.missing_before, later.ended.missing) == (
        3,
        ("pod-a",),
        ("pod-a",),
    )
    assert later.ended == first.ended, (
        "a process that is killed before it has seen anything changes nothing"
    )
    later.seen("ADDED", entry("a"), 2.0)
    assert later.ended.missing == ()


def entry(uid: str, phase: str = "Pending", node: str = "") -> dict[str, object]:
    return {
        "metadata": {"uid": uid, "name": f"pod-{uid}"},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }


def test_progress_counts_stages_and_ends_when_only_infeasible_pods_wait() -> None:
    progress = Progress(3)
    progress.expect_infeasible([Infeasible("pod-c", {})])
    for uid in "abc":
        progress.created(uid, f"pod-{uid}", 0.0)
    assert progress.waiting == 2
    progress.seen("MODIFIED", entry("a", node="n"), 1.0)
    progress.seen("MODIFIED", entry("a", "Running", "n"), 3.0)
    progress.seen("MODIFIED", entry("a", "Succeeded", "n"), 4.0)
    assert not progress.done
    progress.seen("MODIFIED", entry("b", "Failed", "n"), 5.0)
    assert progress.done
    summary = progress.summary(7.0, 10.0, 5.0)
    assert (
        summary.succeeded,
        summary.rejected,
        summary.waiting,
        summary.quiet_s,
        summary.factor,
    ) == (1, 1, 0, 2.0, 2.0)
    assert (summary.to_bound.p50_ms, summary.to_running.p50_ms) == (1000.0, 3000.0)
    assert progress.ended == PlayedBefore(3, 1, 1, lately={"a": "succeeded", "b": "rejected"})


def test_a_workload_that_goes_on_is_not_quiet_before_it_is_played() -> None:
    progress = Progress(30, PlayedBefore(created=30, succeeded=29))
    assert progress.summary(5000.0, 0.0, 0.0).quiet_s == 0.0
    progress.begins(5000.0)
    assert progress.summary(5002.0, 0.0, 0.0).quiet_s == 2.0


def test_pod_that_is_over_is_counted_by_one_of_two_processes_that_see_it() -> None:
    first = Progress(1)
    first.created("a", "pod-a", 0.0)
    first.seen("MODIFIED", entry("a", "Succeeded", "n"), 1.0)
    unseen, later = Progress(1, first.ended), Progress(1, first.ended)
    assert unseen.ended == first.ended
    assert later.seen("ADDED", entry("a", "Succeeded", "n"), 2.0) == "succeeded"
    assert (later.summary(2.0, 1.0, 1.0).succeeded, later.ended) == (1, first.ended)
    later.seen("DELETED", entry("a", "Succeeded", "n"), 3.0)
    assert later.ended == first.ended
    for phase in ("Running", "Succeeded"):
        again = Progress(1, later.ended)
        again.seen("ADDED", entry("a", phase, "n"), 4.0)
        assert again.ended.created == 1, "the API forgot that it was deleted, or that it was over"


def test_pod_that_vanishes_before_its_end_is_lost() -> None:
    progress = Progress(1)
    progress.created("a", "pod-a", 0.0)
    progress.seen("DELETED", entry("a", "Running", "n"), 1.0)
    assert progress.summary(1.0, 1.0, 1.0).lost == 1
    assert progress.done


def test_infeasible_pod_that_a_kubelet_refused_ends_the_workload_once() -> None:
    progress = Progress(2)
    progress.expect_infeasible([Infeasible("pod-a", {})])
    progress.created("a", "pod-a", 0.0)
    progress.seen("MODIFIED", entry("a", "Failed", "n"), 1.0)
    assert not progress.done
    progress.created("b", "pod-b", 1.0)
    progress.seen("MODIFIED", entry("b", "Succeeded", "n"), 2.0)
    assert progress.done


def test_pace_follows_the_number_of_waiting_pods_within_its_bounds() -> None:
    pace = Pace()
    assert pace.next(20.0, 0) > 20.0 > pace.next(20.0, pace.many + 1)
    assert pace.next(20.0, pace.few) == 20.0
    assert pace.next(pace.ceiling, 0) == pace.ceiling
    assert pace.next(pace.floor, 10**6) == pace.floor
    assert fixed(3.0).next(3.0, 10**6) == 3.0


@pytest.mark.parametrize("text", ["", "0", "-1", "fast", "nan", "1e9"])
def test_speed_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--speed"):
        parse_speed(text)


def test_every_wrong_option_is_named(tmp_path: Path) -> None:
    argv = [
        "--data-dir",
        str(tmp_path),
        "--nodes",
        "0",
        "--load",
        "-1",
        "--workload",
        "x",
        "--speed",
        "fast",
    ]
    with pytest.raises(OptionsError) as caught:
        options.parse(argv)
    assert [line.split(" ")[0] for line in str(caught.value).splitlines()] == [
        "--nodes",
        "--load",
        "--workload",
        "--speed",
    ]


def test_a_missing_trace_folder_is_reported_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="openb:FOLDER"):
        options.parse(["--data-dir", str(tmp_path), "--workload", f"openb:{tmp_path}"])


async def test_client_names_a_server_that_is_away() -> None:
    client = HttpClient("http://127.0.0.1:9")
    with pytest.raises(Unreachable, match=r"POST http://127\.0\.0\.1:9/x"):
        await client.request("POST", "/x", b"{}")


def test_an_endless_workload_goes_on_and_forgets_ended_pods() -> None:
    progress = Progress(ENDLESS)
    for number in range(50):
        pod = {
            "metadata": {"uid": f"u{number}", "name": f"p{number}"},
            "spec": {},
            "status": {"phase": "Pending"},
        }
        progress.seen("ADDED", pod, 0.0)
        ended = {**pod, "status": {"phase": "Succeeded"}}
        progress.seen("MODIFIED", ended, 1.0)
        progress.seen("DELETED", ended, 2.0)
    summary = progress.summary(3.0, 1.0, 1.0)
    assert (summary.total, summary.created, summary.succeeded, summary.lost, summary.done) == (
        0,
        50,
        50,
        0,
        False,
    )
    assert progress._names == progress._stages == {}
    for number in range(2 * ENDED_KEPT):
        pod = {
            "metadata": {"uid": f"v{number}", "name": "p"},
            "spec": {},
            "status": {"phase": "Succeeded"},
        }
        progress.seen("DELETED", pod, 3.0)
    assert len(progress.ended.lately) == ENDED_KEPT


def test_infeasible_pods_of_a_workload_without_end_are_withdrawn_and_not_lost() -> None:
    progress = Progress(ENDLESS)
    progress.expect_infeasible([Infeasible(f"p{number}", {}) for number in range(6)])
    pods = [
        {
            "metadata": {"uid": f"u{number}", "name": f"p{number}"},
            "spec": {},
            "status": {"phase": "Pending"},
        }
        for number in range(6)
    ]
    for pod in pods:
        progress.seen("ADDED", pod, 0.0)
    assert progress.withdrawable(4) == ["p0", "p1"]
    progress.seen("DELETED", pods[0], 1.0)
    summary = progress.summary(2.0, 1.0, 1.0)
    assert (summary.withdrawn, summary.lost, summary.waiting, len(summary.infeasible)) == (
        1,
        0,
        0,
        5,
    )
    assert Progress(ENDLESS, progress.ended).summary(0.0, 0.0, 0.0).resumed == 6


def test_the_workload_of_gangs_has_gangs_of_four_pods(tmp_path: Path) -> None:
    chosen = Options(tmp_path, workload="gangs", pods=8)
    arrivals = islice(chosen.arrivals(chosen.cluster()), 8)
    pods = [pod_from_manifest(manifest(one.task, "topolog", "ns", "gangs")) for one in arrivals]
    gangs = [pod.gang for pod in pods if isinstance(pod, Pod) and pod.gang is not None]
    assert [gang.minimum for gang in gangs] == [GANG_SIZE] * 8
    assert len({gang.name for gang in gangs}) == 2
    cut = msgspec.structs.replace(chosen, pods=10)
    assert options.check(cut) == ["--pods is 10; give a multiple of 4"]
