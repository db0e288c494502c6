"""Facts of the topology-store: what a node's exporter reported, and that it fell silent. Stream
`report/<node>`.
"""

from __future__ import annotations

import msgspec

from shared.domain.report import Placement, Report
from shared.events.about import About


class NodeReported(msgspec.Struct, frozen=True, tag=True):
    """A report in full; the first of a boot, after a change of shape, and periodically."""

    report: Report

    @property
    def about(self) -> About:
        return About(node=self.report.node)


class NodeReportChanged(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """What changed since the report before it on this stream (same boot, same shape of zones).

    `available` holds zone id -> resource -> new available amount. `listed` are the placements of
    pods that are new or changed (all containers of the pod), `unlisted` the `namespace/pod` keys no
    longer listed. `free` holds zone id -> all of the Memory Manager's own figures, for zones where
    one changed, `groups` zone id -> its new group. `checkpoints` and `hidden` are None where they
    are as before.
    """

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

    @property
    def about(self) -> About:
        return About(node=self.node)


class NodeReportExpired(msgspec.Struct, frozen=True, tag=True):
    """The node was silent for longer than `report_max_age_s`; it takes no pod that needs alignment
    until it reports again.
    """

    node: str
    silent_s: int

    @property
    def about(self) -> About:
        return About(node=self.node)


class NodeReportRefused(msgspec.Struct, frozen=True, tag=True):
    """A report that contradicts what is known (a superseded boot returning, a boot time that the
    clock forbids) was refused; kept once per exporter instance, and once more when the node has
    expired meanwhile: then these refusals lock it out."""

    node: str
    boot_id: str
    exporter: str
    reason: str

    @property
    def about(self) -> About:
        return About(node=self.node)


class NodeReleased(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """An operator released the node: its next report counts as that of a new boot, whatever boot
    and moment it names, and boots superseded before are forgotten. `by` is who said so, for people.
    """

    node: str
    by: str = ""
    reason: str = ""

    @property
    def about(self) -> About:
        return About(node=self.node)


ReportEvent = (
    NodeReported | NodeReportChanged | NodeReportExpired | NodeReportRefused | NodeReleased
)
