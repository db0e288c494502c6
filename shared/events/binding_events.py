"""Facts of the binder: intent before every write to Kubernetes, outcome after it. Stream
`pod/<uid>`.

After an intent only a definite answer ends it; `BindUncertain` permits only resending to the same
node.
"""

from __future__ import annotations

import msgspec

from shared.events.about import About


class BindIntended(msgspec.Struct, frozen=True, tag=True):
    """The binder is about to bind the pod to `node`; `reserved_at` is the position of the
    reservation that it carries out.
    """

    uid: str
    namespace: str
    name: str
    node: str
    reserved_at: int

    @property
    def about(self) -> About:
        return About(self.uid, self.node)


class PodBound(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The API server holds the binding. `attempts` counts calls; `found` says it was already bound
    to our node.
    """

    uid: str
    node: str
    attempts: int = 1
    found: bool = False

    @property
    def about(self) -> About:
        return About(self.uid, self.node)


class BindRefused(msgspec.Struct, frozen=True, tag=True):
    """A definite no, by which the charge is freed: `gone`, `other_uid`, `other_node`, `terminating`
    (the pod is being deleted), `denied` (an admission policy, to this pod on this node),
    `forbidden` (the binder lacks a right) or `invalid` (the API server cannot take the Binding)."""

    uid: str
    node: str
    cause: str
    message: str

    @property
    def about(self) -> About:
        return About(self.uid, self.node)


class BindUncertain(msgspec.Struct, frozen=True, tag=True):
    """The answer was lost or indefinite; the binder reads the pod and resends to the same node."""

    uid: str
    node: str
    attempts: int
    message: str

    @property
    def about(self) -> About:
        return About(self.uid, self.node)


class EvictIntended(msgspec.Struct, frozen=True, tag=True):
    """The binder is about to evict a victim for the nominee `preemptor`."""

    uid: str
    namespace: str
    name: str
    preemptor: str

    @property
    def about(self) -> About:
        return About(pod=self.uid)


class PodEvicted(msgspec.Struct, frozen=True, tag=True):
    """The eviction was accepted (or the pod was already gone)."""

    uid: str
    preemptor: str

    @property
    def about(self) -> About:
        return About(pod=self.uid)


class EvictRefused(msgspec.Struct, frozen=True, tag=True):
    """The eviction was refused, for example by a PodDisruptionBudget."""

    uid: str
    preemptor: str
    message: str

    @property
    def about(self) -> About:
        return About(pod=self.uid)


BindingEvent = (
    BindIntended
    | PodBound
    | BindRefused
    | BindUncertain
    | EvictIntended
    | PodEvicted
    | EvictRefused
)
