"""The exporter as a process: modules it must not load, refusals to start, health and SIGTERM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from services.simulator.http_client import HttpClient, Unreachable
from shared.domain.version import VERSION
from tests.exporter.kubelets import Kubelet, write_sysfs
from tests.fixtures.ports import free_port

HEAVY = (
    "sqlalchemy",
    "asyncpg",
    "alembic",
    "numpy",
    "lightkube",
    "rich",
    "google.protobuf.json_format",
    "grpc",
    "nacl",
    "psutil",
    "yaml",
)


def test_no_heavy_library_is_loaded() -> None:
    load = (
        "from shared.runtime import lean; lean.leave_out_what_is_optional(); import "
        "services.exporter.service, sys"
    )
    code = f"{load}; print([name for name in {HEAVY!r} if sys.modules.get(name)])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_refuses_to_start_with_every_mistake_named() -> None:
    argv = [sys.executable, "-m", "services.exporter", "--interval", "0", "--http-port", "99999"]
    result = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]}
    )
    assert result.returncode == 2
    assert "2 setting(s) to correct" in result.stderr
    assert "TOPOLOG_INTERVAL_S" in result.stderr
    assert "TOPOLOG_HTTP_PORT" in result.stderr


async def test_serves_health_and_nodes_without_a_bus_and_drains_on_sigterm(tmp_path: Path) -> None:
    port = free_port()
    kubelet = await Kubelet(tmp_path / "k.sock").start()
    node = f"n1={kubelet.socket},{write_sysfs(tmp_path / 'sys')}"
    argv = [
        "-m",
        "services.exporter",
        "--node",
        node,
        "--http-port",
        str(port),
        "--nats-url",
        "nats://127.0.0.1:9",
    ]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *argv, stderr=asyncio.subprocess.PIPE
    )
    client = HttpClient(f"http://127.0.0.1:{port}")
    statuses = await _statuses(client)
    assert [(first["node"], first["error"]) for first in statuses] == [("n1", "")]
    assert (await client.request("GET", "/healthz"))[0] == 200
    metrics = (await client.request("GET", "/metrics"))[1].decode()
    assert "topolog_exporter_scans_total{" in metrics
    assert f'nfd_topology_updater_build_info{{version="{VERSION}"}} 1.' in metrics
    await client.close()
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 60) == 0
    await kubelet.stop()


async def _statuses(client: HttpClient) -> list[dict[str, object]]:
    """Return the nodes' statuses after the first scan."""
    async with asyncio.timeout(60):
        while True:
            try:
                status, body = await client.request("GET", "/nodes")
            except Unreachable:
                status, body = 0, b""
            result = json.loads(body) if status == 200 else []
            if result and result[0]["scans"]:
                return list(result)
            await asyncio.sleep(0.05)
