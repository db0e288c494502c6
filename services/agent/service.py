"""The agent service: connects to the container runtime, and again after each loss."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from services.agent import core
from services.agent.connection import CallError, Connection
from services.agent.core import Cpuset
from services.agent.handlers import NAME, Plugin, count_containers, register, send_due
from services.agent.node import Node
from services.agent.settings import AgentSettings
from services.agent.statement import StatementFile
from services.agent.ttrpc import ProtocolError
from shared.runtime import lean
from shared.runtime.app import Service, run_service
from shared.runtime.retry import jittered_s
from shared.runtime.waiting import set_within
from shared.telemetry import agent_names as names
from shared.telemetry import logs
from shared.telemetry.instruments import count, set_gauge

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 15.0
SYNCHRONIZE_S = 10.0
# A burst of events leads to one measurement. A new cgroup exists when the container has started.
SETTLE_S = 0.1
STOOD_BACK_S = 30.0
# A scan of processes opens a file of each of them.
LOOKS_PER_SCAN = 6
LOSSES = (OSError, ProtocolError, CallError, TimeoutError, ValueError)


class StoodBackError(Exception):
    """Another component sets CPUs on this node."""


class Agent:
    """Keeps one plugin registered, unless another component sets CPUs."""

    def __init__(self, settings: AgentSettings) -> None:
        self.problem = "the container runtime"
        self._settings = settings
        self._node = Node(settings)
        self._statement = StatementFile(settings.agent_dir)
        self._log = logs.get(NAME)
        self._suspects: set[str] = set()
        self._looks = -1

    async def run(self) -> None:
        """Connect, serve, and connect again, until cancelled."""
        failures = 0
        while True:
            plugin = None
            try:
                self._look_around()
                plugin = Plugin(self._settings, self._node.machine())
                await self._connected(plugin)
                problem, failures = "the runtime ended the connection", 0
            except StoodBackError as error:
                self._looks = -1
                await self._stand_back(str(error))
                continue
            except LOSSES as error:
                problem = str(error) or type(error).__name__
                registered = plugin is not None and plugin.synchronized.is_set()
                failures = 0 if registered else failures + 1
            count(names.CONNECTIONS, result="failed")
            if self._is_new(f"{self._settings.nri_socket}: {problem}"):
                self._log.warning(names.AGENT_DISCONNECTED, problem=self.problem)
            await asyncio.sleep(jittered_s(failures, FIRST_PAUSE_S, LONGEST_PAUSE_S))

    async def close(self) -> None:
        """Withdraw the statement, because nothing enforces it any more. Containers keep
        their CPUs.
        """
        self._statement.close()

    def _look_around(self) -> None:
        """Raise StoodBackError if another component sets CPUs."""
        self._looks += 1
        if problem := self._node.other_enforcer(self._looks % LOOKS_PER_SCAN == 0):
            raise StoodBackError(problem)
        if not self._statement.lock():
            raise StoodBackError(
                f"another agent has the lock in {self._settings.agent_dir}; run one per node"
            )
        set_gauge(names.STOOD_BACK, 0)

    async def _stand_back(self, problem: str) -> None:
        set_gauge(names.STOOD_BACK, 1)
        if self._is_new(problem):
            self._log.warning(names.AGENT_STOOD_BACK, problem=problem)
        await asyncio.sleep(min(STOOD_BACK_S, self._settings.interval_s))

    def _is_new(self, problem: str) -> bool:
        """Note a problem for health; return False if it was logged since the last registration."""
        is_new, self.problem = problem != self.problem, problem
        return is_new

    async def _connected(self, plugin: Plugin) -> None:
        connection = await Connection.open(self._settings.nri_socket, plugin.answer)
        tasks = [
            asyncio.create_task(connection.serve()),
            asyncio.create_task(self._keep(connection, plugin)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await connection.close()
            self._unregistered()

    async def _keep(self, connection: Connection, plugin: Plugin) -> None:
        """Register, then keep containers and statement up to date until the connection ends."""
        await register(connection, self._settings.nri_index)
        if not await set_within(plugin.synchronized, SYNCHRONIZE_S):
            raise TimeoutError("the runtime did not synchronize")
        self._registered()
        loop = asyncio.get_running_loop()
        tick_s = loop.time()
        while True:
            measured = None
            if loop.time() >= tick_s:
                tick_s = loop.time() + self._settings.interval_s
                measured = self._tick(plugin)
            else:
                await asyncio.sleep(SETTLE_S)
            await self._settle(connection, plugin, measured)
            await set_within(plugin.changed, max(0.0, tick_s - loop.time()))
            plugin.changed.clear()

    def _tick(self, plugin: Plugin) -> dict[str, Cpuset]:
        """Check what the runtime does not report: other components, ended pods and cgroups. Return
        the measured cgroups.
        """
        self._look_around()
        plugin.state = msgspec.structs.replace(plugin.state, machine=self._node.machine())
        for sandbox, cgroup in core.idle(plugin.state).items():
            if self._node.is_gone(cgroup):
                plugin.state = core.ended(plugin.state, sandbox)
        measured = self._node.measured(plugin.state)
        self._repair(plugin, measured)
        return measured

    async def _settle(
        self, connection: Connection, plugin: Plugin, measured: dict[str, Cpuset] | None
    ) -> None:
        """Send due updates, and state what containers have: as `measured`, unless an update has
        changed it.
        """
        if core.updates(plugin.state):
            measured = None
        if problem := await send_due(connection, plugin):
            self._log.warning(names.UPDATE_FAILED, problem=problem)
        if core.updates(plugin.state):
            plugin.changed.set()
        if measured is None:
            measured = self._node.measured(plugin.state)
        self._statement.write(core.placements(plugin.state, measured))
        count_containers(plugin.state)

    def _repair(self, plugin: Plugin, measured: Mapping[str, Cpuset]) -> None:
        """Mark containers to be set again if they differed from their targets at two ticks in a
        row.

        At the first tick the runtime may not have applied the last settings yet.
        """
        drifted = core.drifted(plugin.state, measured)
        again, self._suspects = self._suspects & drifted, drifted - self._suspects
        if again:
            plugin.state = core.unknown(plugin.state, again)
            count(names.DRIFTED, len(again))
            self._log.warning(names.CONTAINERS_DRIFTED, containers=sorted(again))

    def _registered(self) -> None:
        self.problem = ""
        set_gauge(names.REGISTERED, 1)
        count(names.CONNECTIONS, result="registered")
        self._log.info(names.AGENT_REGISTERED, socket=self._settings.nri_socket)

    def _unregistered(self) -> None:
        set_gauge(names.REGISTERED, 0)
        self._suspects = set()
        self._statement.withdraw()


async def build(service: Service, settings: AgentSettings) -> None:
    """Create the agent. Nothing is awaited: the runtime may come later."""
    agent = Agent(settings)
    service.on_close("statement", agent.close)
    service.health.check("runtime", lambda: agent.problem)
    service.task("agent", agent.run)


def main() -> int:
    """Run until stopped; return the exit code."""
    lean.leave_out_uvloop(1)
    return run_service(NAME, AgentSettings, build)
