"""Events of decisions: scheduling outcomes, reservations with their charges, bookings, dirty marks,
reconciliations, nominations, exclusions and demand."""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.domain.booking import Terms
from shared.domain.pod import Pod
from shared.domain.resources import Amounts
from shared.domain.zone_allocation import DeviceHolding, ZoneAllocation
from shared.events.about import AboutNode, AboutNothing, AboutPod, AboutPodOnNode

ReconcileMethod = Literal["proof", "fingerprint", "empty"]
# How the preemptor of evictions begins that roll a gang back; its name follows.
OF_GANG = "gang "
WithdrawCause = Literal["node_ended", "unasked", "gang", "node_leaves"]

AsideCause = Literal["rejected", "denied", "contested"]
HoldEndCause = Literal["placed", "ended", "hopeless", "unasked"]
ReadmitCause = Literal["retry", "operator"]
BookingEndCause = Literal["deleted", "expired"]
AllocationSource = Literal["annotation", "enforcer"]


class PodVerdictChanged(AboutPod, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The pod cannot be placed, for another reason than before. Stream `pod/<uid>`.

    `counts` is reason -> number of nodes, and `message` the text of the Kubernetes Event. `detail`
    has the nearest nodes for `explain`. `based_on`, `order`, `config` and `code` are as in
    `PodReserved`."""

    uid: str
    message: str
    counts: dict[str, int] = {}
    detail: tuple[dict[str, object], ...] = ()
    based_on: int = 0
    order: int = 0
    config: str = ""
    code: str = ""


class PodReserved(AboutPodOnNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A node was chosen for the pod. Stream `pod/<uid>`, in one commit with `NodeCharged`.

    `report_version` is the version of `report/<node>` that was used, `order` the place in the
    batch, and `candidates` how many nodes passed. `predicted` has zone ids by container. `certain`:
    every kubelet state that log and report allow leads to these zones; later events may void that
    (`shared/ledger/certainty.py`). `one_zone` is what must be in one zone beyond the kubelet's
    policy (each `container`, the `pod`, or nothing); preferences of the keys in `without_effect`
    are ignored. `allocation` is what the pod gets if Topolog chooses the zones. `drawn_from` is the
    uid of the booking that gives its room. `predicted_gpus` are sets of GPUs by number, one of
    which the device plugin prefers. `gang` is how many pods of its gang this commit reserves, 0 for
    a pod by itself, and `gang_domain` has the labels of all their nodes. `config` and `code` are
    fingerprints: with the log up to `based_on` and the earlier reservations of the batch, the same
    configuration and code decide the same again.
    """

    uid: str
    node: str
    report_version: int = 0
    based_on: int = 0
    order: int = 0
    score: int = 0
    candidates: int = 0
    predicted: dict[str, tuple[int, ...]] = {}
    nominated: bool = False
    config: str = ""
    code: str = ""
    certain: bool = False
    without_effect: tuple[str, ...] = ()
    one_zone: str = ""
    allocation: ZoneAllocation | None = None
    gang: int = 0
    drawn_from: str = ""
    gang_domain: dict[str, str] = {}
    predicted_gpus: tuple[str, ...] = ()


class NodeCharged(AboutPodOnNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The pod is charged to the node from here on. Stream `node/<name>`.

    `zones` is the charge when it was decided (zone id -> amounts), for people; the fold computes it
    again and widens it. `narrowed`, if predictions are trusted: container ("" for the whole pod) ->
    zones to which the charge is limited until an event widens it."""

    node: str
    uid: str
    zones: dict[int, Amounts] = {}
    narrowed: dict[str, tuple[int, ...]] = {}


class PodAllocationFound(AboutPodOnNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A pod that Topolog did not place holds these zones and devices of a node whose zones Topolog
    chooses, by the annotation of another scheduler or by the node's enforcer. Stream
    `pod/<uid>`."""

    uid: str
    node: str
    allocation: ZoneAllocation
    source: AllocationSource = "annotation"


class PodDevicesLost(AboutPodOnNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The node's Device object lacks these devices of the pod, shows them unhealthy, or offers less
    of them than pods hold: `gpu 3`. None: it shows all of them again. Stream `pod/<uid>`."""

    uid: str
    node: str
    devices: tuple[str, ...] = ()


class BookingMade(AboutPod, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Room is to be kept for pods that come later. Stream `pod/<uid>`.

    `pod` stands for the booking: it is decided, reserved and charged like a pod, and never bound.
    The room shrinks by `PodReserved` with this uid as `drawn_from`, and grows when such a pod
    ends. `resource_version` is that of a Reservation object, and `problem` says why it cannot be
    kept."""

    uid: str
    pod: Pod
    terms: Terms
    resource_version: str = ""
    problem: str = ""


class BookingEnded(AboutPod, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The rest of the booking is free; its pods keep what they have. Stream `pod/<uid>`. A booking
    for one pod ends with that pod's reservation, without this event."""

    uid: str
    cause: BookingEndCause = "deleted"
    resource_version: str = ""


class ReservationWithdrawn(
    AboutPodOnNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True
):
    """The reservation ends, and no binding was or will be made by it. Stream `pod/<uid>`.

    Its node ended or leaves for another cell, the extender's caller no longer waits (`unasked`), or
    too few pods of its `gang` still have a node."""

    uid: str
    node: str
    cause: WithdrawCause


class NodeMarkedDirty(AboutNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A node with unconfirmed reservations was refused several times in a row, so its next reports
    are compared. Stream `node/<name>`."""

    node: str
    cause: str
    rejections: int = 0


class NodeReconciled(AboutNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The report of `report_version` agrees with the pods expected at position `settled_to`, which
    confirms the charges up to there. Stream `node/<name>`.

    The commit id is made from the report, so that several schedulers append it once."""

    node: str
    method: ReconcileMethod
    report_version: int
    settled_to: int
    fingerprint: str = ""


class PodNominated(AboutPodOnNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A preemptor claims `node`: the claim charges the zones and devices of its victims until the
    pod binds or the nomination is withdrawn. Stream `pod/<uid>`. `config` and `code` are as in
    `PodReserved`."""

    uid: str
    node: str
    victims: tuple[str, ...] = ()
    zones: dict[int, Amounts] = {}
    based_on: int = 0
    config: str = ""
    code: str = ""
    devices: tuple[DeviceHolding, ...] = ()


class NodeClaimed(AboutPodOnNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The claim of `PodNominated`, of the same commit, on the node's stream `node/<name>`, so that
    a decision on the node and a claim on it cannot miss each other."""

    node: str
    uid: str


class NominationWithdrawn(
    AboutPodOnNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True
):
    """The claim of a nominated pod ends: the pod was placed elsewhere, ended, or no longer fits.
    Stream `pod/<uid>`."""

    uid: str
    node: str
    cause: str


class NodeSetAside(AboutPodOnNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The node is excluded for a pod class (`shape`). Stream `node/<name>`.

    Its kubelet rejected a pod that should have been admitted (`rejected`), an admission policy
    denied its binding (`denied`), or reservations on it lost too many races in a row (`contested`).
    It ends with a report that changes the reason, or with `NodeReadmitted`. `evidence` is the
    position of the event that shows the reason, 0 for conflicts. `strikes` counts exclusions since
    a pod of the class last ran there."""

    node: str
    shape: str
    cause: AsideCause
    detail: str
    uid: str = ""
    evidence: int = 0
    strikes: int = 1


class NodeReadmitted(AboutNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The exclusion of the node for a pod class (`shape`; "" for all) ends: the node is tried again
    (`retry`), or an operator ended it. Stream `node/<name>`."""

    node: str
    shape: str = ""
    cause: ReadmitCause = "retry"


class PodReadmitted(AboutPod, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A pod with a `forbidden` or `invalid` binding is decided again. Stream `pod/<uid>`."""

    uid: str
    cause: ReadmitCause = "retry"


class HoldBegun(AboutPodOnNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The pod (`key`) is overdue: it has waited for `waited_s`, longer than `after_s`
    (`topolog.io/hold-after` or the setting). Until `HoldEnded` the node takes no other pod of this
    `priority` or a lower one. Stream `hold/<uid>`.

    `must_end` is how many pods were there and would have to end at most."""

    uid: str
    node: str
    key: str
    priority: int = 0
    after_s: int = 0
    waited_s: int = 0
    must_end: int = 0


class HoldEnded(AboutPodOnNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The node takes other pods again. Stream `hold/<uid>`.

    The pod has a node (`placed`) or `ended`, the node would not take it even without the other pods
    (`hopeless`), or no bound on its waiting applies any more (`unasked`)."""

    uid: str
    node: str
    cause: HoldEndCause


class GangRolledBack(AboutNothing, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Pods of a gang (its key) are evicted: for `waited_s` only these were bound, fewer than its
    `minimum`. One stream, `gang/rolled-back`, so that of two such gangs one yields.

    If an eviction is refused, those without intent are called off."""

    gang: str
    uids: tuple[str, ...]
    minimum: int
    waited_s: int

    @property
    def preemptor(self) -> str:
        return OF_GANG + self.gang.partition("/")[2]


class Wanted(msgspec.Struct, frozen=True, omit_defaults=True):
    """A demand class: amounts that containers (or pods, if kubelets align whole pods) request of
    one zone together, and its weight when nodes are ranked.

    The weight was computed from how many of them run (`running`) and wait (`waiting`), and for how
    many more the cluster's zones had room (`room`)."""

    amounts: Amounts
    weight: int
    running: int = 0
    waiting: int = 0
    room: int = 0


class DemandWeighed(AboutNothing, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The demand classes, the scarcest first. Stream `demand`.

    Strategies that consider room rank nodes by the newest of these events."""

    wanted: tuple[Wanted, ...] = ()


SchedulingEvent = (
    PodVerdictChanged
    | PodReserved
    | NodeCharged
    | PodAllocationFound
    | PodDevicesLost
    | BookingMade
    | BookingEnded
    | ReservationWithdrawn
    | NodeMarkedDirty
    | NodeReconciled
    | PodNominated
    | NodeClaimed
    | NominationWithdrawn
    | NodeSetAside
    | NodeReadmitted
    | PodReadmitted
    | HoldBegun
    | HoldEnded
    | GangRolledBack
    | DemandWeighed
)
