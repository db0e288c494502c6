"""The result of a scheduling cycle: a node, the reasons without one, or victims to evict."""

from __future__ import annotations

import msgspec

from shared.domain.zone_allocation import DeviceHolding, ZoneAllocation
from shared.ledger.state import ZoneAmounts


class Placed(msgspec.Struct, frozen=True):
    """`score` is 0..100. `candidates` is how many nodes were not ruled out when this one was chosen
    (at least all that fit: nodes that scored lower are not always evaluated to the end).
    `predicted` is container -> zone ids, and `certain` says that no order of other pods and ends
    leads elsewhere. `one_zone` is what must be in one zone although the kubelet's policy does not
    require it. `allocation` is what the pod gets if Topolog chooses the node's zones. `booking` is
    the uid of the booking that gives its room to the pod. `predicted_gpus` are as in `PodReserved`.
    """

    node: str
    score: int
    candidates: int
    report_version: int
    predicted: dict[str, tuple[int, ...]] = {}
    certain: bool = False
    one_zone: str = ""
    allocation: ZoneAllocation | None = None
    booking: str = ""
    predicted_gpus: tuple[str, ...] = ()


class Unplaceable(msgspec.Struct, frozen=True):
    """`message` is one Kubernetes event line, `counts` reason text -> nodes, `detail` the nearest
    misses as JSON values (`shared.domain.refusal.Refusal`). `nodes` were filtered (0: the pod
    itself is refused), and evictions might help on `eviction_may_help` of them. `has_detail` is
    False if the details were left out, because the message is known.
    """

    message: str
    counts: dict[str, int] = {}
    detail: tuple[dict[str, object], ...] = ()
    nodes: int = 0
    eviction_may_help: int = 0
    has_detail: bool = True


class Nomination(msgspec.Struct, frozen=True):
    """Evict `victims` (uids) from `node`, then the pod fits. `zones` is the claim, so that no other
    pod takes the room meanwhile: by zone the larger of what the victims hold there and of what the
    pod will take. `devices` are those of the victims.
    """

    node: str
    victims: tuple[str, ...]
    zones: ZoneAmounts
    devices: tuple[DeviceHolding, ...] = ()
