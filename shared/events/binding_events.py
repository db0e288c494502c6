"""Events of the binder: an intent before every write to Kubernetes, an outcome after it. Stream
`pod/<uid>`.

After an intent only a definite answer ends it; `BindUncertain` permits only sending again to the
same node.
"""

from __future__ import annotations

import msgspec

from shared.events.about import AboutPod, AboutPodOnNode


class BindIntended(AboutPodOnNode, msgspec.Struct, frozen=True, tag=True):
    """The binder is about to bind the pod to `node`. `reserved_at` is the position of the
    reservation that it carries out."""

    uid: str
    namespace: str
    name: str
    node: str
    reserved_at: int


class PodBound(AboutPodOnNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The API server has the binding. `attempts` counts calls. `found` is true if the pod was
    already bound to this node."""

    uid: str
    node: str
    attempts: int = 1
    found: bool = False


class BindRefused(AboutPodOnNode, msgspec.Struct, frozen=True, tag=True):
    """The API server refused the binding for good, which releases the charge.

    `cause` is `gone`, `other_uid`, `other_node`, `terminating` (the pod is being deleted), `denied`
    (by an admission policy), `forbidden` (the binder lacks a right) or `invalid` (the Binding is
    malformed)."""

    uid: str
    node: str
    cause: str
    message: str


class BindUncertain(AboutPodOnNode, msgspec.Struct, frozen=True, tag=True):
    """The answer was lost or indefinite. The binder reads the pod and sends again to the same
    node."""

    uid: str
    node: str
    attempts: int
    message: str


class EvictIntended(AboutPod, msgspec.Struct, frozen=True, tag=True):
    """The binder is about to evict a victim for the nominated pod `preemptor`."""

    uid: str
    namespace: str
    name: str
    preemptor: str


class PodEvicted(AboutPod, msgspec.Struct, frozen=True, tag=True):
    """The eviction was accepted, or the pod no longer existed."""

    uid: str
    preemptor: str


class EvictRefused(AboutPod, msgspec.Struct, frozen=True, tag=True):
    """The eviction was refused, for example by a PodDisruptionBudget."""

    uid: str
    preemptor: str
    message: str


BindingEvent = (
    BindIntended
    | PodBound
    | BindRefused
    | BindUncertain
    | EvictIntended
    | PodEvicted
    | EvictRefused
)
