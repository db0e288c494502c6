"""The parts of the object store that simulated kubelets and the player use, in one process and one
event loop.

The simulated API server's `ClusterStore` implements them. This module does not know HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

Json = dict[str, Any]


class Stored(Protocol):
    """One version of one object; never to be changed."""

    @property
    def obj(self) -> Json:
        """The object without kind and apiVersion."""


class Seen(Protocol):
    """One change: `kind` is ADDED, MODIFIED or DELETED."""

    @property
    def kind(self) -> str:
        """ADDED, MODIFIED or DELETED."""

    @property
    def entry(self) -> Stored:
        """The object after the change; for DELETED its last version."""

    @property
    def old(self) -> Stored | None:
        """The version before, if any."""


class ClusterPort(Protocol):
    """The store. Nothing here raises for what the cluster may answer: refusals are values with a
    `code`.
    """

    def list(
        self, kind: str, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Sequence[Stored]:
        """Live objects."""

    def get(self, kind: str, name: str, namespace: str = "") -> Stored | None:
        """One live object."""

    def create(self, kind: str, obj: Json, namespace: str = "") -> object:
        """Create; an entry or a refusal."""

    def patch(
        self,
        kind: str,
        name: str,
        namespace: str,
        body: Any,
        *,
        form: str = "strategic",
        subresource: str = "",
    ) -> object:
        """Patch; an entry or a refusal."""

    def replace_status(
        self, kind: str, name: str, namespace: str, status: Json, uid: str = ""
    ) -> object:
        """Put a whole status; an entry or a refusal."""

    def delete(
        self,
        kind: str,
        name: str,
        namespace: str = "",
        *,
        grace_s: int | None = None,
        uid: str = "",
    ) -> object:
        """Delete; what was deleted or a refusal."""

    def listen(self, kind: str, listener: Callable[[Seen], None]) -> Callable[[], None]:
        """Call the listener with every change at once and in order; it must not write. Returns what
        stops it.
        """
