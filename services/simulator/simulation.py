"""Composes a simulated cluster in one process: API server, kubelets and workload.

Its status (address, exporter files, progress, refusals) is written to a file and, as JSON lines, to
standard output. This module does not know the scheduler or any other service.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from services.simulator import machine_files
from services.simulator.api import serve
from services.simulator.api.cluster_store import ClusterStore
from services.simulator.clock import VirtualClock
from services.simulator.cluster import SimulatedNode
from services.simulator.controllers import Controllers
from services.simulator.feasibility import rooms
from services.simulator.http_client import HttpClient
from services.simulator.kubelet_runner import KubeletRunner, Rejection
from services.simulator.options import Options
from services.simulator.player import Play, Player
from services.simulator.progress import PlayedBefore, Progress, Summary
from services.simulator.volumes import VolumeBinder

STATUS_INTERVAL_S = 0.5
LINE_INTERVAL_S = 1.0
START_LOOK_S = 0.05
PLAYED_FILE = "played.json"


class Status(msgspec.Struct, frozen=True):
    """The state of a simulation. `nodes_files` has one file for each exporter process. `workload`
    is None, and `done` is true, if there is no workload.
    """

    api_url: str
    nodes_files: tuple[str, ...]
    nodes: int
    workload: Summary | None
    rejections: tuple[Rejection, ...]
    done: bool


class Simulation:
    """One simulated cluster and its workload."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._nodes = options.cluster()
        self._files = machine_files.places(
            options.data_dir / "nodes", machine_files.socket_folder(options.data_dir), self._nodes
        )
        options.data_dir.mkdir(parents=True, exist_ok=True)
        self.store = ClusterStore(journal_path=options.data_dir / "cluster.journal", seed=None)
        self._clock = VirtualClock(options.pace.start)
        self.kubelets = KubeletRunner(self.store, self._nodes, self._files, self._clock)
        self._api: serve.ApiServer | None = None
        self._player: Player | None = None
        self._nodes_files: tuple[str, ...] = ()

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until stopped. The end of the workload does not end the cluster."""
        await self.kubelets.start()
        self._nodes_files = _write_shards(self._options, self._files)
        self._api = await serve.start(self.store, self._options.api_host, self._options.api_port)
        client = HttpClient(self._api.url)
        works = [
            self.kubelets.run(),
            Controllers(self.store).run(),
            VolumeBinder(self.store).run(),
            self._report(),
        ]
        if self._options.plays:
            self._player = self._make_player(self._nodes, client)
            works.append(self._play(self._player))
        running = [asyncio.create_task(work) for work in works]
        try:
            await _first_failure_or(stopping, running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self._close(client)

    def status(self) -> Status:
        """Return the state of the simulation."""
        summary = self._player.summary() if self._player else None
        return Status(
            api_url=self._api.url if self._api else "",
            nodes_files=self._nodes_files,
            nodes=len(self._nodes),
            workload=summary,
            rejections=tuple(self.kubelets.rejections),
            done=summary.done if summary else not self._options.plays,
        )

    def _make_player(self, nodes: tuple[SimulatedNode, ...], client: HttpClient) -> Player:
        options = self._options
        play = Play(
            options.workload_label,
            options.pods,
            options.scheduler,
            options.namespace,
            options.keep_finished,
        )
        arrivals = options.arrivals(nodes)
        progress = Progress(options.pods, self._played_before())
        return Player(
            play,
            arrivals,
            rooms(nodes, has_device_objects=True),
            self.store,
            client,
            self._clock,
            options.pace,
            progress,
            self._keep_played,
        )

    async def _play(self, player: Player) -> None:
        """Start the workload when the start file exists: the scheduler may still be starting."""
        start = Path(self._options.start_file) if self._options.start_file else None
        while start is not None and not start.exists():  # noqa: ASYNC110  (made by another process)
            await asyncio.sleep(START_LOOK_S)
        await player.run()

    def _played_before(self) -> PlayedBefore:
        """Return what an earlier process in the same folder has done of this workload."""
        try:
            return msgspec.json.decode(
                (self._options.data_dir / PLAYED_FILE).read_bytes(), type=PlayedBefore
            )
        except (OSError, msgspec.MsgspecError):
            return PlayedBefore()

    async def _report(self) -> None:
        """Keep the status file current and print a line a second."""
        printed_s = 0.0
        while True:
            status = self.status()
            self._write(status)
            if self._options.json and time.monotonic() - printed_s >= LINE_INTERVAL_S:
                printed_s = time.monotonic()
                print(msgspec.json.encode(status).decode(), flush=True)
            await asyncio.sleep(STATUS_INTERVAL_S)

    def _write(self, status: Status) -> None:
        if self._options.status_file:
            _replace(Path(self._options.status_file), msgspec.json.encode(status))
        self._keep_played()

    def _keep_played(self) -> None:
        if self._player is not None:
            _replace(
                self._options.data_dir / PLAYED_FILE,
                msgspec.json.encode(self._player.progress.ended),
            )

    async def _close(self, client: HttpClient) -> None:
        self._write(self.status())
        await client.close()
        if self._api is not None:
            await self._api.stop()
        await self.kubelets.stop()
        self.store.close()


async def _first_failure_or(stopping: asyncio.Event, running: list[asyncio.Task[None]]) -> None:
    """Wait for the stop. If a task fails, raise its error, which ends the simulation."""
    stop = asyncio.create_task(stopping.wait())
    pending: set[asyncio.Task[object]] = {stop, *running}
    while not stop.done():
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stop}:
            task.result()


def _write_shards(options: Options, files: tuple[machine_files.NodeFiles, ...]) -> tuple[str, ...]:
    """Write the nodes files of the exporters, with every n-th node in each. Return their paths."""
    paths = []
    for shard in range(min(options.shards, len(files))):
        path = options.data_dir / f"exporter-{shard}.json"
        _replace(
            path,
            msgspec.json.encode(
                [node_files.for_exporter() for node_files in files[shard :: options.shards]]
            ),
        )
        paths.append(str(path))
    return tuple(paths)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def run(options: Options) -> None:
    """Run a simulation until SIGTERM or SIGINT. Raises the error that stopped it."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_main(options))


async def _main(options: Options) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await Simulation(options).run(stopping)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    with contextlib.suppress(ImportError):
        import uvloop

        factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
        return factory
    return None
