"""The Kubernetes client: raw JSON over authenticated connections, to the next API server where one
does not answer.

lightkube's typed calls are not used: its `create` of a Binding binds and then raises on the Status
that the server answers, and its watch reconnects for ever (lightkube 1.0.1, measured).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import httpx2
import msgspec

from shared.kube.connection import CALL_TIMEOUT_S, Connection, each_of
from shared.kube.initial_events import PARAMS, InitialEvents, NotServedError
from shared.kube.lists import page_problem
from shared.kube.port import (
    Answer,
    Kind,
    KubeUnavailableError,
    Listed,
    Lost,
    Object,
    Seen,
    UnknownKindError,
    WatchExpiredError,
)
from shared.kube.rights import Right
from shared.kube.transport import Request
from shared.telemetry.reasons import plain

PAGE_LIMIT = 500
MAX_PAGES = 10_000
WATCH_TIMEOUT_S = 30
"""A watch is asked for anew so often, and one that is silent for longer hangs: its server stands still or went without a word.
client-go notices that by pings, after 45 s."""
INITIAL_TIMEOUT_S = 300
INITIAL_IDLE_S = 15.0
"""Initial events come without a pause; a server that ignores what was asked falls silent after them."""
FIELD_MANAGER = "topolog"
EVICT_TIMEOUT_S = 35.0
"""The eviction of a Pending pod with another uid is answered 409 after 10.0 s (Kubernetes 1.36)."""
LONGEST_RETRY_AFTER_S = 300.0

SLICE_VERSIONS = ("v1", "v1beta2", "v1beta1")
"""Kubernetes 1.34, 1.33, 1.32."""

_PATHS: dict[Kind, str] = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "csinodes": "/apis/storage.k8s.io/v1/csinodes",
    "deviceclasses": "/apis/resource.k8s.io/v1/deviceclasses",
    "noderesourcetopologies": "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
    "noderesourcetopologies.v1alpha1": "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
    "poddisruptionbudgets": "/apis/policy/v1/poddisruptionbudgets",
}


class _ToldError(KubeUnavailableError):
    """A watch that began says by an event that it fails."""


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
_NOBODY_THERE = (httpx2.ConnectError, httpx2.ConnectTimeout)
_NO_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class KubeClient:
    """`shared.kube.port.Kube` over HTTP. `kubeconfig` may be a list: each names a server of the
    same cluster.
    """

    def __init__(self, kubeconfig: str, max_connections: int = 64) -> None:
        self._connections = [Connection(each, max_connections) for each in each_of(kubeconfig)]
        self._in_pages: set[Kind] = set()

    @property
    def _server(self) -> str:
        return self._connections[0].server

    def _pass_over(self, connection: Connection) -> None:
        """What comes next goes to the next server; what failed is the caller's to send again."""
        if connection is self._connections[0]:
            self._connections.append(self._connections.pop(0))

    async def list(self, kind: Kind) -> Listed:
        items: list[Object] = []
        version = ""
        async for page in self.pages(kind):
            items.extend(page.items)
            version = page.resource_version
        return Listed(items, version)

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
            except _ToldError:
                # An API server whose etcd tells no progress (before 3.4.25 and 3.5.8) begins the
                # watch, and says so there.
                if began:
                    raise
        async with aclosing(self._in_parts(kind)) as parts:
            async for part in parts:
                yield part

    async def _initial(self, kind: Kind) -> AsyncGenerator[Listed]:
        """A list as a stream. What began and did not end is no list, and lists of the kind come in
        pages from then on: whoever ended it (the server, a proxy on the way, silence) may do so
        each time."""
        found = InitialEvents(kind)
        try:
            async with aclosing(
                self._stream(kind, PARAMS, INITIAL_TIMEOUT_S, INITIAL_IDLE_S)
            ) as lines:
                async for seen in lines:
                    found.add(seen)
                    if found.version or len(found) >= PAGE_LIMIT:
                        yield found.take()
                    if found.version:
                        return
            raise NotServedError(
                f"watch of {kind} from {self._server} ended before it had shown all"
            )
        except WatchExpiredError as error:
            self._in_pages.add(kind)
            raise KubeUnavailableError(
                f"watch of {kind} from {self._server}: 410 among initial events"
            ) from error
        except KubeUnavailableError as error:
            if not isinstance(error, _RefusedError) and not isinstance(
                error.__cause__, _NOBODY_THERE
            ):
                self._in_pages.add(kind)
            raise

    async def _in_parts(self, kind: Kind) -> AsyncGenerator[Listed]:
        params, version = {"limit": str(PAGE_LIMIT)}, ""
        for _ in range(MAX_PAGES):
            body = await self._page(kind, params)
            metadata = body["metadata"]
            if version not in ("", metadata["resourceVersion"]):
                raise KubeUnavailableError(
                    f"list of {kind} from {self._server}: a page of version {metadata['resourceVersion']} in a list of {version}"
                )
            version, token = metadata["resourceVersion"], metadata.get("continue")
            yield Listed(body["items"], version)
            if not token:
                return
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
                f"list of {kind} from {server} is none: {problem}{shown}; is a proxy in between?"
            )
        return answer.body

    async def watch(self, kind: Kind, resource_version: str) -> AsyncIterator[Seen]:
        params = {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
        }
        async with aclosing(
            self._stream(kind, params, WATCH_TIMEOUT_S, WATCH_TIMEOUT_S + CALL_TIMEOUT_S)
        ) as events:
            async for seen in events:
                yield seen

    async def _stream(
        self, kind: Kind, params: dict[str, str], whole_s: int, idle_s: float
    ) -> AsyncGenerator[Seen]:
        """Events of one watch until the server ends it. Raises _RefusedError before the first where
        it does not begin.
        """
        timeout = httpx2.Timeout(CALL_TIMEOUT_S, read=idle_s)
        params = {**params, "timeoutSeconds": str(whole_s)}
        connection = self._connections[0]
        try:
            async with connection.streams.stream(
                "GET", _PATHS[kind], params=params, timeout=timeout
            ) as response:
                if response.status_code == 410:
                    raise WatchExpiredError(kind)
                if response.status_code != 200:
                    raise _RefusedError(
                        f"watch of {kind} from {connection.server}", response.status_code
                    )
                async for line in _lines(response.aiter_bytes()):
                    yield _seen(kind, line)
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

    async def delete_topology(self, name: str, uid: str, resource_version: str) -> Answer | Lost:
        exactly = {"uid": uid, "resourceVersion": resource_version}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": exactly}
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
        return tuple(str(one.get("version", "")) for one in answer.body.get("versions") or [])

    async def may(self, right: Right, user: str = "") -> Answer | Lost:
        resource, _, subresource = right.resource.partition("/")
        asked = {
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "verb": right.verb,
        }
        kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
        spec: Object = {"resourceAttributes": asked, **({"user": user} if user else {})}
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
        """`frees`: a definite answer frees or takes zones, and is believed only as an object that
        an API server sends.
        """
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


def _foreign(asked: str, answer: Answer) -> Lost:
    return Lost(
        f"{asked}: HTTP {answer.status} {answer.message!r} is no API server's; is a proxy in between?"
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
    """Whole seconds, as the API server writes them; a date, or nonsense, counts as nothing."""
    return (
        min(float(header), LONGEST_RETRY_AFTER_S) if header.isascii() and header.isdigit() else 0.0
    )


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
        raise KubeUnavailableError(
            f"watch of {kind}: not a watch event: {line[:100]!r} ({error}); is a proxy in between?"
        ) from error
    if event.type == "ERROR":
        if event.object.get("code") == 410:
            raise WatchExpiredError(kind)
        raise _ToldError(f"watch of {kind}: {event.object.get('message', event.object)}")
    return Seen(event.type, event.object)


def _describe(answer: Answer | Lost) -> str:
    return (
        answer.message
        if isinstance(answer, Lost)
        else f"HTTP {answer.status} {answer.reason} {answer.message}"
    )
