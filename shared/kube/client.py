"""The Kubernetes client: raw JSON over authenticated connections.

If a server does not answer, the next request goes to the next server of the same cluster. Every
request has a deadline: a server, or a proxy, that sends bytes without an answer fails like a silent
server. lightkube's typed calls are not used, because its `create` of a Binding binds and then
raises on the Status that the server answers, and its watch reconnects for ever (lightkube 1.0.1,
measured).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx2
import msgspec

from shared.kube.connection import CALL_TIMEOUT_S, Connection, split_kubeconfigs
from shared.kube.initial_events import PARAMS, InitialEvents, NotServedError
from shared.kube.lists import page_problem
from shared.kube.port import (
    Answer,
    Kind,
    KubeUnavailableError,
    Listed,
    Lost,
    Object,
    UnknownKindError,
    WatchEvent,
    WatchExpiredError,
)
from shared.kube.rights import Right
from shared.kube.transport import Request
from shared.telemetry.reasons import plain

PAGE_LIMIT = 500
MAX_PAGES = 10_000
# A list in pages may wait for its server so long in all; the pauses of its reader do not count.
LIST_TIMEOUT_S = 300.0
# A watch is renewed so often. A watch that is silent for longer hangs: its server stopped or
# disappeared. client-go notices that by pings, after 45 s.
WATCH_TIMEOUT_S = 30
# A watch that ends sooner and without an event is a failure, which must not be repeated at once
# (client-go: "very short watch").
SHORT_WATCH_S = 1.0
INITIAL_TIMEOUT_S = 300
# Initial events come without a pause. A server that ignores the parameters is silent after them.
INITIAL_IDLE_S = 15.0
FIELD_MANAGER = "topolog"
# The eviction of a Pending pod with another uid is answered 409 after 10.0 s (Kubernetes 1.36).
EVICT_TIMEOUT_S = 35.0
# The largest value that kube-apiserver 1.36 sends is 10 (an eviction while the status of a
# PodDisruptionBudget lags). A larger one is a proxy's or a mistake, and must not stop the service.
LONGEST_RETRY_AFTER_S = 10.0

# Kubernetes 1.34, 1.33, 1.32.
SLICE_VERSIONS = ("v1", "v1beta2", "v1beta1")

_PATHS: dict[Kind, str] = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "csinodes": "/apis/storage.k8s.io/v1/csinodes",
    "deviceclasses": "/apis/resource.k8s.io/v1/deviceclasses",
    "podgroups": "/apis/scheduling.k8s.io/v1alpha2/podgroups",
    "podgroups.v1alpha3": "/apis/scheduling.k8s.io/v1alpha3/podgroups",
    "podgroups.x-k8s.io": "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    "podgroups.sigs.k8s.io": "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups",
    "podgroups.volcano.sh": "/apis/scheduling.volcano.sh/v1beta1/podgroups",
    "devices": "/apis/scheduling.koordinator.sh/v1alpha1/devices",
    "reservations": "/apis/scheduling.koordinator.sh/v1alpha1/reservations",
    "noderesourcetopologies": "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
    "noderesourcetopologies.v1alpha1": "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
    "poddisruptionbudgets": "/apis/policy/v1/poddisruptionbudgets",
}


class _ErrorEventError(KubeUnavailableError):
    """A watch that began fails with an ERROR event."""


class _RefusedError(KubeUnavailableError):
    """A watch did not begin."""

    def __init__(self, what: str, status: int) -> None:
        super().__init__(f"{what}: HTTP {status}")
        self.status = status


class _WatchLine(msgspec.Struct):
    type: str
    object: Object


_watch_line = msgspec.json.Decoder(_WatchLine)
_json_object: msgspec.json.Decoder[Object] = msgspec.json.Decoder(Object)
_NOT_REACHED = (httpx2.ConnectError, httpx2.ConnectTimeout)
_NO_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class KubeClient:
    """`shared.kube.port.Kube` over HTTP. `kubeconfig` may be a comma-separated list of several
    servers of the same cluster.
    """

    def __init__(self, kubeconfig: str, max_connections: int = 64) -> None:
        self._connections = [
            Connection(name, max_connections) for name in split_kubeconfigs(kubeconfig)
        ]
        self._in_pages: set[Kind] = set()

    @property
    def _server(self) -> str:
        return self._connections[0].server

    def _pass_over(self, connection: Connection) -> None:
        """Send the next request to the next server. The caller repeats the failed request."""
        if connection is self._connections[0]:
            self._connections.append(self._connections.pop(0))

    async def list(self, kind: Kind) -> Listed:
        items: list[Object] = []
        version = ""
        async for page in self.pages(kind):
            items.extend(page.items)
            version = page.resource_version
        return Listed(items, version)

    async def pods_on(self, node: str) -> Sequence[Object]:
        body = await self._page("pods", {"fieldSelector": f"spec.nodeName={node}"})
        return tuple(body["items"])

    async def pages(self, kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        if streamed and kind not in self._in_pages:
            began = False
            try:
                async with aclosing(self._initial(kind)) as parts:
                    async for part in parts:
                        began = True
                        yield part
                return
            except _RefusedError as refused:
                if refused.status in (400, 422):
                    self._in_pages.add(kind)
            except _ErrorEventError:
                # An API server whose etcd reports no progress (before 3.4.25 and 3.5.8) begins the
                # watch, and then sends an ERROR event.
                if began:
                    raise
        async with aclosing(self._in_parts(kind)) as parts:
            async for part in parts:
                yield part

    async def _initial(self, kind: Kind) -> AsyncGenerator[Listed]:
        """Yield a list that comes as a stream. A stream that ends early is no list, and later lists
        of the kind come in pages, because the server or a proxy may end the next stream, too."""
        gathered = InitialEvents(kind)
        try:
            async with aclosing(
                self._stream(kind, PARAMS, INITIAL_TIMEOUT_S, INITIAL_IDLE_S)
            ) as lines:
                async for event in lines:
                    gathered.add(event)
                    if gathered.version or len(gathered) >= PAGE_LIMIT:
                        yield gathered.take()
                    if gathered.version:
                        return
            raise NotServedError(
                f"watch of {kind} from {self._server} ended before all objects were sent"
            )
        except WatchExpiredError as error:
            self._in_pages.add(kind)
            raise KubeUnavailableError(
                f"watch of {kind} from {self._server}: 410 among initial events"
            ) from error
        except KubeUnavailableError as error:
            if not isinstance(error, _RefusedError) and not isinstance(
                error.__cause__, _NOT_REACHED
            ):
                self._in_pages.add(kind)
            raise

    async def _in_parts(self, kind: Kind) -> AsyncGenerator[Listed]:
        params, version = {"limit": str(PAGE_LIMIT)}, ""
        waited_s = 0.0
        for _ in range(MAX_PAGES):
            began_s = time.monotonic()
            body = await self._page(kind, params)
            waited_s += time.monotonic() - began_s
            metadata = body["metadata"]
            if version not in ("", metadata["resourceVersion"]):
                raise KubeUnavailableError(
                    f"list of {kind} from {self._server}: a page of version "
                    f"{metadata['resourceVersion']} in a list of {version}"
                )
            version, token = metadata["resourceVersion"], metadata.get("continue")
            yield Listed(body["items"], version)
            if not token:
                return
            if waited_s > LIST_TIMEOUT_S:
                raise KubeUnavailableError(
                    f"list of {kind} from {self._server} has not ended after {waited_s:.0f} s"
                )
            params["continue"] = token
        raise KubeUnavailableError(
            f"list of {kind} from {self._server} does not end after {MAX_PAGES} pages"
        )

    async def _page(self, kind: Kind, params: dict[str, str]) -> Object:
        server = self._server
        answer = await self._call("GET", _PATHS[kind], params=params)
        if isinstance(answer, Answer) and answer.status == 404:
            raise UnknownKindError(f"list of {kind} from {server} failed: {_describe(answer)}")
        if isinstance(answer, Lost) or not answer.ok:
            raise KubeUnavailableError(f"list of {kind} from {server} failed: {_describe(answer)}")
        if problem := page_problem(kind, answer.body):
            shown = f": {answer.message[:60]!r}" if answer.message else ""
            raise KubeUnavailableError(
                f"the answer from {server} is not a list of {kind}: {problem}{shown}; "
                "is a proxy in between?"
            )
        return answer.body

    async def watch(self, kind: Kind, resource_version: str) -> AsyncIterator[WatchEvent]:
        params = {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
        }
        idle_s = WATCH_TIMEOUT_S + CALL_TIMEOUT_S
        began_s, is_empty = time.monotonic(), True
        async with aclosing(self._stream(kind, params, WATCH_TIMEOUT_S, idle_s)) as events:
            async for event in events:
                is_empty = False
                yield event
        if is_empty and time.monotonic() - began_s < SHORT_WATCH_S:
            await asyncio.sleep(SHORT_WATCH_S)

    async def _stream(
        self, kind: Kind, params: dict[str, str], whole_s: int, idle_s: float
    ) -> AsyncGenerator[WatchEvent]:
        """Yield the events of one watch until the server ends it. Raises _RefusedError before the
        first event if the watch does not begin."""
        params = {**params, "timeoutSeconds": str(whole_s)}
        connection = self._connections[0]
        patience = _Patience(whole_s + CALL_TIMEOUT_S, idle_s)
        try:
            async with _opened(connection, _PATHS[kind], params, patience) as response:
                if response.status_code == 410:
                    raise WatchExpiredError(kind)
                if response.status_code != 200:
                    raise _RefusedError(
                        f"watch of {kind} from {connection.server}", response.status_code
                    )
                async for line in _lines(response.aiter_bytes(), patience):
                    yield _decoded(kind, line)
        except httpx2.HTTPError as error:
            self._pass_over(connection)
            raise KubeUnavailableError(
                f"watch of {kind} from {connection.server} broke: {plain(error)}"
            ) from error

    async def get_pod(self, namespace: str, name: str) -> Answer | Lost:
        return await self._call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}", frees=True)

    async def get_node(self, name: str) -> Answer | Lost:
        return await self._call("GET", f"{_PATHS['nodes']}/{name}", frees=True)

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: dict[str, str]
    ) -> Answer | Lost:
        metadata = {"name": name, "namespace": namespace, "uid": uid, "annotations": annotations}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        return await self._call(
            "POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body=body, frees=True
        )

    async def evict(
        self, namespace: str, name: str, uid: str, dry_run: bool = False
    ) -> Answer | Lost:
        options: Object = {
            "preconditions": {"uid": uid},
            **({"dryRun": ["All"]} if dry_run else {}),
        }
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        return await self._call("POST", path, body=body, timeout_s=EVICT_TIMEOUT_S, frees=True)

    async def patch_pod_status(self, namespace: str, name: str, patch: Object) -> Answer | Lost:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        return await self._call(
            "PATCH", path, body=patch, content_type="application/strategic-merge-patch+json"
        )

    async def create_event(self, namespace: str, event: Object) -> Answer | Lost:
        return await self._call("POST", f"/api/v1/namespaces/{namespace}/events", body=event)

    async def apply_topology(
        self, name: str, topology: Object, force: bool = True
    ) -> Answer | Lost:
        params = {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"}
        path = f"{_PATHS['noderesourcetopologies']}/{name}"
        return await self._call(
            "PATCH", path, params=params, body=topology, content_type="application/apply-patch+yaml"
        )

    async def apply_device(self, name: str, device: Object) -> Answer | Lost:
        params = {"fieldManager": FIELD_MANAGER, "force": "true"}
        path, form = f"{_PATHS['devices']}/{name}", "application/apply-patch+yaml"
        return await self._call("PATCH", path, params=params, body=device, content_type=form)

    async def patch_reservation_status(self, name: str, patch: Object) -> Answer | Lost:
        path, form = f"{_PATHS['reservations']}/{name}/status", "application/merge-patch+json"
        return await self._call("PATCH", path, body=patch, content_type=form)

    async def delete_topology(self, name: str, uid: str, resource_version: str) -> Answer | Lost:
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        return await self._call("DELETE", f"{_PATHS['noderesourcetopologies']}/{name}", body=body)

    async def patch_node(self, name: str, patch: Sequence[Object]) -> Answer | Lost:
        return await self._call(
            "PATCH",
            f"{_PATHS['nodes']}/{name}",
            body=patch,
            content_type="application/json-patch+json",
        )

    async def resource_slices(self, node: str) -> Answer | Lost:
        answer: Answer | Lost = Answer(404)
        for version in SLICE_VERSIONS:
            path = f"/apis/resource.k8s.io/{version}/resourceslices"
            answer = await self._call(
                "GET", path, params={"fieldSelector": f"spec.nodeName={node}"}
            )
            if isinstance(answer, Lost) or answer.status != 404:
                break
        return answer

    async def served_versions(self, group: str) -> tuple[str, ...] | Lost:
        server = self._server
        answer = await self._call("GET", f"/apis/{group}")
        if isinstance(answer, Lost) or answer.status == 404:
            return answer if isinstance(answer, Lost) else ()
        if not answer.ok:
            return Lost(f"GET /apis/{group} from {server}: {_describe(answer)}")
        return tuple(str(item.get("version", "")) for item in answer.body.get("versions") or [])

    async def may(self, right: Right, user: str = "") -> Answer | Lost:
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "verb": right.verb,
        }
        kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
        spec: Object = {"resourceAttributes": attributes, **({"user": user} if user else {})}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        path = f"/apis/authorization.k8s.io/v1/{kind.lower()}s"
        answer = await self._call("POST", path, body=body)
        return (
            _foreign(f"POST {path}", answer)
            if isinstance(answer, Answer) and answer.ok and not _is_object(answer)
            else answer
        )

    async def review_token(self, token: str, audience: str) -> Answer | Lost:
        spec = {"token": token, "audiences": [audience]}
        body: Object = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": spec,
        }
        return await self._call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body=body)

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    async def _call(
        self,
        method: str,
        path: str,
        params: dict[str, str] | None = None,
        body: Object | Sequence[Object] | None = None,
        content_type: str = "application/json",
        timeout_s: float = 0.0,
        frees: bool = False,
    ) -> Answer | Lost:
        """Send one request. `frees`: a definite answer frees or takes zones, so it is believed only
        if it is an object of an API server."""
        content = msgspec.json.encode(body) if body is not None else None
        headers = {"Accept": "application/json", "User-Agent": FIELD_MANAGER}
        if content is not None:
            headers["Content-Type"] = content_type
        connection = self._connections[0]
        try:
            reply = await connection.call(
                Request(method, path, params, headers, content, timeout_s or CALL_TIMEOUT_S)
            )
        except httpx2.HTTPError as error:
            self._pass_over(connection)
            return Lost(f"{method} {path}: {plain(error)}")
        answer = _answer(
            reply.status, reply.content, _retry_after_s(reply.headers.get("retry-after", ""))
        )
        return (
            _foreign(f"{method} {path}", answer)
            if frees and answer.definite and not _is_object(answer)
            else answer
        )


def _is_object(answer: Answer) -> bool:
    return isinstance(answer.body.get("kind"), str)


def _foreign(request: str, answer: Answer) -> Lost:
    return Lost(
        f"{request}: HTTP {answer.status} {answer.message!r} is not an answer of an API server; "
        "is a proxy in between?"
    )


def _answer(status: int, content: bytes, retry_after_s: float = 0.0) -> Answer:
    try:
        body: Any = _json_object.decode(content) if content else {}
    except _NO_JSON:
        return Answer(
            status, message=content[:200].decode(errors="replace"), retry_after_s=retry_after_s
        )
    if status < 400:
        return Answer(status, body=body)
    return Answer(
        status, str(body.get("reason", "")), str(body.get("message", "")), body, retry_after_s
    )


def _retry_after_s(header: str) -> float:
    """Return whole seconds, as the API server writes them. A date or nonsense counts as 0."""
    return (
        min(float(header), LONGEST_RETRY_AFTER_S) if header.isascii() and header.isdigit() else 0.0
    )


class _Patience:
    """The time that a stream may wait for its server: in total, and for the next line.

    Bytes that complete no line are no progress, so a server that sends blanks is given up. The time
    that the reader spends on lines does not count, because a slow log must not end a watch.
    """

    def __init__(self, whole_s: float, idle_s: float) -> None:
        self._whole_s = self._remaining_s = whole_s
        self._idle_s = self._remaining_idle_s = idle_s

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Wait in the block. Raises httpx2.ReadTimeout."""
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, min(self._remaining_s, self._remaining_idle_s))):
                yield
        except TimeoutError as error:
            raise httpx2.ReadTimeout(
                f"no event within {self._idle_s:g} s, or no end within {self._whole_s:g} s"
            ) from error
        finally:
            waited_s = time.monotonic() - began_s
            self._remaining_s -= waited_s
            self._remaining_idle_s -= waited_s

    def progress(self) -> None:
        self._remaining_idle_s = self._idle_s


@asynccontextmanager
async def _opened(
    connection: Connection, path: str, params: dict[str, str], patience: _Patience
) -> AsyncIterator[httpx2.Response]:
    """Open a stream. httpx's own read timeout starts again with each byte."""
    streams = connection.streams
    timeout = httpx2.Timeout(CALL_TIMEOUT_S, read=None)
    request = streams.build_request("GET", path, params=params, timeout=timeout)
    async with patience.waiting():
        response = await streams.send(request, stream=True)
    try:
        yield response
    finally:
        await response.aclose()


async def _lines(chunks: AsyncIterator[bytes], patience: _Patience) -> AsyncIterator[bytes]:
    """Split a chunked stream into lines without decoding it to text."""
    rest = b""
    while True:
        async with patience.waiting():
            chunk = await anext(chunks, None)
        if chunk is None:
            return
        *lines, rest = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        for line in lines:
            if line:
                patience.progress()
                yield line


def _decoded(kind: Kind, line: bytes) -> WatchEvent:
    try:
        event = _watch_line.decode(line)
    except _NO_JSON as error:
        raise KubeUnavailableError(
            f"watch of {kind}: not a watch event: {line[:100]!r} ({error}); is a proxy in between?"
        ) from error
    if event.type == "ERROR":
        if event.object.get("code") == 410:
            raise WatchExpiredError(kind)
        raise _ErrorEventError(f"watch of {kind}: {event.object.get('message', event.object)}")
    return WatchEvent(event.type, event.object)


def _describe(answer: Answer | Lost) -> str:
    return (
        answer.message
        if isinstance(answer, Lost)
        else f"HTTP {answer.status} {answer.reason} {answer.message}"
    )
