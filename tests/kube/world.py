"""A Kubernetes API server behind the production client, and a namespace of its own to work in."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any
from urllib.parse import parse_qsl

from shared.kube.client import KubeClient
from shared.kube.port import Answer, Kind, Lost, Object, WatchEvent


class World:
    """One server and one namespace. `streams` is set if the server sends lists as initial events of
    a watch.
    """

    def __init__(self, kube: KubeClient) -> None:
        self.kube = kube
        self.streams = True
        self.namespace = f"topolog-contract-{secrets.token_hex(4)}"

    async def open(self) -> World:
        """Create the namespace."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        assert (await self.ask("POST", "/api/v1/namespaces", body)).ok
        return self

    async def close(self) -> None:
        """Remove the namespace with all in it, and disconnect."""
        for pod in await self.mine():
            await self.ask(
                "DELETE", f"{self.path('pods')}/{pod['metadata']['name']}?gracePeriodSeconds=0"
            )
        await self.ask("DELETE", f"/api/v1/namespaces/{self.namespace}")
        await self.kube.close()

    def path(self, resource: str, api: str = "/api/v1") -> str:
        return f"{api}/namespaces/{self.namespace}/{resource}"

    async def ask(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        """Change an object at the server without the client under test. The answer is always
        definite.
        """
        path, _, query = path.partition("?")
        answer = await self.kube._call(
            method, path, params=dict(parse_qsl(query)), body=body, content_type=content_type
        )
        assert isinstance(answer, Answer), answer
        return answer

    async def pod(self, name: str = "p", **spec: Any) -> Object:
        """Create a pod that no scheduler places. A real server may not have its service account
        yet.
        """
        container = {"name": "c", "image": "registry.example/pause:1"}
        spec = {
            "schedulerName": "topolog-contract",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **spec,
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": spec,
        }
        for _ in range(50):
            answer = await self.ask("POST", self.path("pods"), body)
            if answer.ok or "serviceaccount" not in answer.message:
                break
            await asyncio.sleep(0.1)
        assert answer.ok, answer
        return answer.body

    async def get(self, name: str = "p") -> Object:
        answer = await self.kube.get_pod(self.namespace, name)
        assert isinstance(answer, Answer)
        assert answer.ok, answer
        return answer.body

    async def bind(
        self, pod: Object, node: str = "n1", uid: str = "", **annotations: str
    ) -> Answer:
        """Bind a pod that was created here."""
        metadata = pod["metadata"]
        answer = await self.kube.bind(
            self.namespace, metadata["name"], uid or metadata["uid"], node, annotations
        )
        assert not isinstance(answer, Lost), answer
        return answer

    async def mine(self) -> list[Object]:
        """Return the pods of this namespace, as the client lists them."""
        listed = await self.kube.list("pods")
        return [pod for pod in listed.items if pod["metadata"]["namespace"] == self.namespace]

    async def see(self, kind: Kind, version: str, count: int) -> list[WatchEvent]:
        """Return the first `count` watch events of this namespace after a version, without
        bookmarks.
        """
        events: list[WatchEvent] = []
        async with asyncio.timeout(60):
            async for seen in self.kube.watch(kind, version):
                if (
                    seen.type != "BOOKMARK"
                    and seen.object["metadata"].get("namespace") == self.namespace
                ):
                    events.append(seen)
                if len(events) == count:
                    return events
        raise AssertionError(f"the watch ended after {len(events)} of {count} events")
