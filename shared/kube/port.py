"""What services may ask of the Kubernetes API. Answers are values; an answer that was lost is a
value too.

One contract suite (`tests/kube/contract.py`) runs against the simulated API and, when
TOPOLOG_TEST_KUBECONFIG is set, against a real API server. Objects are plain decoded JSON:
`shared.domain.manifest` judges them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, Literal, Protocol

import msgspec

from shared.kube.rights import Right

Object = dict[str, Any]
Kind = Literal[
    "pods",
    "nodes",
    "namespaces",
    "persistentvolumes",
    "persistentvolumeclaims",
    "csinodes",
    "deviceclasses",
    "noderesourcetopologies",
    "noderesourcetopologies.v1alpha1",
    "poddisruptionbudgets",
]


class Listed(msgspec.Struct, frozen=True):
    """A complete list, or a part of it, and the resourceVersion it was true at. A list that comes
    as a stream has its version with the last part only (empty before), and `gone`: objects of
    earlier parts that were deleted meanwhile."""

    items: list[Object]
    resource_version: str
    gone: list[Object] = []


class WatchEvent(msgspec.Struct, frozen=True):
    """One watch event: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: Object


class Answer(msgspec.Struct, frozen=True):
    """A definite answer of the API server: HTTP status, and for errors reason and message of the
    Status object. `retry_after_s` is how long it asks to be left alone, 0 for nothing said."""

    status: int
    reason: str = ""
    message: str = ""
    body: Object = {}
    retry_after_s: float = 0.0

    @property
    def ok(self) -> bool:
        """2xx."""
        return 200 <= self.status < 300

    @property
    def definite(self) -> bool:
        """False for 429 and 5xx: the server may or may not have acted, or asks to come again."""
        return self.status < 500 and self.status != 429


class Lost(msgspec.Struct, frozen=True):
    """No answer arrived: the call may or may not have taken effect."""

    message: str


class WatchExpiredError(Exception):
    """410: the version is too old; list again."""


class KubeUnavailableError(Exception):
    """A list or watch failed; names server, path and cause. The caller retries with backoff."""


class UnknownKindError(KubeUnavailableError):
    """The server serves no such kind (404): it is of another version, or the kind was never
    installed.
    """


class Kube(Protocol):
    """The Kubernetes API as Topolog uses it."""

    async def list(self, kind: Kind) -> Listed:
        """All objects of a kind, over pages. Raises KubeUnavailableError."""

    def pages(self, kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        """The same part by part, at least one: pages of one version, or, where `streamed` is asked
        for and the server does that, a stream of initial events. Raises KubeUnavailableError, also
        between parts: then the list is not complete."""

    def watch(self, kind: Kind, resource_version: str) -> AsyncIterator[WatchEvent]:
        """Events after `resource_version` until the server ends the stream. Raises
        WatchExpiredError, KubeUnavailableError.
        """

    async def get_pod(self, namespace: str, name: str) -> Answer | Lost:
        """The pod in `body`, or 404."""

    async def get_node(self, name: str) -> Answer | Lost:
        """The Node in `body`, or 404."""

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: dict[str, str]
    ) -> Answer | Lost:
        """Bind with the uid as precondition; annotations are merged into the pod in the same atomic
        call.
        """

    async def evict(
        self, namespace: str, name: str, uid: str, dry_run: bool = False
    ) -> Answer | Lost:
        """Ask for an eviction (policy/v1), which PodDisruptionBudgets may refuse with 429;
        `dry_run` only asks whether.
        """

    async def patch_pod_status(self, namespace: str, name: str, patch: Object) -> Answer | Lost:
        """Strategic merge patch of the status subresource (conditions merge by type)."""

    async def create_event(self, namespace: str, event: Object) -> Answer | Lost:
        """Create a core/v1 Event."""

    async def apply_topology(
        self, name: str, topology: Object, force: bool = True
    ) -> Answer | Lost:
        """Server-side apply of a NodeResourceTopology with Topolog's field manager. Without `force`
        fields of another manager are a 409; a `metadata.resourceVersion` in the object must be the
        current one, or it is a 409 too."""

    async def delete_topology(self, name: str, uid: str, resource_version: str) -> Answer | Lost:
        """Delete exactly this NodeResourceTopology: 409 when it has changed meanwhile, 404 when it
        is gone.
        """

    async def patch_node(self, name: str, patch: Sequence[Object]) -> Answer | Lost:
        """JSON patch of a Node (RFC 6902); a `test` that fails is a 422."""

    async def resource_slices(self, node: str) -> Answer | Lost:
        """The ResourceSlices of one node as a list in `body`; 404 where the server knows none."""

    async def served_versions(self, group: str) -> tuple[str, ...] | Lost:
        """The versions of an API group that the server serves; empty when it does not know the
        group.
        """

    async def may(self, right: Right, user: str = "") -> Answer | Lost:
        """Whether these credentials, or another user, have a right: `body["status"]["allowed"]`."""

    async def review_token(self, token: str, audience: str) -> Answer | Lost:
        """Whose a bearer token is (authentication.k8s.io/v1 TokenReview in `body`), if it is for
        that audience.
        """

    async def close(self) -> None:
        """Close connections."""
