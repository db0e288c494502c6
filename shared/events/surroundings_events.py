"""Facts about what surrounds pods and nodes, as the Kubernetes API shows it: volumes, claims,
limits of nodes, namespaces, nominations by other schedulers, classes of devices.

Only what is asked for is told: a claim that is bound, where its volume can be reached, how many
volumes of a driver a node takes, the labels of namespaces, which pending pods have room kept for
them, which resources drivers give by a class. Appended by the scheduler's leased observer role.
"""

from __future__ import annotations

from typing import Literal, TypeGuard, get_args

import msgspec

from shared.domain.pod import NodeSelectorTerm
from shared.domain.resources import Amounts
from shared.events.about import About
from shared.events.cluster_events import EndCause

Surrounding = Literal["volume", "claim", "namespace", "csinode", "nomination", "deviceclass"]


class VolumeObserved(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, gc=False):
    """A bound PersistentVolume was first seen or changed. Stream `volume/<name>`.

    `driver` and `handle` are its CSI driver's, empty for others. `terms` is its required node
    affinity: () for none, else one of them must match a node. `zones` are its zone and region
    labels, each with the values that it names."""

    name: str
    resource_version: str = ""
    driver: str = ""
    handle: str = ""
    terms: tuple[NodeSelectorTerm, ...] = ()
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def about(self) -> About:
        return About()


class ClaimObserved(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, gc=False):
    """A PersistentVolumeClaim was seen bound to `volume`. Stream `claim/<namespace>/<name>`.

    `name` is `namespace/name`. `alone`: one pod may use it at a time (ReadWriteOncePod). `owner` is
    the uid of the pod that an ephemeral volume's claim was made for, empty for others. `leaving`:
    it is being deleted, and no new pod may use it."""

    name: str
    volume: str
    resource_version: str = ""
    alone: bool = False
    owner: str = ""
    leaving: bool = False

    @property
    def about(self) -> About:
        return About()


class NamespaceObserved(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A namespace was first seen or its labels changed. Stream `namespace/<name>`."""

    name: str
    resource_version: str = ""
    labels: dict[str, str] = {}

    @property
    def about(self) -> About:
        return About()


class NodeVolumesLimited(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A CSINode was first seen or changed in how many volumes its drivers attach: `limits` is
    driver -> volumes, without the drivers that name none. Stream `csinode/<name>`, apart from the
    node's own, where it would cost reservations their race."""

    node: str
    resource_version: str = ""
    limits: dict[str, int] = {}

    @property
    def about(self) -> About:
        return About(node=self.node)


class NominationObserved(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A pending pod of another scheduler has `node` in `status.nominatedNodeName`: pods are evicted
    there for it, or its binding is prepared. `key` is its `namespace/name`, `requests` what it asks
    of the node as a whole, `zonal` what it takes at most of one zone where managers pin all of
    that. Ends with its own fact, with the pod, or when the pod has a node in the log. Stream
    `nomination/<pod_uid>`."""

    pod_uid: str
    key: str
    node: str
    resource_version: str = ""
    priority: int = 0
    requests: Amounts = {}
    zonal: Amounts = {}

    @property
    def about(self) -> About:
        return About(node=self.node)


class DeviceClassObserved(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A DeviceClass was first seen that names an extended resource, or names another: DRA drivers
    give `resource` where no device plugin offers it (`spec.extendedResourceName`, KEP-5004). Stream
    `deviceclass/<name>`."""

    name: str
    resource: str
    resource_version: str = ""

    @property
    def about(self) -> About:
        return About()


class SurroundingEnded(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A volume, claim, namespace, CSINode, nomination or DeviceClass is gone, or a volume or claim
    bound no more, or a class names no resource any more (`unbound`). On its own stream."""

    kind: Surrounding
    name: str
    cause: EndCause | Literal["unbound"] = "deleted"
    resource_version: str = ""

    @property
    def about(self) -> About:
        return About(node=self.name if self.kind == "csinode" else "")


SurroundingEvent = (
    VolumeObserved
    | ClaimObserved
    | NamespaceObserved
    | NodeVolumesLimited
    | NominationObserved
    | DeviceClassObserved
    | SurroundingEnded
)
_KINDS: frozenset[object] = frozenset(get_args(SurroundingEvent))


def is_surrounding(event: object) -> TypeGuard[SurroundingEvent]:
    """Whether the fact is one of these: asked for every fact that is folded, where `isinstance`
    costs ten times as much.
    """
    return type(event) in _KINDS


def stream_of(event: SurroundingEvent) -> str:
    """The stream of the object that the fact is about."""
    if isinstance(event, SurroundingEnded):
        return f"{event.kind}/{event.name}"
    if isinstance(event, NodeVolumesLimited):
        return f"csinode/{event.node}"
    if isinstance(event, NominationObserved):
        return f"nomination/{event.pod_uid}"
    return f"{_STREAMS[type(event)]}/{event.name}"


_STREAMS: dict[type, str] = {
    VolumeObserved: "volume",
    ClaimObserved: "claim",
    NamespaceObserved: "namespace",
    DeviceClassObserved: "deviceclass",
}
