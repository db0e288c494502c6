"""Events of the topology-store: reports of a node's exporter, and its silence. Stream
`report/<node>`."""

from __future__ import annotations

import msgspec

from shared.domain.report import Placement, Report
from shared.events.about import About, AboutNode


class NodeReported(msgspec.Struct, frozen=True, tag=True):
    """A full report: the first of a boot, after a change of shape, and periodically."""

    report: Report

    @property
    def about(self) -> About:
        return About(node=self.report.node)


class NodeReportChanged(AboutNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The changes since the last report on this stream (same boot, same shape of zones).

    `available` is zone id -> resource -> new available amount. `listed` has the placements of pods
    that are new or changed (all containers of the pod), and `unlisted` the `namespace/pod` keys no
    longer listed. `free` is zone id -> all of the Memory Manager's own figures, for zones with a
    change, and `groups` is zone id -> its new group. `checkpoints`, `hidden`, `container_zones` and
    `enforced` are None if they did not change."""

    node: str
    boot_id: str
    boot_time_ms: int
    exporter: str = ""
    available: dict[int, dict[str, int]] = {}
    listed: tuple[Placement, ...] = ()
    unlisted: tuple[str, ...] = ()
    fingerprint: str = ""
    free: dict[int, dict[str, int]] = {}
    groups: dict[int, tuple[int, ...]] = {}
    checkpoints: tuple[str, ...] | None = None
    hidden: tuple[Placement, ...] | None = None
    container_zones: tuple[int, ...] | None = None
    enforced: tuple[Placement, ...] | None = None


class NodeReportExpired(AboutNode, msgspec.Struct, frozen=True, tag=True):
    """The node was silent for longer than `report_max_age_s`. It takes no pod that needs alignment
    until it reports again."""

    node: str
    silent_s: int


class NodeReportRefused(AboutNode, msgspec.Struct, frozen=True, tag=True):
    """A report was refused because it contradicts earlier ones: a superseded boot returned, or its
    boot time is impossible. Appended once per exporter instance, and once more if the node has
    expired since: then these refusals lock it out."""

    node: str
    boot_id: str
    exporter: str
    reason: str


class NodeReleased(AboutNode, msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """An operator (`by`) released the node: its next report counts as that of a new boot, whichever
    boot and time it names, and boots superseded before are forgotten."""

    node: str
    by: str = ""
    reason: str = ""


ReportEvent = (
    NodeReported | NodeReportChanged | NodeReportExpired | NodeReportRefused | NodeReleased
)
