"""The calls that services make to the Kubernetes API. Answers are values, and so is a lost answer.

One contract suite (`tests/kube/contract.py`) runs against the simulated API and, if
TOPOLOG_TEST_KUBECONFIG is set, against a real API server. Objects are plain decoded JSON, which
`shared.domain.manifest` checks.
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
    "podgroups",
    "podgroups.v1alpha3",
    "podgroups.x-k8s.io",
    "podgroups.sigs.k8s.io",
    "podgroups.volcano.sh",
    "devices",
    "reservations",
    "noderesourcetopologies",
    "noderesourcetopologies.v1alpha1",
    "poddisruptionbudgets",
]


class Listed(msgspec.Struct, frozen=True):
    """A list, or a part of it, and the resourceVersion at which it was true. If the list comes as a
    stream, only the last part has a version; `gone` are objects of earlier parts that were deleted
    meanwhile."""

    items: list[Object]
    resource_version: str
    gone: list[Object] = []


class WatchEvent(msgspec.Struct, frozen=True):
    """One watch event: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: Object


class Answer(msgspec.Struct, frozen=True):
    """An answer of the API server: HTTP status, and for errors reason and message of the Status
    object. `retry_after_s` is its Retry-After header, capped, and 0 without one."""

    status: int
    reason: str = ""
    message: str = ""
    body: Object = {}
    retry_after_s: float = 0.0

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def definite(self) -> bool:
        """True if the call is decided. After 429 and 5xx it may have taken effect, or must be
        repeated.
        """
        return self.status < 500 and self.status != 429


class Lost(msgspec.Struct, frozen=True):
    """No answer arrived: the call may or may not have taken effect."""

    message: str


class WatchExpiredError(Exception):
    """410: the version is too old; list again."""


class KubeUnavailableError(Exception):
    """A list or watch failed; names server, path and cause. The caller retries with backoff."""


class UnknownKindError(KubeUnavailableError):
    """The server does not serve the kind (404): its version is another, or the kind is not
    installed."""


class Kube(Protocol):
    """The Kubernetes API as Topolog uses it."""

    async def list(self, kind: Kind) -> Listed:
        """Return all objects of a kind. Raises KubeUnavailableError."""

    def pages(self, kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        """Yield a list in at least one part: pages of one version, or with `streamed` a stream of
        initial events if the server supports it. Raises KubeUnavailableError, also between parts:
        then the list is not complete."""

    def watch(self, kind: Kind, resource_version: str) -> AsyncIterator[WatchEvent]:
        """Yield the events after `resource_version` until the server ends the stream. Raises
        WatchExpiredError, KubeUnavailableError."""

    async def pods_on(self, node: str) -> Sequence[Object]:
        """Return the pods of one node now. Raises KubeUnavailableError."""

    async def get_pod(self, namespace: str, name: str) -> Answer | Lost:
        """Return the pod in `body`, or 404."""

    async def get_node(self, name: str) -> Answer | Lost:
        """Return the Node in `body`, or 404."""

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: dict[str, str]
    ) -> Answer | Lost:
        """Bind with the uid as precondition. The same atomic call merges `annotations` into the
        pod."""

    async def evict(
        self, namespace: str, name: str, uid: str, dry_run: bool = False
    ) -> Answer | Lost:
        """Evict (policy/v1). A PodDisruptionBudget may refuse with 429. `dry_run` changes
        nothing."""

    async def patch_pod_status(self, namespace: str, name: str, patch: Object) -> Answer | Lost:
        """Patch the status subresource by strategic merge (conditions merge by type)."""

    async def create_event(self, namespace: str, event: Object) -> Answer | Lost:
        """Create a core/v1 Event."""

    async def apply_topology(
        self, name: str, topology: Object, force: bool = True
    ) -> Answer | Lost:
        """Apply a NodeResourceTopology with Topolog's field manager. Fields of another manager are
        a 409 without `force`; so is a `metadata.resourceVersion` that is not the current one."""

    async def apply_device(self, name: str, device: Object) -> Answer | Lost:
        """Apply a Device object with Topolog's field manager, over fields of other managers."""

    async def patch_reservation_status(self, name: str, patch: Object) -> Answer | Lost:
        """Patch the status subresource of a Reservation by merge patch (RFC 7386)."""

    async def delete_topology(self, name: str, uid: str, resource_version: str) -> Answer | Lost:
        """Delete this version of a NodeResourceTopology: 409 if it has changed, 404 if it does not
        exist."""

    async def patch_node(self, name: str, patch: Sequence[Object]) -> Answer | Lost:
        """Patch a Node by JSON patch (RFC 6902). A `test` that fails is a 422."""

    async def resource_slices(self, node: str) -> Answer | Lost:
        """Return the ResourceSlices of one node as a list in `body`; 404 if they are not served."""

    async def served_versions(self, group: str) -> tuple[str, ...] | Lost:
        """Return the versions of an API group, empty if the server does not serve the group."""

    async def may(self, right: Right, user: str = "") -> Answer | Lost:
        """Return in `body["status"]["allowed"]` whether these credentials, or `user`, have a
        right."""

    async def review_token(self, token: str, audience: str) -> Answer | Lost:
        """Review a bearer token for an audience; `body` is a TokenReview."""

    async def close(self) -> None:
        """Close connections."""
