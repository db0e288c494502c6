"""How much CPU one pod's life costs the simulated API server: create, bind, two status patches,
delete, watched by four.

The server runs in a process of its own; the load comes from here over plain keep-alive connections.
Printed: pods/s and the server's CPU ms a pod, with the kubelet's writes over HTTP (worst case) or
inside the server's process (as simulated kubelets run).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import httptools
import psutil
import uvloop

from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.core.store import Change
from services.simulator.api.serve import start

_SPEC = {
    "schedulerName": "topolog",
    "containers": [
        {
            "name": "main",
            "image": "registry.invalid/app:1",
            "resources": {
                "requests": {"cpu": "2", "memory": "1Gi", "vendor.example/gpu": "1"},
                "limits": {"cpu": "2", "memory": "1Gi", "vendor.example/gpu": "1"},
            },
        }
    ],
}


def _running() -> dict[str, Any]:
    conditions = [
        {"type": kind, "status": "True"} for kind in ("Initialized", "Ready", "ContainersReady")
    ]
    container = {
        "name": "main",
        "image": "registry.invalid/app:1",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        "lastState": {},
    }
    return {
        "phase": "Running",
        "conditions": conditions,
        "containerStatuses": [container],
        "podIP": "10.0.0.9",
    }


def _starting() -> dict[str, Any]:
    return {
        "phase": "Pending",
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Initialized", "status": "True"}],
    }


def _serve(pipe: Connection, inner_kubelet: bool) -> None:
    async def run() -> None:
        store = ClusterStore()
        if inner_kubelet:
            _attach_kubelet(store)
        server = await start(store)
        pipe.send(server.url.rpartition(":")[2])
        await asyncio.to_thread(pipe.recv)
        await server.stop()

    uvloop.run(run())


def _attach_kubelet(store: ClusterStore) -> None:
    """Post statuses and finish deletions inside the server's process, as a kubelet does."""
    loop = asyncio.get_running_loop()

    def react(change: Change) -> None:
        obj = change.entry.obj
        name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
        if change.kind != "MODIFIED" or not obj["spec"].get("nodeName"):
            return
        if obj["metadata"].get("deletionTimestamp"):
            if obj["metadata"].get("deletionGracePeriodSeconds"):
                loop.call_soon(lambda: store.delete("pods", name, namespace, grace_s=0))
        elif len(obj["status"]["conditions"]) == 1:
            loop.call_soon(lambda: store.patch_status("pods", name, namespace, _starting()))
        elif obj["status"]["phase"] == "Pending":
            loop.call_soon(lambda: store.patch_status("pods", name, namespace, _running()))

    store.listen("pods", react)


class _Connection:
    """A minimal keep-alive HTTP client: one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def call(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> int:
        data = json.dumps(body).encode() if body is not None else b""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: "
            f"{len(data)}\r\n\r\n"
        )
        self._writer.write(head.encode() + data)
        parser_done = False

        class Sink:
            def on_message_complete(self) -> None:
                nonlocal parser_done
                parser_done = True

        parser = httptools.HttpResponseParser(Sink())
        while not parser_done:
            parser.feed_data(await self._reader.read(65536))
        return int(parser.get_status_code())

    async def drain(self, path: str) -> int:
        """Read a watch until the connection is closed; returns bytes."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        total = 0
        while chunk := await self._reader.read(1 << 20):
            total += len(chunk)
        return total

    def close(self) -> None:
        self._writer.close()


async def _lives(port: int, names: asyncio.Queue[str], inner_kubelet: bool) -> int:
    connection = _Connection(port)
    await connection.open()
    base, strategic = "/api/v1/namespaces/default/pods", "application/strategic-merge-patch+json"
    wrong = 0
    while not names.empty():
        name = names.get_nowait()
        target = {
            "metadata": {"name": name, "annotations": {"topolog/decision": "x" * 120}},
            "target": {"name": "node-1"},
        }
        codes = [
            await connection.call(
                "POST",
                base,
                {"metadata": {"name": name, "labels": {"app": "bench"}}, "spec": _SPEC},
            )
        ]
        codes.append(await connection.call("POST", f"{base}/{name}/binding", target))
        if not inner_kubelet:
            codes.append(
                await connection.call(
                    "PATCH", f"{base}/{name}/status", {"status": _starting()}, strategic
                )
            )
            codes.append(
                await connection.call(
                    "PATCH", f"{base}/{name}/status", {"status": _running()}, strategic
                )
            )
        codes.append(await connection.call("DELETE", f"{base}/{name}"))
        if not inner_kubelet:
            codes.append(
                await connection.call("DELETE", f"{base}/{name}", {"gracePeriodSeconds": 0})
            )
        wrong += sum(1 for code in codes if code >= 300)
    connection.close()
    return wrong


async def _load(
    port: int, pods: int, watchers: int, workers: int, inner_kubelet: bool
) -> tuple[float, int]:
    watches = []
    for index in range(watchers):
        connection = _Connection(port)
        await connection.open()
        selector = "&fieldSelector=spec.nodeName%3Dnode-1" if index == watchers - 1 else ""
        watches.append(asyncio.create_task(connection.drain(f"/api/v1/pods?watch=1{selector}")))
    await asyncio.sleep(0.2)
    names: asyncio.Queue[str] = asyncio.Queue()
    for index in range(pods):
        names.put_nowait(f"bench-{index:06d}")
    began = time.perf_counter()
    wrong = sum(await asyncio.gather(*(_lives(port, names, inner_kubelet) for _ in range(workers))))
    wall_s = time.perf_counter() - began
    await asyncio.sleep(0.3)
    for watch in watches:
        watch.cancel()
    await asyncio.gather(*watches, return_exceptions=True)
    return wall_s, wrong


def _measure(pods: int, watchers: int, workers: int, inner_kubelet: bool) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, inner_kubelet), daemon=True)
    process.start()
    port = int(ours.recv())
    usage = psutil.Process(process.pid)
    times_before = usage.cpu_times()
    wall_s, wrong = uvloop.run(_load(port, pods, watchers, workers, inner_kubelet))
    times_after = usage.cpu_times()
    memory = usage.memory_info().rss
    ours.send("stop")
    process.join(10)
    cpu_s = times_after.user + times_after.system - times_before.user - times_before.system
    return {
        "kubelet": "in process" if inner_kubelet else "over HTTP",
        "pods": pods,
        "watchers": watchers,
        "pods_per_s": round(pods / wall_s, 1),
        "server_cpu_ms_per_pod": round(1000 * cpu_s / pods, 3),
        "server_rss_mb": round(memory / 1e6, 1),
        "unexpected_answers": wrong,
    }


def main(argv: list[str]) -> int:
    """Run both forms and print a line for each. Return 1 if the server refused a request."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench simapi", description=__doc__)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--watchers", type=int, default=4)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    failed = False
    for inner in (False, True):
        result = _measure(options.pods, options.watchers, options.workers, inner)
        failed = failed or bool(result["unexpected_answers"])
        if options.json:
            print(json.dumps(result))
        else:
            print("  ".join(f"{key} {value}" for key, value in result.items()))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
