"""The values that the picture shows: a row per node with a bar per zone, pods, the queue, counts.
Pure, from the ledger.

A zone's bar has three parts: used (by the report), charged but unconfirmed (where pending
admissions could land), free. Must not know terminals, keys or the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from services.replay.words import Sentence
from services.replay.zone_amounts import ZoneAmount, amounts_of, resources_in
from shared.domain.resources import CPU, MEMORY
from shared.ledger.state import Ledger, LedgerNode

STAGES = ("pending", "reserved", "intended", "bound", "running")
UNDECIDED = "not decided yet"


class ZoneBar(msgspec.Struct, frozen=True):
    """One resource of one zone, in Topolog's units; the parts add up to `total`."""

    zone: int
    used: int
    charged: int
    free: int

    @property
    def total(self) -> int:
        """The amount that pods may use."""
        return self.used + self.charged + self.free


class NodeRow(msgspec.Struct, frozen=True):
    """One node. `taken` is the share of its fullest zone that is used or charged, 0 to 1; `flags`
    says what keeps pods away; `pod_keys` are the charged pods.
    """

    name: str
    bars: tuple[ZoneBar, ...]
    pods: int
    taken: float
    flags: str = ""
    pod_keys: tuple[str, ...] = ()

    @property
    def rank(self) -> tuple[bool, float, str]:
        """Sort flagged nodes first, then full ones."""
        return (not self.flags, -self.taken, self.name)


class Totals(msgspec.Struct, frozen=True):
    """Values over all nodes and pods. They are computed now and then, not for each drawing."""

    resources: list[str]
    queue: list[Waiting]
    pods: list[PodRow]
    stages: dict[str, int]


class Waiting(msgspec.Struct, frozen=True):
    """One pod of the queue."""

    uid: str
    pod: str
    reason: str
    age_s: int = 0


class PodRow(msgspec.Struct, frozen=True):
    """One live pod. `node` is "" for a pod that is not placed."""

    uid: str
    pod: str
    node: str
    stage: str
    age_s: int = 0


class Newest(msgspec.Struct, frozen=True):
    """One of the newest events in words."""

    position: int
    time: str
    words: Sentence


class Picture(msgspec.Struct, frozen=True):
    """All values of one moment. `rows` are of `resource`, and `nodes` is their number. `rejected`
    counts rejections by kubelets since the reader began.
    """

    position: int = 0
    head: int = 0
    nodes: int = 0
    resource: str = ""
    rows: list[NodeRow] = []
    totals: Totals = Totals([], [], [], {})
    rates: dict[str, float] = {}
    rejected: int = 0
    newest: list[Newest] = []


def node_row(node: LedgerNode, resource: str) -> NodeRow:
    """Return the node's row for one resource."""
    bars = tuple(_bar(zone, size) for zone, size in amounts_of(node, resource).items())
    shares = [(bar.used + bar.charged) / bar.total for bar in bars if bar.total]
    return NodeRow(
        node.name,
        bars,
        len(node.charges),
        max(shares, default=0.0),
        flags_of(node),
        tuple(charge.key for charge in node.charges.values()),
    )


def _bar(zone: int, size: ZoneAmount) -> ZoneBar:
    best = min(size.allocatable, size.free_max)
    sure = min(best, size.free_min)
    return ZoneBar(zone, size.allocatable - best, best - sure, sure)


def flags_of(node: LedgerNode) -> str:
    """Return what keeps pods away from the node, "" for nothing."""
    node_object = node.observed
    flags = [
        (node_object is None, "no node object"),
        (node_object is not None and not node_object.ready, "not ready"),
        (node_object is not None and node_object.unschedulable, "cordoned"),
        (node.report is None, "no report yet"),
        (bool(node.locked), "locked out"),
        (node.expired, "expired"),
        (bool(node.dirty), "dirty"),
    ]
    return ", ".join(flag for is_set, flag in flags if is_set)


def resources_of(nodes: Iterable[LedgerNode]) -> list[str]:
    """Return every resource that a zone has, in this order: cpu, memory, devices, hugepages."""
    resources: set[str] = set()
    for node in nodes:
        resources |= resources_in(node)
    return sorted(
        resources,
        key=lambda name: (name != CPU, name != MEMORY, name.startswith("hugepages-"), name),
    )


def resource_at(resources: list[str], number: int) -> str:
    """Return the resource of a number, counted around; "" if there is none."""
    return resources[number % len(resources)] if resources else ""


def age_s(uid: str, created_us: Mapping[str, int], now_us: int) -> int:
    """Return the age of a pod in seconds, 0 if its creation is unknown."""
    return max(0, now_us - created_us.get(uid, now_us)) // 1_000_000


def age_text(seconds: int) -> str:
    """Return an age as kubectl prints it: 45s, 12m, 3h, 5d."""
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * unit_s:
            return f"{seconds // unit_s}{unit}"
    return f"{seconds}s"


_NO_AGES: Mapping[str, int] = {}


def queue_of(
    ledger: Ledger, created_us: Mapping[str, int] = _NO_AGES, now_us: int = 0
) -> list[Waiting]:
    """Return the waiting pods, first the pods with a reason."""
    waiting = [
        Waiting(
            uid,
            entry.pod.key,
            entry.problem or entry.verdict or UNDECIDED,
            age_s(uid, created_us, now_us),
        )
        for uid, entry in ledger.pods.items()
        if entry.stage == "pending"
    ]
    return sorted(waiting, key=lambda pod: (pod.reason == UNDECIDED, pod.pod))


def pods_of(ledger: Ledger, created_us: Mapping[str, int], now_us: int) -> list[PodRow]:
    """Return all live pods in order of name."""
    rows = [
        PodRow(uid, entry.pod.key, entry.node, entry.stage, age_s(uid, created_us, now_us))
        for uid, entry in ledger.pods.items()
    ]
    return sorted(rows, key=lambda row: row.pod)


def stages_of(ledger: Ledger) -> dict[str, int]:
    """Count live pods by stage."""
    counts = dict.fromkeys(STAGES, 0)
    for entry in ledger.pods.values():
        counts[entry.stage] += 1
    return counts


def totals_of(ledger: Ledger, created_us: Mapping[str, int], now_us: int) -> Totals:
    """Compute the values over all nodes and pods."""
    return Totals(
        resources_of(ledger.nodes.values()),
        queue_of(ledger, created_us, now_us),
        pods_of(ledger, created_us, now_us),
        stages_of(ledger),
    )
