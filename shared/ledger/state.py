"""The ledger's state: nodes with their report, charges and bounds; live pods with their stage.

Plain values without cycles, so that the collector need not look at them, changed only by
`shared.ledger.fold`. `free_min` and `free_max` are kept incrementally and always equal to what
`shared.ledger.view` computes from scratch (a property test holds them equal).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.domain.demand import ContainerDemand
from shared.domain.pod import Pod
from shared.domain.report import Placement, Report
from shared.domain.resources import Amounts
from shared.events.cluster_events import NodeObserved

Stage = Literal["pending", "reserved", "intended", "bound", "running"]

ZoneAmounts = dict[int, Amounts]


NOT_SENT_YET = (1 << 62) - 1
"""`sent_at` of a reservation that is not in the log yet: whatever is there comes before it."""


class Alias(msgspec.Struct, gc=False):
    """Another uid of the same namespace/name was on this node: its placements must not prove the
    newcomer.

    `baseline` is what the report listed for the name when the newcomer was charged; None when it
    listed nothing complete, so that only a report without the name clears the alias."""

    baseline: tuple[Placement, ...] | None = None


class Charge(msgspec.Struct, gc=False):
    """One live pod on one node. `possible` is container name -> zones where it could land ("" is
    the whole pod: pod scope or several zones); it only widens until the pod is proven. `held` is
    zone -> amounts as last proven, in boot `confirmed_boot`. `zones` is what the view subtracts now
    (empty while the current report proves the pod). `sent_at` is the position of its reservation,
    before which it cannot have come, 0 where it may have; `runs_at` that from which its kubelet is
    known to run it, wherever, 0 while it may still be on its way; `started_s` is when by the node's
    clock, 0 for unknown. `narrowed`: a trusted prediction holds `possible` to fewer zones."""

    uid: str
    key: str
    charged_at: int
    demand: tuple[ContainerDemand, ...] = ()
    possible: dict[str, tuple[int, ...]] = {}
    confirmed: bool = False
    confirmed_zones: ZoneAmounts = {}
    confirmed_boot: str = ""
    zones: ZoneAmounts = {}
    alias: Alias | None = None
    sent_at: int = 0
    runs_at: int = 0
    started_s: int = 0
    narrowed: bool = False

    @property
    def is_admitted(self) -> bool:
        """Until then it may arrive before or after any other pod."""
        return self.runs_at > 0


class LedgerPod(msgspec.Struct, gc=False):
    """A live pod. `verdict` is the message of its last negative verdict, `rejections` are not kept
    here (volatile). `victims` are those that are to be evicted from the node it is nominated for.
    """

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


class Life(msgspec.Struct, frozen=True, gc=False):
    """What a pod took that ended at this position, and finished in this second of the node's clock
    (0 for unknown); the rest as its charge had it."""

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
    """A pod of this name ended here. `complete`: the listing proved it when it ended, so the
    placements are known to be whole. `lacking` counts the reports since that do not list it; late
    reports make one of them no evidence. `lives` are all of the name that held something, as long
    as it is not forgotten; None where nobody can say who took what when."""

    complete: bool
    lacking: int = 0
    lives: tuple[Life, ...] | None = None
    # The last pod of the name, if it ended by absence from a list alone. As long as reports list it,
    # it keeps its charge; `is_counted`: its request is part of `LedgerNode.requested`.
    absent: AbsentPod | None = None
    is_counted: bool = False


class Expectation(msgspec.Struct, frozen=True, gc=False):
    """The pods expected on a node from `position` on, as (key, uid), sorted; kept only where
    reports carry no placements.
    """

    position: int
    pods: tuple[tuple[str, str], ...]


class Freed(msgspec.Struct, frozen=True, gc=False):
    """What the end of a pod at `position` may have given back, zone by zone (an upper bound)."""

    position: int
    zones: ZoneAmounts


class LedgerNode(msgspec.Struct, gc=False):
    """One node: its object, its current report, the charges on it, and the bounds that follow.

    `observed_at`: where in the log its Node object of this uid was seen first. `report` is the
    newest, `basis` the one that the bounds stand on: the newest too, or, where reports carry no
    placements, the last that a fingerprint match settled. `listed` holds the newest report's
    placements by `namespace/name` (None: it carries none; both reports are kept without theirs).
    `bearers` is `namespace/name` -> how many charged pods bear it, which is asked for each
    newcomer. `ended` holds names of ended pods that reports may still list. `freed` is what pods
    that ended and that the basis may still count have given back, where no listing says it (upper
    bound only). `departed`: uid -> what a pod that left is listed with, while expectations name it.
    `requested` is the node-level sum of live pods' effective requests; `claims` are nominees' by
    uid. `locked` says why the reports of an expired node are refused; `released`: an operator said
    that the next one counts, as that of a new boot. `gone`: there was a Node object, and it is
    there no more. `unlisted`: resource -> ids of devices that reports of this boot listed and the
    newest does not (`shared.domain.idlist`). `in_zones`: resources of which they listed a device in
    a zone.
    """

    name: str
    observed: NodeObserved | None = None
    observed_at: int = 0
    report: Report | None = None
    report_version: int = 0
    report_position: int = 0
    basis: Report | None = None
    listed: dict[str, tuple[Placement, ...]] | None = None
    expired: bool = False
    locked: str = ""
    released: bool = False
    charges: dict[str, Charge] = {}
    name_counts: dict[str, int] = {}
    ended: dict[str, Ended] = {}
    freed: list[Freed] = []
    departed: dict[str, Amounts] = {}
    free_min: ZoneAmounts = {}
    free_max: ZoneAmounts = {}
    requested: Amounts = {}
    dirty: str = ""
    confirmed_to: int = 0
    history: list[Expectation] = []
    claims: dict[str, ZoneAmounts] = {}
    is_deleted: bool = False
    unlisted_devices: dict[str, str] = {}
    resources_in_zones: tuple[str, ...] = ()


class Ledger(msgspec.Struct):
    """Everything the log says, folded up to `position`."""

    position: int = 0
    log_id: str = ""
    timeline: int = 0
    nodes: dict[str, LedgerNode] = {}
    pods: dict[str, LedgerPod] = {}
