"""What simulated kubelets and the player use of the object store, in one process and one event
loop.

The simulated API server's `ClusterStore` implements it. This module does not know HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

Json = dict[str, Any]


class Stored(Protocol):
    """One version of one object. The reader must not change it."""

    @property
    def obj(self) -> Json:
        """The object without kind and apiVersion."""


class Change(Protocol):
    """One change of an object."""

    @property
    def kind(self) -> str:
        """ADDED, MODIFIED or DELETED."""

    @property
    def entry(self) -> Stored:
        """The object after the change; if it was deleted, its last version."""

    @property
    def old(self) -> Stored | None:
        """The version before the change, if any."""


class ClusterPort(Protocol):
    """The store. A refusal of the API is a value with a `code`, no exception."""

    def list(
        self, kind: str, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> Sequence[Stored]:
        """Return the current objects."""

    def get(self, kind: str, name: str, namespace: str = "") -> Stored | None:
        """Return one object, None if it does not exist."""

    def create(self, kind: str, obj: Json, namespace: str = "") -> object:
        """Create an object. Return an entry or a refusal."""

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
        """Patch an object. Return an entry or a refusal."""

    def replace_status(
        self, kind: str, name: str, namespace: str, status: Json, uid: str = ""
    ) -> object:
        """Replace the whole status. Return an entry or a refusal."""

    def delete(
        self,
        kind: str,
        name: str,
        namespace: str = "",
        *,
        grace_s: int | None = None,
        uid: str = "",
    ) -> object:
        """Delete an object. Return the deleted entry or a refusal."""

    def listen(self, kind: str, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call the listener at once with every change, in order. It must not write. Return the
        function that stops this.
        """
