"""Events about cluster objects other than pods and nodes, appended by the scheduler's observer:
volumes, claims, limits of nodes, namespaces, nominations by other schedulers, device classes,
PodGroups, devices of nodes.

Only what constraints need is stored: that a claim is bound, which nodes reach its volume, how many
volumes of a driver a node takes, labels of namespaces, for which pending pods room is kept, which
resources drivers give by a class, and how many pods of a gang are placed together.
"""

from __future__ import annotations

from typing import Literal, TypeGuard, get_args

import msgspec

from shared.domain.gang import GangRules, PodGroupApi
from shared.domain.pod import NodeSelectorTerm
from shared.domain.resources import Amounts
from shared.events.about import About, AboutNode, AboutNothing
from shared.events.cluster_events import EndCause
from shared.owned.devices import Device, Partitions

Surrounding = Literal[
    "volume", "claim", "namespace", "csinode", "nomination", "deviceclass", "devices", PodGroupApi
]


class VolumeObserved(
    AboutNothing, msgspec.Struct, frozen=True, tag=True, omit_defaults=True, gc=False
):
    """A bound PersistentVolume was first seen or changed. Stream `volume/<name>`.

    `driver` and `handle` are those of its CSI driver, empty for others. `terms` is its required
    node affinity: () for none, else a node must match one of them. `zones` are its zone and region
    labels, each with its values."""

    name: str
    resource_version: str = ""
    driver: str = ""
    handle: str = ""
    terms: tuple[NodeSelectorTerm, ...] = ()
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()


class ClaimObserved(
    AboutNothing, msgspec.Struct, frozen=True, tag=True, omit_defaults=True, gc=False
):
    """A PersistentVolumeClaim is bound to `volume`. Stream `claim/<namespace>/<name>`.

    `name` is `namespace/name`. `alone` is true for ReadWriteOncePod. `owner` is the uid of the pod
    of an ephemeral volume. `leaving` means that it is being deleted, and no new pod may use it."""

    name: str
    volume: str
    resource_version: str = ""
    alone: bool = False
    owner: str = ""
    leaving: bool = False


class NamespaceObserved(AboutNothing, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A namespace was first seen, or its labels changed. Stream `namespace/<name>`."""

    name: str
    resource_version: str = ""
    labels: dict[str, str] = {}


class NodeVolumesLimited(AboutNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A CSINode was first seen, or its volume limits changed. `limits` is driver -> volumes,
    without drivers that have no limit. Stream `csinode/<name>`, not the node's own, because
    reservations there would lose races."""

    node: str
    resource_version: str = ""
    limits: dict[str, int] = {}


class NominationObserved(AboutNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A pending pod of another scheduler has `node` in `status.nominatedNodeName`. Stream
    `nomination/<pod_uid>`.

    `key` is its `namespace/name`, `requests` its request on the node as a whole, and `zonal` the
    most that it takes of one zone if managers pin all of that. The nomination ends with its own
    event, with the pod, or when the pod has a node in the log."""

    pod_uid: str
    key: str
    node: str
    resource_version: str = ""
    priority: int = 0
    requests: Amounts = {}
    zonal: Amounts = {}


class DeviceClassObserved(AboutNothing, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A DeviceClass with an extended resource (`spec.extendedResourceName`, KEP-5004) was first
    seen, or names another `resource`. Stream `deviceclass/<name>`."""

    name: str
    resource: str
    resource_version: str = ""


class PodGroupObserved(AboutNothing, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A PodGroup of one `api` was first seen or changed. Stream `<api>/<namespace>/<name>`.

    `name` is `namespace/name`. `minimum` of its pods are placed together, 0 or 1 for each by itself
    (policy `basic`). `problem` names a field that Topolog does not keep; the pods wait then.
    `rules`: its match policy and layers."""

    api: PodGroupApi
    name: str
    minimum: int = 0
    resource_version: str = ""
    problem: str = ""
    rules: GangRules = GangRules()


class NodeDevicesObserved(AboutNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A node's Device object (scheduling.koordinator.sh/v1alpha1) was first seen or changed. Stream
    `devices/<node>`.

    `partitions` is number of GPUs -> the sets of GPUs that may be given together, as bits, or None
    without a table. With `keeps_partitions` whole GPUs are given by the table or not at all.
    `problem` is the first mistake in the object; devices with a mistake count as unhealthy."""

    node: str
    resource_version: str = ""
    devices: tuple[Device, ...] = ()
    partitions: Partitions | None = None
    keeps_partitions: bool = False
    problem: str = ""


class SurroundingEnded(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A volume, claim, namespace, CSINode, nomination, DeviceClass, PodGroup or Device object no
    longer exists, a volume or claim is no longer bound, or a class no longer names a resource
    (`unbound`). On the stream of the object."""

    kind: Surrounding
    name: str
    cause: EndCause | Literal["unbound"] = "deleted"
    resource_version: str = ""

    @property
    def about(self) -> About:
        return About(node=self.name if self.kind in ("csinode", "devices") else "")


SurroundingEvent = (
    VolumeObserved
    | ClaimObserved
    | NamespaceObserved
    | NodeVolumesLimited
    | NominationObserved
    | DeviceClassObserved
    | PodGroupObserved
    | NodeDevicesObserved
    | SurroundingEnded
)
_KINDS: frozenset[object] = frozenset(get_args(SurroundingEvent))


def is_surrounding(event: object) -> TypeGuard[SurroundingEvent]:
    """Return True for these events. Asked for every event that is folded, and `isinstance` would
    cost ten times as much."""
    return type(event) in _KINDS


def stream_of(event: SurroundingEvent) -> str:
    """Return the stream of the object that the event is about."""
    if isinstance(event, SurroundingEnded):
        return f"{event.kind}/{event.name}"
    if isinstance(event, NodeVolumesLimited):
        return f"csinode/{event.node}"
    if isinstance(event, NodeDevicesObserved):
        return f"devices/{event.node}"
    if isinstance(event, NominationObserved):
        return f"nomination/{event.pod_uid}"
    if isinstance(event, PodGroupObserved):
        return f"{event.api}/{event.name}"
    return f"{_STREAMS[type(event)]}/{event.name}"


_STREAMS: dict[type, str] = {
    VolumeObserved: "volume",
    ClaimObserved: "claim",
    NamespaceObserved: "namespace",
    DeviceClassObserved: "deviceclass",
}
