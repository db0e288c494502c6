"""Two processes of every service on one log: who is killed is replaced by the one that stood by, and who was paused writes
nothing once it wakes up."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from services.embedded.data_dir import read_addresses
from shared.eventlog.postgres_connection import plain_url
from tests.road.harness import Road, folder, running, verified, wait_until

PODS = "/api/v1/namespaces/default/pods"
FLAGS = ("--nodes", "4", "--workload", "none", "--schedulers", "2", "--standbys", "1", "--report-interval", "1")
ROLES = ("binder", "observer")


def ask(path: Path, statement: str, *values: object) -> list[Any]:
    async def fetch() -> list[Any]:
        connection = await asyncpg.connect(plain_url(read_addresses(path).database_url or ""))
        try:
            return await connection.fetch(statement, *values)
        finally:
            await connection.close()

    return asyncio.run(fetch())


def holder(path: Path, role: str) -> tuple[int, int]:
    """Process id and epoch; (0, 0) while nobody holds it."""
    rows = ask(path, "SELECT holder, epoch FROM lease WHERE role = $1 AND holder <> ''", role)
    return (int(rows[0]["holder"].split("/")[-2]), rows[0]["epoch"]) if rows else (0, 0)


def submit(road: Road, name: str) -> None:
    amounts = {"cpu": "1", "memory": "64Mi"}
    container = {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    road.kube(PODS, "POST", {"metadata": {"name": name}, "spec": {"schedulerName": "topolog", "containers": [container]}})


def wait_bound(road: Road, name: str) -> None:
    node = lambda: (road.kube(f"{PODS}/{name}") or {}).get("spec", {}).get("nodeName")  # noqa: E731
    wait_until(node, 60, f"{name} was not bound", road.output)


def wait_ready(road: Road) -> None:
    ours = [name for name in road.services() if name.startswith(("scheduler", "binder", "topology-store"))]
    assert len(ours) == 6
    wait_until(lambda: all((road.get(name, "/readyz") or {}).get("ok") for name in ours), 60, "never ready", road.output)


@pytest.mark.timeout(300)
def test_a_standby_takes_over_from_the_dead_and_a_paused_leader_writes_nothing_more() -> None:
    with folder() as path, running(path, *FLAGS, env={"TOPOLOG_LEASE_TTL_S": "2"}) as road:
        wait_ready(road)
        for number, role in enumerate(ROLES):
            dead, _ = holder(path, role)
            os.kill(dead, signal.SIGKILL)
            submit(road, f"killed-{number}")
            wait_bound(road, f"killed-{number}")
            taken = lambda role=role, dead=dead: holder(path, role)[0] not in (0, dead)  # noqa: E731
            wait_until(taken, 60, f"nobody took {role}", road.output)
            wait_ready(road)
        late = "SELECT position FROM fact WHERE role = $1 AND epoch <= $2 AND position > $3"
        for role, (epoch, position) in pause_and_wake(road, path).items():
            assert ask(path, late, role, epoch, position) == [], f"{role} wrote under epoch {epoch}"
        assert road.stop() == 0
        verified(path)


def pause_and_wake(road: Road, path: Path) -> dict[str, tuple[int, int]]:
    """SIGSTOP, takeover, SIGCONT, for a binder and a scheduler at once: role -> the old epoch, and the head at the takeover."""
    held = {role: holder(path, role) for role in ("binder", "scheduler/topolog/0")}
    for number in range(6):
        submit(road, f"before-{number}")
    for pid, _ in held.values():
        os.kill(pid, signal.SIGSTOP)
    found = {}
    for role, (pid, epoch) in held.items():
        taken = lambda role=role, epoch=epoch: ask(path, "SELECT 1 FROM writer WHERE role = $1 AND epoch > $2", role, epoch)  # noqa: E731
        wait_until(taken, 60, f"nobody counted {role} of {pid} out", road.output)
        found[role] = (epoch, ask(path, "SELECT position FROM counter")[0]["position"])
    for number in range(6):
        submit(road, f"after-{number}")
        wait_bound(road, f"after-{number}")
    for pid, _ in held.values():
        os.kill(pid, signal.SIGCONT)
    for number in range(6):
        wait_bound(road, f"before-{number}")
    time.sleep(1.0)
    wait_ready(road)
    return found
