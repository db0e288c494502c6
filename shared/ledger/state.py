"""The ledger's state: nodes with their report, charges and bounds, and live pods with their stage.

Plain values without cycles, so that the garbage collector may skip them (`gc=False`), and changed
only by `shared.ledger.fold`. `free_min` and `free_max` are kept up to date step by step and always
equal what `shared.ledger.view` computes from scratch (tests/ledger/test_properties.py).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.domain.booking import Terms
from shared.domain.demand import ContainerDemand
from shared.domain.pod import Pod
from shared.domain.report import Placement, Report, ZonedAmount
from shared.domain.resources import Amounts
from shared.domain.zone_allocation import DeviceHolding, ZoneAllocation
from shared.events.cluster_events import NodeObserved
from shared.events.surroundings_events import NodeDevicesObserved

Stage = Literal["pending", "reserved", "intended", "bound", "running"]

ZoneAmounts = dict[int, Amounts]

# `sent_at` of a reservation that is not in the log yet: everything else comes before it.
NOT_SENT_YET = (1 << 62) - 1


class Alias(msgspec.Struct, gc=False):
    """Marks a charge if another uid had the same namespace/name on this node: the placements of the
    other pod must not confirm it.

    `baseline` is what the report listed for the name when the pod was charged. None if that was not
    complete: then only a report without the name clears the alias."""

    baseline: tuple[Placement, ...] | None = None


class Charge(msgspec.Struct, gc=False):
    """The zone resources that one live pod may hold on one node. Positions are of the log."""

    uid: str
    key: str  # namespace/name
    charged_at: int
    demand: tuple[ContainerDemand, ...] = ()
    # Container -> zones where it could be; "" is the whole pod. It only widens until a report
    # confirms the pod.
    possible: dict[str, tuple[int, ...]] = {}
    # The current report shows where the pod is.
    confirmed: bool = False
    # Zone -> amounts as last confirmed in this boot: another boot clears it (`forget_places`).
    confirmed_zones: ZoneAmounts = {}
    # What the pod subtracts from `free_min` now.
    zones: ZoneAmounts = {}
    alias: Alias | None = None
    # The position of its reservation, before which it cannot have been admitted; 0 for unknown.
    sent_at: int = 0
    # From this position on its kubelet is known to run it; 0 while it may still be on its way.
    runs_at: int = 0
    # The second of its start by the node's clock; 0 for unknown.
    started_s: int = 0
    # A trusted prediction holds `possible` to fewer zones.
    narrowed: bool = False
    # What must be in one zone, by its reservation (`PodReserved.one_zone`).
    one_zone: str = ""
    # Where annotations of the pod say that it is (`PodObserved.placement`).
    observed: tuple[ZonedAmount, ...] = ()
    # The pod's request on the node as a whole, shared by pods of one kind.
    request: Amounts = {}
    # What Topolog, or another scheduler, chose for the pod where no kubelet chooses zones; None if
    # that is not known.
    allocation: ZoneAllocation | None = None
    # Its devices that the node's Device object no longer offers (`PodDevicesLost`).
    lost_devices: tuple[str, ...] = ()
    # It is the room of a booking: no kubelet ever gets the pod.
    booked: bool = False

    @property
    def is_admitted(self) -> bool:
        return self.runs_at > 0


class Booking(msgspec.Struct, gc=False):
    """A booking as it was made: its whole pod, and its zones where it was placed last. `since_us`
    is the time when it was made, placed or ended. If it has ended, but its Reservation object is
    still there: how, on which node, and which pods used it then.
    """

    terms: Terms
    pod: Pod
    allocation: ZoneAllocation | None = None
    since_us: int = 0
    ended: Literal["", "used", "expired"] = ""
    ended_on: str = ""
    users: tuple[Pod, ...] = ()


class LedgerPod(msgspec.Struct, gc=False):
    """A live pod. `verdict` is the message of its last negative result, and `victims` are to be
    evicted from the node it is nominated for. With `booking` it stands for a booking, and has the
    rest of that. `drawn_from` is the booking that gave its room to the pod."""

    pod: Pod
    stage: Stage = "pending"
    node: str = ""
    charged_at: int = 0
    reserved_at: int = 0
    observed_at: int = 0
    resource_version: str = ""
    verdict: str = ""
    problem: str = ""
    nominated: str = ""
    victims: tuple[str, ...] = ()
    static: bool = False
    terminating: bool = False
    predicted: dict[str, tuple[int, ...]] = {}
    # The prediction is certain, by the decision and by all that happened on the node since.
    certain: bool = False
    one_zone: str = ""
    allocation: ZoneAllocation | None = None
    # The resource that no zone has, by its last negative result; "" if it waits for a node.
    zone_wait: str = ""
    booking: Booking | None = None
    drawn_from: str = ""


class Life(msgspec.Struct, frozen=True, gc=False):
    """What a pod took that ended at position `ended_at`. It finished in second `finished_s` of the
    node's clock, 0 for unknown; the rest is as in its charge."""

    demand: tuple[ContainerDemand, ...]
    sent_at: int
    runs_at: int
    ended_at: int
    started_s: int = 0
    finished_s: int = 0


class AbsentPod(msgspec.Struct, frozen=True, gc=False):
    """A pod that ended only because a list of the API server lacked it."""

    uid: str
    request: Amounts


class Ended(msgspec.Struct, gc=False):
    """Pods of one namespace/name that ended on the node, while reports may still list them."""

    # The report confirmed the last of them when it ended, so that its placements are complete.
    complete: bool
    # Reports since then that do not list the name. One is no evidence, because reports may be late.
    lacking: int = 0
    # All of the name that held something; None if it is not known which of them took what.
    lives: tuple[Life, ...] | None = None
    # The last of them, if it ended by absence from a list. As long as reports list it, it keeps its
    # charge; then `is_counted` is True and its request is part of `LedgerNode.requested`.
    absent: AbsentPod | None = None
    is_counted: bool = False
    # No event ended the last of them: a question supposes its end, or the pod was resized.
    is_supposed: bool = False


class Expectation(msgspec.Struct, frozen=True, gc=False):
    """The pods expected on a node from `position` on, as sorted (key, uid). Kept only if reports
    carry no placements."""

    position: int
    pods: tuple[tuple[str, str], ...]


class Freed(msgspec.Struct, frozen=True, gc=False):
    """The most that the end of a pod at `position` may have given back."""

    position: int
    zones: ZoneAmounts


class LedgerNode(msgspec.Struct, gc=False):
    """One node: its object, its reports, the charges on it, and the bounds that follow."""

    name: str
    observed: NodeObserved | None = None
    # Position of the first event about the Node object of this uid.
    observed_at: int = 0
    # The newest report, without its placements.
    report: Report | None = None
    report_version: int = 0
    report_position: int = 0
    # The report that the bounds are computed from: the newest, or, if reports carry no placements,
    # the last report that a fingerprint match confirmed.
    basis: Report | None = None
    # The newest report's placements by namespace/name; None if it carries none.
    listed: dict[str, tuple[Placement, ...]] | None = None
    expired: bool = False
    # Why the reports of an expired node are refused.
    locked: str = ""
    # An operator released the node: the next report counts as that of a new boot.
    released: bool = False
    charges: dict[str, Charge] = {}
    # namespace/name -> number of charged pods with that name.
    name_counts: dict[str, int] = {}
    ended: dict[str, Ended] = {}
    # What pods that ended may have given back although the basis still counts it (`free_max` only).
    freed: list[Freed] = []
    # uid -> the amounts that a pod that left is listed with, while expectations name it.
    departed: dict[str, Amounts] = {}
    # Guaranteed free, and free at most, by zone.
    free_min: ZoneAmounts = {}
    free_max: ZoneAmounts = {}
    # The sum of the live pods' effective requests on the node as a whole.
    requested: Amounts = {}
    # Why the node is marked for comparison with its next report.
    dirty: str = ""
    # A fingerprint match confirmed the charges up to this position.
    confirmed_to: int = 0
    history: list[Expectation] = []
    # Claims of nominated pods, by uid.
    claims: dict[str, ZoneAmounts] = {}
    # Devices in these claims, by uid.
    device_claims: dict[str, tuple[DeviceHolding, ...]] = {}
    # Its Device object, if it has one.
    devices: NodeDevicesObserved | None = None
    # There was a Node object, and it was deleted.
    is_deleted: bool = False
    # Resource -> ids of devices that reports of this boot listed and the newest does not
    # (`shared.domain.idlist`).
    unlisted_devices: dict[str, str] = {}
    # Resources of which reports of this boot listed a device in a zone.
    resources_in_zones: tuple[str, ...] = ()
    # Pods that ended since a report showed the node empty, as far as they may matter; None if there
    # was no such report, or if what happened since is not known (`since_empty`).
    since_empty: tuple[Life, ...] | None = None


class Ledger(msgspec.Struct):
    """The state of the log up to `position`."""

    position: int = 0
    log_id: str = ""
    timeline: int = 0
    nodes: dict[str, LedgerNode] = {}
    pods: dict[str, LedgerPod] = {}
