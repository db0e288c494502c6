"""Replay recorded requests against the simulated API server over real HTTP and compare the answers.

Not compared: uids, versions, times, generated names and continue tokens (replaced by marks wherever
they occur, also in texts), managedFields, and additions of the recorded cluster's ServiceAccount
admission plugin to pods.
"""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import httpx2

from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.serve import ApiServer

HERE = Path(__file__).parent / "recordings"
Json = dict[str, Any]

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_VERSION_IN_TEXT = re.compile(r"(object meta: |in record \(|current: |resource version: \d+ \()\d+")
_SUFFIX = re.compile(r"\b(s1\.|gen-)[a-z0-9]{5}\b")
_DIFF = re.compile(r"(if it was previously negative\)).*", re.DOTALL)
_MARKED = {"uid": "UID", "resourceVersion": "VERSION", "continue": "TOKEN"}


@cache
def recordings(section: str) -> dict[str, Json]:
    """Return all recordings of a section by name."""
    with gzip.open(HERE / f"{section}.json.gz") as file:
        loaded: dict[str, Json] = json.load(file)
    return loaded


def normal(value: Any) -> Any:
    """Return a value without the parts that differ from run to run."""
    if isinstance(value, dict):
        return {
            key: _MARKED.get(key) if _is_mark(key, item) else normal(item)
            for key, item in _kept(value).items()
        }
    if isinstance(value, list):
        return [normal(item) for item in value if not _is_token_volume(item)]
    if isinstance(value, str):
        text = _TIME.sub("TIME", _UUID.sub("UID", value))
        return _DIFF.sub(r"\1", _SUFFIX.sub(r"\1SUFFIX", _VERSION_IN_TEXT.sub(r"\1N", text)))
    return value


def _is_mark(key: str, item: Any) -> bool:
    return key in _MARKED and isinstance(item, str) and bool(item)


def _kept(value: Json) -> Json:
    kept = {key: item for key, item in value.items() if key != "managedFields"}
    for field in ("volumes", "volumeMounts"):
        if field in kept and all(_is_token_volume(item) for item in kept[field] or []):
            del kept[field]
    return kept


def _is_token_volume(item: Any) -> bool:
    return isinstance(item, dict) and str(item.get("name", "")).startswith("kube-api-access-")


def differences(ours: Any, real: Any, path: str = "") -> list[str]:
    """Yield a line per difference of two values."""
    if isinstance(ours, dict) and isinstance(real, dict):
        differing: list[str] = []
        for key in sorted({*ours, *real}):
            if key not in ours:
                differing.append(f"{path}.{key}: absent, real {real[key]!r}")
            elif key not in real:
                differing.append(f"{path}.{key}: {ours[key]!r}, real absent")
            else:
                differing += differences(ours[key], real[key], f"{path}.{key}")
        return differing
    if isinstance(ours, list) and isinstance(real, list) and len(ours) == len(real):
        pairs = enumerate(zip(ours, real, strict=True))
        return [
            line
            for index, (left, right) in pairs
            for line in differences(left, right, f"{path}[{index}]")
        ]
    return [] if ours == real else [f"{path}: {ours!r}, real {real!r}"]


class Api:
    """A running simulated API server and a client for it."""

    def __init__(self, store: ClusterStore, server: ApiServer, client: httpx2.AsyncClient) -> None:
        self.store = store
        self.server = server
        self.client = client

    async def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        """Send a request; dict and list bodies are sent as JSON."""
        content = (
            body.encode()
            if isinstance(body, str)
            else (None if body is None else json.dumps(body).encode())
        )
        sent = {
            "Accept": "application/json",
            **({"Content-Type": "application/json"} if content is not None else {}),
        }
        return await self.client.request(
            method, path, content=content, headers={**sent, **(headers or {})}
        )

    async def replay(
        self, section: str, name: str, swaps: dict[str, str] | None = None
    ) -> httpx2.Response:
        """Send a recorded request; `swaps` replaces recorded uids and versions by live ones."""
        request = recordings(section)[name]["request"]
        text = json.dumps([request["path"], request.get("body")])
        for old, new in (swaps or {}).items():
            text = text.replace(old, new)
        path, body = json.loads(text)
        headers = {
            key: value
            for key, value in request["headers"].items()
            if key in ("Accept", "Content-Type")
        }
        if "Accept" not in headers:
            headers["Accept"] = ""
        return await self.ask(request["method"], path, body, headers)

    async def same(
        self, section: str, name: str, swaps: dict[str, str] | None = None
    ) -> httpx2.Response:
        """Replay a request and demand the recorded answer."""
        answer = await self.replay(section, name, swaps)
        wanted = recordings(section)[name]["response"]
        assert answer.status_code == wanted["status"], (name, answer.text[:2000])
        unlike = differences(normal(body_of(answer)), normal(wanted["body"]))
        assert not unlike, f"{name}: {unlike}"
        for header in ("Warning", "Retry-After"):
            assert answer.headers.get(header) == wanted["headers"].get(header), (name, header)
        assert answer.headers["Content-Type"] == wanted["headers"]["Content-Type"], name
        return answer

    async def pod(self, name: str, namespace: str = "apirec", **more: Any) -> Json:
        """Create a pod like the recorder's; `more` goes into metadata (labels..) or, under `spec`,
        into the spec.
        """
        spec: Json = {
            "schedulerName": "apirec-none",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "c",
                    "image": "localhost/tool:1",
                    "imagePullPolicy": "Never",
                    "args": ["sleep"],
                }
            ],
            **more.pop("spec", {}),
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **more}, "spec": spec}
        answer = await self.ask("POST", f"/api/v1/namespaces/{namespace}/pods", body)
        assert answer.status_code == 201, answer.text
        made: Json = answer.json()
        return made

    async def bound_pod(self, name: str, node: str = "rec-n3", **more: Any) -> Json:
        """Create a bound pod."""
        created_pod = await self.pod(name, **more)
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        answer = await self.ask("POST", f"/api/v1/namespaces/apirec/pods/{name}/binding", body)
        assert answer.status_code == 201, answer.text
        return created_pod

    async def set_status(self, name: str, status: Json) -> None:
        """Merge-patch a pod's status."""
        headers = {"Content-Type": "application/merge-patch+json"}
        path = f"/api/v1/namespaces/apirec/pods/{name}/status"
        answer = await self.ask("PATCH", path, {"status": status}, headers)
        assert answer.status_code == 200, answer.text

    async def watch(self, path: str) -> list[Json]:
        """Return all events of a watch that ends by its timeoutSeconds."""
        answer = await self.ask("GET", path)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]


def body_of(answer: httpx2.Response) -> Any:
    """Return the body as JSON, or as text if it is no JSON."""
    try:
        return answer.json()
    except ValueError:
        return answer.text
