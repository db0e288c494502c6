"""A container runtime whose answers a test decides: real gRPC on a unix socket, `info` in
containerd's and CRI-O's shapes.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from services.exporter.cri import cri_pb2 as pb

UID = "0c2f5c5e_9d7d_4a0e"


def cgroup(qos: str, container_id: str, prefix: str = "cri-containerd") -> str:
    """As the systemd driver names it."""
    return f"kubepods-{qos + '-' if qos else ''}pod{UID}.slice:{prefix}:{container_id}"


def spec(
    cgroups_path: str, cpus: str = "", mems: str = "", shares: int = 2, **more: Any
) -> dict[str, Any]:
    """An OCI runtime spec; `more`: memory (bytes), hugepages ({size: bytes}), env, devices ([(path,
    major, minor)]).
    """
    resources = {
        "devices": [{"allow": False, "access": "rwm"}],
        "memory": {"limit": more.get("memory", 0)},
        "cpu": {
            "shares": shares,
            "quota": 0,
            "period": 100000,
            **({"cpus": cpus} if cpus else {}),
            **({"mems": mems} if mems else {}),
        },
        "hugepageLimits": [
            {"pageSize": size, "limit": limit} for size, limit in more.get("hugepages", {}).items()
        ],
    }
    devices = [
        {"path": path, "type": "c", "major": major, "minor": minor}
        for path, major, minor in more.get("devices", ())
    ]
    linux = {
        "cgroupsPath": cgroups_path,
        "resources": resources,
        "devices": devices,
        "namespaces": [{"type": "pid"}],
    }
    return {
        "ociVersion": "1.1.0",
        "process": {"env": ["PATH=/bin", *more.get("env", ())], "cwd": "/"},
        "linux": linux,
    }


def containerd(made: dict[str, Any]) -> dict[str, str]:
    """Verbose info as containerd gives it."""
    config = {
        "metadata": {"name": "c"},
        "image": {"image": "sha256:1"},
        "linux": {"resources": {"cpu_period": 100000}},
    }
    told = {"sandboxID": "s", "pid": 4242, "removing": False, "snapshotKey": "k", "snapshotter": "overlayfs",
            "runtimeType": "io.containerd.runc.v2", "runtimeOptions": {"systemd_cgroup": True}, "config": config}  # fmt: skip
    return {"info": json.dumps({**told, "runtimeSpec": made})}


def crio(made: dict[str, Any]) -> dict[str, str]:
    """Verbose info as CRI-O gives it."""
    return {
        "info": json.dumps(
            {"sandboxID": "s", "pid": 4242, "runtimeSpec": made, "privileged": False}
        )
    }


class Runtime:
    """Answers with `pods`: (namespace, name) -> container name -> its `info`, None for a container
    that just ended.
    """

    def __init__(self, socket: Path, name: str = "containerd", version: str = "1.7.27") -> None:
        self.socket = socket
        self.pods: dict[tuple[str, str], dict[str, dict[str, str] | None]] = {}
        self.statuses = 0
        self.hang = False
        self._about = (name, version)
        self._server: grpc.aio.Server | None = None

    async def start(self) -> Runtime:
        self._server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        methods: dict[str, tuple[Any, Any]] = {
            "Version": (self._version, pb.VersionRequest),
            "ListPodSandbox": (self._sandboxes, pb.ListPodSandboxRequest),
            "ListContainers": (self._containers, pb.ListContainersRequest),
            "ContainerStatus": (self._status, pb.ContainerStatusRequest),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                call, request.FromString, lambda answer: answer.SerializeToString()
            )
            for name, (call, request) in methods.items()
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", handlers),)
        )
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()
        return self

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
        self.socket.unlink(missing_ok=True)

    async def _version(self, request: pb.VersionRequest, context: object) -> pb.VersionResponse:
        return pb.VersionResponse(runtime_name=self._about[0], runtime_version=self._about[1])

    async def _sandboxes(
        self, request: pb.ListPodSandboxRequest, context: object
    ) -> pb.ListPodSandboxResponse:
        """A runtime that does not filter must not matter either."""
        if self.hang:
            await asyncio.sleep(60)
        answer = pb.ListPodSandboxResponse()
        for space, name in self.pods:
            answer.items.add(
                id=f"s/{space}/{name}",
                metadata=pb.PodSandboxMetadata(namespace=space, name=name, uid=UID),
            )
        answer.items.add(
            id="old",
            state=pb.SANDBOX_NOTREADY,
            metadata=pb.PodSandboxMetadata(namespace="default", name="ended"),
        )
        return answer

    async def _containers(
        self, request: pb.ListContainersRequest, context: object
    ) -> pb.ListContainersResponse:
        answer = pb.ListContainersResponse()
        for (space, pod), containers in self.pods.items():
            for name in containers:
                meta = pb.ContainerMetadata(name=name)
                home = f"s/{space}/{pod}"
                answer.containers.add(
                    id=f"{home}/{name}",
                    pod_sandbox_id=home,
                    metadata=meta,
                    state=pb.CONTAINER_RUNNING,
                )
        answer.containers.add(
            id="x",
            pod_sandbox_id="old",
            metadata=pb.ContainerMetadata(name="c"),
            state=pb.CONTAINER_EXITED,
        )
        return answer

    async def _status(
        self, request: pb.ContainerStatusRequest, context: grpc.aio.ServicerContext
    ) -> pb.ContainerStatusResponse:
        self.statuses += 1
        assert request.verbose
        _, space, pod, name = request.container_id.split("/")
        info = self.pods[space, pod][name]
        if info is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, "an error occurred when try to find container: not found"
            )
        return pb.ContainerStatusResponse(info=info)
