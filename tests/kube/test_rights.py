"""The table of rights is the calls of the client: each call of the port is made once against a
server that writes down which right it would have asked for, and the table must hold exactly those.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from services.scheduler.watch.kinds import KINDS
from shared.kube import rights
from shared.kube.client import KubeClient
from shared.kube.port import Kind
from shared.kube.rights import Right

LIST_KINDS = {
    "pods": "PodList",
    "p": "Pod",
    "n": "Node",
    "nodes": "NodeList",
    "namespaces": "NamespaceList",
    "persistentvolumes": "PersistentVolumeList",
    "persistentvolumeclaims": "PersistentVolumeClaimList",
    "csinodes": "CSINodeList",
    "deviceclasses": "DeviceClassList",
    "podgroups": "PodGroupList",
    "devices": "DeviceList",
    "reservations": "ReservationList",
    "noderesourcetopologies": "NodeResourceTopologyList",
    "resourceslices": "ResourceSliceList",
    "poddisruptionbudgets": "PodDisruptionBudgetList",
}
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "PUT": "update"}


def right_of(method: str, path: str, watching: bool) -> Right:
    """Return the right that the API server's authorizer checks for a request (kubernetes.io,
    authorization: request attributes).
    """
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource = "/".join([rest[0], *rest[2:3]])
    read = "watch" if watching else ("get" if len(rest) > 1 else "list")
    return Right(group, resource, VERBS.get(method, read))


class Authorizer:
    """A server that answers every request with 200 and records the needed rights."""

    def __init__(self) -> None:
        self.asked: set[Right] = set()

    async def answer(self, request: Request) -> Response:
        self.asked.add(right_of(request.method, request.url.path, "watch" in request.query_params))
        if "watch" in request.query_params:
            return Response(b"")
        kind = LIST_KINDS[request.url.path.rsplit("/", 1)[-1]] if request.method == "GET" else ""
        return JSONResponse({"kind": kind, "items": [], "metadata": {"resourceVersion": "1"}})


@pytest.fixture
async def authorizer() -> AsyncIterator[tuple[Authorizer, KubeClient]]:
    made = Authorizer()
    methods = ["GET", *VERBS]
    server = uvicorn.Server(
        uvicorn.Config(
            Starlette(routes=[Route("/{path:path}", made.answer, methods=methods)]),
            port=0,
            log_config=None,
        )
    )
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    kube = KubeClient(f"http://127.0.0.1:{port}")
    yield made, kube
    await kube.close()
    server.should_exit = True
    await serving


async def follow(kube: KubeClient, kind: Kind) -> None:
    await kube.list(kind)
    with contextlib.suppress(Exception):
        async for _seen in kube.watch(kind, "1"):
            pass


# The calls of each service. The extra right of an apply is `create`: it makes an object that is not
# there.
CALLS: dict[str, Callable[[KubeClient], list[Awaitable[object]]]] = {
    "scheduler": lambda kube: [
        *(follow(kube, kind) for kind in KINDS),
        kube.get_pod("ns", "p"),
        kube.get_node("n"),
    ],
    "binder": lambda kube: [
        kube.get_pod("ns", "p"),
        kube.bind("ns", "p", "u", "n", {}),
        kube.evict("ns", "p", "u"),
        kube.patch_pod_status("ns", "p", {}),
        kube.create_event("ns", {}),
    ],
    "topology-store": lambda kube: [
        follow(kube, "noderesourcetopologies"),
        follow(kube, "noderesourcetopologies.v1alpha1"),
        kube.apply_topology("n", {}),
        kube.delete_topology("n", "u", "1"),
    ],
    "exporter's objects": lambda kube: [kube.get_node("n"), kube.apply_topology("n", {})],
    "exporter's devices": lambda kube: [kube.apply_device("n", {})],
    "exporter's readiness": lambda kube: [kube.patch_pod_status("ns", "p", {})],
    "exporter's slices": lambda kube: [kube.resource_slices("n")],
    "NATS' logins": lambda kube: [kube.review_token("t", "a")],
    "defragment": lambda kube: [kube.list("poddisruptionbudgets")],
    "reservations": lambda kube: [kube.patch_reservation_status("r", {})],
    "startup taint": lambda kube: [kube.patch_node("n", [])],
}


@pytest.mark.parametrize("service", CALLS)
async def test_each_service_has_the_rights_of_its_calls_and_no_others(
    service: str, authorizer: tuple[Authorizer, KubeClient]
) -> None:
    made, kube = authorizer
    for call in CALLS[service](kube):
        await call
    needed = made.asked
    if Right(rights.TOPOLOGY_GROUP, "noderesourcetopologies", "patch") in needed:
        needed.add(Right(rights.TOPOLOGY_GROUP, "noderesourcetopologies", "create"))
    if Right("scheduling.koordinator.sh", "devices", "patch") in needed:
        needed.add(Right("scheduling.koordinator.sh", "devices", "create"))
    optional = {
        "defragment": rights.DEFRAGMENT,
        "reservations": rights.RESERVATIONS,
        "startup taint": rights.STARTUP_TAINT,
        "exporter's objects": rights.EXPORTER_OBJECTS,
        "exporter's devices": rights.EXPORTER_DEVICES,
        "exporter's readiness": rights.EXPORTER_READINESS,
        "exporter's slices": rights.EXPORTER_SLICES,
        "NATS' logins": rights.NATS_LOGINS,
    }
    assert {**rights.BY_SERVICE, **optional}[service] == needed
