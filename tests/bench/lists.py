"""Bench of lists: what many pods cost the client in memory, whole, in pages and as a stream; and
what claims cost the fold.

One JSON line. A server in a process of its own makes the pods as they are asked for. `whole_mib`,
`pages_mib`, `streamed_mib`: by how much the resident memory of a fresh process grew at most while
it read them all and kept the identities only (`whole` keeps the objects, as lists did before);
`..._s` by the clock. `claims_mib`: resident memory of the scheduler's fold of surroundings with as
many bound claims as pods, each with a volume of its own that one of 5,000 nodes reaches.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import psutil
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from services.scheduler.state.cluster_objects import ClusterObjects
from services.scheduler.watch.kinds import identity
from shared.domain.pod import NodeSelectorTerm
from shared.events.surroundings_events import ClaimObserved, VolumeObserved
from shared.kube.client import KubeClient
from shared.kube.initial_events import END
from tests.fixtures.ports import free_port

NODES = 5_000
LINES = 500


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench lists", description=__doc__)
    parser.add_argument("--pods", type=int, default=150_000)
    options = parser.parse_args(argv)
    port = free_port()
    server = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(port, options.pods), daemon=True
    )
    server.start()
    figures: dict[str, Any] = {"pods": options.pods}
    for how in ("whole", "pages", "streamed"):
        figures |= {
            f"{how}_{name}": value
            for name, value in _apart(_list, f"http://127.0.0.1:{port}", how).items()
        }
    server.terminate()
    figures["claims_mib"] = _apart(_claims, options.pods)["mib"]
    print(json.dumps(figures), flush=True)


def _apart(work: Callable[..., dict[str, float]], *args: Any) -> dict[str, float]:
    """Run the work in a new process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_report, args=(theirs, work, args))
    child.start()
    figures: dict[str, float] = ours.recv()
    child.join()
    return figures


def _report(pipe: Connection, work: Callable[..., dict[str, float]], args: tuple[Any, ...]) -> None:
    pipe.send(work(*args))


def _mib() -> float:
    return float(psutil.Process().memory_info().rss) / (1 << 20)


def _list(url: str, how: str) -> dict[str, float]:
    return asyncio.run(_listing(url, how))


async def _listing(url: str, how: str) -> dict[str, float]:
    kube = KubeClient(url)
    while True:
        try:
            await kube.list("nodes")
            break
        except Exception:  # The server is still starting.
            await asyncio.sleep(0.1)
    gc.collect()
    mib_before = most = _mib()
    begun, present, kept = time.perf_counter(), set[str](), list[Any]()
    async for part in kube.pages("pods", streamed=how == "streamed"):
        present.update(identity("pods", obj) for obj in part.items)
        kept += part.items if how == "whole" else ()
        most = max(most, _mib())
    taken_s = time.perf_counter() - begun
    assert not (how == "streamed" and kube._in_pages), "it was streamed"
    await kube.close()
    return {"mib": round(most - mib_before, 1), "s": round(taken_s, 1), "items": len(present)}


def _claims(count: int) -> dict[str, float]:
    gc.collect()
    cluster_objects, mib_before = ClusterObjects(), _mib()
    for number in range(count):
        terms = (
            NodeSelectorTerm(
                expressions=(
                    ("kubernetes.io/hostname", "In", (f"node-{number % NODES:05}.example",)),
                )
            ),
        )
        volume = VolumeObserved(
            f"pvc-{number:036}", str(number), "csi.example", f"vol-{number:017}", terms
        )
        claim = ClaimObserved(
            f"namespace-{number % 100}/data-database-{number}", volume.name, str(number)
        )
        for event in (volume, claim):  # as they come out of the log: no text is shared
            cluster_objects.fold(msgspec.json.decode(msgspec.json.encode(event), type=type(event)))
    gc.collect()
    return {"mib": round(_mib() - mib_before, 1)}


# -- the server
# --------------------------------------------------------------------------------------------------


def _pod(number: int) -> dict[str, Any]:
    amounts = {"cpu": "2", "memory": "1Gi"}
    mounts = [
        {
            "name": "kube-api-access",
            "readOnly": True,
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        }
    ]
    environment = [{"name": f"SETTING_{at}", "value": f"value-{number}-{at}"} for at in range(8)]
    conditions = [
        {"type": kind, "status": "True"}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    resources = {"requests": amounts, "limits": amounts}
    container = {
        "name": "main",
        "image": "registry.invalid/app:1",
        "resources": resources,
        "env": environment,
    }
    return {
        "metadata": {
            "name": f"app-{number:07}",
            "namespace": f"namespace-{number % 100}",
            "uid": f"{number:08}-2b4d-46bd-9f36-017a4126cd45",
            "resourceVersion": str(number + 1),
            "labels": {"app": f"app-{number % 500}", "pod-template-hash": "5b6c"},
        },
        "spec": {
            "nodeName": f"node-{number % NODES:05}",
            "containers": [{**container, "volumeMounts": mounts}],
        },
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "podIP": "10.0.0.1",
            "hostIP": "10.0.0.2",
        },
    }


def _serve(port: int, count: int) -> None:
    async def pods(request: Request) -> Response:
        if request.query_params.get("watch"):
            return StreamingResponse(_stream(count), media_type="application/json")
        begin, limit = (
            int(request.query_params.get("continue") or 0),
            int(request.query_params["limit"]),
        )
        end = min(count, begin + limit)
        metadata = {"resourceVersion": "1000000", **({"continue": str(end)} if end < count else {})}
        items = [_pod(number) for number in range(begin, end)]
        return Response(
            msgspec.json.encode({"kind": "PodList", "metadata": metadata, "items": items})
        )

    async def nodes(_request: Request) -> Response:
        return Response(
            msgspec.json.encode(
                {"kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": []}
            )
        )

    app = Starlette(routes=[Route("/api/v1/pods", pods), Route("/api/v1/nodes", nodes)])
    uvicorn.run(app, port=port, log_config=None)


async def _stream(count: int) -> AsyncIterator[bytes]:
    for begin in range(0, count, LINES):
        events = (
            {"type": "ADDED", "object": _pod(number)}
            for number in range(begin, min(count, begin + LINES))
        )
        yield b"".join(msgspec.json.encode(event) + b"\n" for event in events)
    mark = {"resourceVersion": "1000000", "annotations": {END: "true"}}
    yield (
        msgspec.json.encode({"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": mark}})
        + b"\n"
    )
