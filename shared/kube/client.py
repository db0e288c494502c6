"""The Kubernetes client: raw JSON over lightkube's authenticated connection, calls by a lean transport, watches by its own.

lightkube reads the kubeconfig (tokens, exec plugins, TLS) and builds the HTTP client. Its typed calls are not used: its
`create` of a Binding binds and then raises on the Status that the server answers, and its watch reconnects for ever
(lightkube 1.0.1, measured).
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
import msgspec
import yaml
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import Cluster, Context, User
from lightkube.core.exceptions import ConfigError

from shared.kube.credentials import CredentialsError, credentials
from shared.kube.lists import page_problem
from shared.kube.port import Answer, Kind, KubeUnavailableError, Listed, Lost, Object, Seen, WatchExpiredError
from shared.kube.rights import Right
from shared.kube.transport import LeanTransport
from shared.telemetry.reasons import plain

PAGE_LIMIT = 500
MAX_PAGES = 10_000
WATCH_TIMEOUT_S = 300
CALL_TIMEOUT_S = 10.0
FIELD_MANAGER = "topolog"
EVICT_TIMEOUT_S = 35.0
"""The eviction of a Pending pod with another uid is answered 409 after 10.0 s (Kubernetes 1.36)."""
LONGEST_RETRY_AFTER_S = 300.0

# What lightkube lets through of a file that is absent, no YAML, or YAML of another shape.
_UNUSABLE = (ConfigError, OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError)

_PATHS: dict[Kind, str] = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "noderesourcetopologies": "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
    "noderesourcetopologies.v1alpha1": "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
    "poddisruptionbudgets": "/apis/policy/v1/poddisruptionbudgets",
}


class _WatchLine(msgspec.Struct):
    type: str
    object: Object


_watch_line = msgspec.json.Decoder(_WatchLine)
_json_object: msgspec.json.Decoder[Object] = msgspec.json.Decoder(Object)
_NO_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def configuration(kubeconfig: str) -> SingleConfig:
    """`kubeconfig` is a file, a bare `http://` URL (no credentials, as `kubectl --server`), or empty for in-cluster.

    Raises KubeUnavailableError that names the file and what is wrong with it.
    """
    if kubeconfig.startswith(("http://", "https://")):
        context = Context(cluster="server", user="anonymous")
        cluster = Cluster(server=_checked_address(kubeconfig, "the Kubernetes address"))
        return SingleConfig(context_name="server", context=context, cluster=cluster, user=User())
    try:
        found = (KubeConfig.from_file(Path(kubeconfig)) if kubeconfig else KubeConfig.from_service_account()).get()
    except _UNUSABLE as error:
        where = f"kubeconfig {kubeconfig!r}" if kubeconfig else "this pod's service account"
        raise KubeUnavailableError(
            f"{where} cannot be used: {_unusable(kubeconfig, error)}; name a kubeconfig file or the http:// URL of a server"
        ) from error
    if found is None:
        raise KubeUnavailableError(f"kubeconfig {kubeconfig!r} has no usable context; set current-context in it")
    _checked_address(found.cluster.server, f"the server of kubeconfig {kubeconfig!r}" if kubeconfig else "the API server")
    return found


def _checked_address(url: str, what: str) -> str:
    """The URL without a slash at its end. Raises KubeUnavailableError: `http://:18001` would go to any host that answers to
    no name, or to none."""
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and parts.port != 0 and parts.scheme in ("http", "https")
    except ValueError:
        good = False
    if not good:
        raise KubeUnavailableError(f"{what} is {url!r}, which names no host and port; write http://HOST:PORT")
    return url.rstrip("/")


def _unusable(kubeconfig: str, error: BaseException) -> str:
    if kubeconfig and not Path(kubeconfig).exists():
        return "there is no such file"
    if kubeconfig and Path(kubeconfig).is_dir():
        return "it is a folder"
    return plain(error)


def _lean_client(tls: ssl.SSLContext | None, auth: httpx2.Auth | None, max_connections: int) -> httpx2.AsyncClient:
    transport = LeanTransport(max_connections, tls)
    return httpx2.AsyncClient(auth=auth, transport=transport, trust_env=False)


def _tls(config: SingleConfig) -> ssl.SSLContext | None:
    if not config.cluster.server.startswith("https://"):
        return None
    return client_adapter.verify_cluster(config.cluster, config.user or User(), config.abs_file)


def _trusted(config: SingleConfig, kubeconfig: str) -> tuple[ssl.SSLContext | None, httpx2.Auth | None]:
    """TLS and credentials. Raises KubeUnavailableError that names what cannot be used."""
    try:
        tls = _tls(config)
        return tls, credentials(config.user, tls, config.fname.parent if config.fname else None)
    except (*_UNUSABLE, ssl.SSLError) as error:
        where = f"kubeconfig {kubeconfig!r}" if kubeconfig else "this pod's service account"
        raise KubeUnavailableError(f"certificates of {where} cannot be used: {plain(error)}; correct the file") from error
    except CredentialsError as error:
        raise KubeUnavailableError(f"kubeconfig {kubeconfig!r}: {error}") from error


def _behind_proxy(config: SingleConfig) -> bool:
    """Whether the environment names a proxy for this server: then the general transport goes through it."""
    parts = urlsplit(config.cluster.server)
    return parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")


class KubeClient:
    """`shared.kube.port.Kube` over HTTP."""

    def __init__(self, kubeconfig: str, max_connections: int = 64) -> None:
        config = configuration(kubeconfig)
        self._server = config.cluster.server.rstrip("/")
        tls, auth = _trusted(config, kubeconfig)
        timeout = httpx2.Timeout(CALL_TIMEOUT_S)
        self._streams = httpx2.AsyncClient(base_url=self._server, auth=auth, timeout=timeout, verify=tls or True)
        self._http = self._streams if _behind_proxy(config) else _lean_client(tls, auth, max_connections)

    async def list(self, kind: Kind) -> Listed:
        items: list[Object] = []
        params: dict[str, str] = {"limit": str(PAGE_LIMIT)}
        for _ in range(MAX_PAGES):
            body = await self._page(kind, params)
            items.extend(body["items"])
            token = body["metadata"].get("continue")
            if not token:
                return Listed(items, body["metadata"]["resourceVersion"])
            params["continue"] = token
        raise KubeUnavailableError(f"list of {kind} from {self._server} does not end after {MAX_PAGES} pages")

    async def _page(self, kind: Kind, params: dict[str, str]) -> Object:
        answer = await self._call("GET", _PATHS[kind], params=params)
        if isinstance(answer, Lost) or not answer.ok:
            raise KubeUnavailableError(f"list of {kind} from {self._server} failed: {_describe(answer)}")
        if problem := page_problem(kind, answer.body):
            shown = f": {answer.message[:60]!r}" if answer.message else ""
            raise KubeUnavailableError(f"list of {kind} from {self._server} is none: {problem}{shown}; is a proxy in between?")
        return answer.body

    async def watch(self, kind: Kind, resource_version: str) -> AsyncIterator[Seen]:
        params = {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_TIMEOUT_S),
        }
        timeout = httpx2.Timeout(CALL_TIMEOUT_S, read=WATCH_TIMEOUT_S + CALL_TIMEOUT_S)
        try:
            async with self._streams.stream("GET", _PATHS[kind], params=params, timeout=timeout) as response:
                if response.status_code == 410:
                    raise WatchExpiredError(kind)
                if response.status_code != 200:
                    raise KubeUnavailableError(f"watch of {kind} from {self._server}: HTTP {response.status_code}")
                async for line in _lines(response.aiter_bytes()):
                    yield _seen(kind, line)
        except httpx2.HTTPError as error:
            raise KubeUnavailableError(f"watch of {kind} from {self._server} broke: {plain(error)}") from error

    async def get_pod(self, namespace: str, name: str) -> Answer | Lost:
        return await self._call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")

    async def get_node(self, name: str) -> Answer | Lost:
        return await self._call("GET", f"{_PATHS['nodes']}/{name}")

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: dict[str, str]) -> Answer | Lost:
        metadata = {"name": name, "namespace": namespace, "uid": uid, "annotations": annotations}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        return await self._call("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body=body)

    async def evict(self, namespace: str, name: str, uid: str, dry_run: bool = False) -> Answer | Lost:
        options: Object = {"preconditions": {"uid": uid}, **({"dryRun": ["All"]} if dry_run else {})}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        return await self._call("POST", path, body=body, timeout_s=EVICT_TIMEOUT_S)

    async def patch_pod_status(self, namespace: str, name: str, patch: Object) -> Answer | Lost:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        return await self._call("PATCH", path, body=patch, content_type="application/strategic-merge-patch+json")

    async def create_event(self, namespace: str, event: Object) -> Answer | Lost:
        return await self._call("POST", f"/api/v1/namespaces/{namespace}/events", body=event)

    async def apply_topology(self, name: str, topology: Object, force: bool = True) -> Answer | Lost:
        params = {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"}
        path = f"{_PATHS['noderesourcetopologies']}/{name}"
        return await self._call("PATCH", path, params=params, body=topology, content_type="application/apply-patch+yaml")

    async def delete_topology(self, name: str, uid: str, resource_version: str) -> Answer | Lost:
        exactly = {"uid": uid, "resourceVersion": resource_version}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": exactly}
        return await self._call("DELETE", f"{_PATHS['noderesourcetopologies']}/{name}", body=body)

    async def patch_node(self, name: str, patch: Sequence[Object]) -> Answer | Lost:
        return await self._call("PATCH", f"{_PATHS['nodes']}/{name}", body=patch, content_type="application/json-patch+json")

    async def served_versions(self, group: str) -> tuple[str, ...] | Lost:
        answer = await self._call("GET", f"/apis/{group}")
        if isinstance(answer, Lost) or answer.status == 404:
            return answer if isinstance(answer, Lost) else ()
        if not answer.ok:
            return Lost(f"GET /apis/{group} from {self._server}: {_describe(answer)}")
        return tuple(str(one.get("version", "")) for one in answer.body.get("versions") or [])

    async def may(self, right: Right, user: str = "") -> Answer | Lost:
        resource, _, subresource = right.resource.partition("/")
        asked = {"group": right.group, "resource": resource, "subresource": subresource, "verb": right.verb}
        kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
        spec: Object = {"resourceAttributes": asked, **({"user": user} if user else {})}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        return await self._call("POST", f"/apis/authorization.k8s.io/v1/{kind.lower()}s", body=body)

    async def close(self) -> None:
        await self._http.aclose()
        await self._streams.aclose()

    async def _call(
        self,
        method: str,
        path: str,
        params: dict[str, str] | None = None,
        body: Object | Sequence[Object] | None = None,
        content_type: str = "application/json",
        timeout_s: float = 0.0,
    ) -> Answer | Lost:
        content = msgspec.json.encode(body) if body is not None else None
        headers = {"Accept": "application/json", "User-Agent": FIELD_MANAGER}
        if content is not None:
            headers["Content-Type"] = content_type
        try:
            request = httpx2.Request(method, self._server + path, params=params, content=content, headers=headers)
            request.extensions["timeout"] = httpx2.Timeout(timeout_s or CALL_TIMEOUT_S).as_dict()
            response = await self._http.send(request)
        except httpx2.HTTPError as error:
            return Lost(f"{method} {path}: {plain(error)}")
        return _answer(response.status_code, response.content, _retry_after_s(response.headers.get("Retry-After", "")))


def _answer(status: int, content: bytes, retry_after_s: float = 0.0) -> Answer:
    try:
        body: Any = _json_object.decode(content) if content else {}
    except _NO_JSON:
        return Answer(status, message=content[:200].decode(errors="replace"), retry_after_s=retry_after_s)
    if status < 400:
        return Answer(status, body=body)
    return Answer(status, str(body.get("reason", "")), str(body.get("message", "")), body, retry_after_s)


def _retry_after_s(header: str) -> float:
    """Whole seconds, as the API server writes them; a date, or nonsense, counts as nothing."""
    return min(float(header), LONGEST_RETRY_AFTER_S) if header.isascii() and header.isdigit() else 0.0


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Split a chunked stream into lines without decoding it to text."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        for line in whole:
            if line:
                yield line


def _seen(kind: Kind, line: bytes) -> Seen:
    try:
        event = _watch_line.decode(line)
    except _NO_JSON as error:
        raise KubeUnavailableError(f"watch of {kind}: not a watch event: {line[:100]!r} ({error})") from error
    if event.type == "ERROR":
        if event.object.get("code") == 410:
            raise WatchExpiredError(kind)
        raise KubeUnavailableError(f"watch of {kind}: {event.object.get('message', event.object)}")
    return Seen(event.type, event.object)


def _describe(answer: Answer | Lost) -> str:
    return answer.message if isinstance(answer, Lost) else f"HTTP {answer.status} {answer.reason} {answer.message}"
