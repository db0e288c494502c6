"""The catalog: every event type, its schema version, and its area. Adding an event begins here
(CONTRIBUTING.md).

A type's schema number only grows. An old number needs an upcaster (`shared.events.upcasting`) and
keeps its vectors.
"""

from __future__ import annotations

from typing import NamedTuple

from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events import log_events as log
from shared.events import report_events as report
from shared.events import scheduling_events as scheduling
from shared.events import surroundings_events as surroundings

Event = (
    report.ReportEvent
    | cluster.ClusterEvent
    | surroundings.SurroundingEvent
    | scheduling.SchedulingEvent
    | binding.BindingEvent
    | log.LogEvent
)


class Entry(NamedTuple):
    """One event type. `area` is the file that defines the struct: `<area>_events.py`."""

    struct: type[Event]
    schema: int
    area: str


# Schema numbers beyond 1.
_GROWN = {
    "NodeReported": 4,
    "NodeReportChanged": 4,
    "NodeObserved": 2,
    "NodeEnded": 2,
    "PodEnded": 2,
    "ReservationWithdrawn": 2,
}


def _area(area: str, *structs: type[Event]) -> dict[str, Entry]:
    return {
        struct.__name__: Entry(struct, _GROWN.get(struct.__name__, 1), area) for struct in structs
    }


CATALOG: dict[str, Entry] = {
    **_area(
        "report",
        report.NodeReported,
        report.NodeReportChanged,
        report.NodeReportExpired,
        report.NodeReportRefused,
        report.NodeReleased,
    ),
    **_area(
        "cluster",
        cluster.NodeObserved,
        cluster.NodeEnded,
        cluster.PodObserved,
        cluster.PodRunning,
        cluster.PodEnded,
        cluster.ClusterListed,
    ),
    **_area(
        "surroundings",
        surroundings.VolumeObserved,
        surroundings.ClaimObserved,
        surroundings.NamespaceObserved,
        surroundings.NodeVolumesLimited,
        surroundings.NominationObserved,
        surroundings.DeviceClassObserved,
        surroundings.PodGroupObserved,
        surroundings.NodeDevicesObserved,
        surroundings.SurroundingEnded,
    ),
    **_area(
        "scheduling",
        scheduling.PodVerdictChanged,
        scheduling.PodReserved,
        scheduling.NodeCharged,
        scheduling.PodAllocationFound,
        scheduling.PodDevicesLost,
        scheduling.BookingMade,
        scheduling.BookingEnded,
        scheduling.ReservationWithdrawn,
        scheduling.NodeMarkedDirty,
        scheduling.NodeReconciled,
        scheduling.PodNominated,
        scheduling.NodeClaimed,
        scheduling.NominationWithdrawn,
        scheduling.NodeSetAside,
        scheduling.NodeReadmitted,
        scheduling.PodReadmitted,
        scheduling.HoldBegun,
        scheduling.HoldEnded,
        scheduling.GangRolledBack,
        scheduling.DemandWeighed,
    ),
    **_area(
        "binding",
        binding.BindIntended,
        binding.PodBound,
        binding.BindRefused,
        binding.BindUncertain,
        binding.EvictIntended,
        binding.PodEvicted,
        binding.EvictRefused,
    ),
    **_area("log", log.LogOpened, log.FactSkipped, log.FactsRedacted),
}

# Grows with every type and every schema, so the newer of two releases has the larger number.
EXTENT = sum(entry.schema for entry in CATALOG.values())
