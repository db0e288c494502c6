"""Filter: the plugin's answer for a pod and a node, with its exact code, texts and "maybe
over-reserved" mark.

Only `single-numa-node` filters. Every text is upstream's. `detail` adds what upstream only logs
(container, resource) and is not part of the status. Eviction is not simulated, because Topolog
preempts by its own rules.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum

import msgspec

from plugins.upstream_compat.alignment import Overdrawn, align, subtract
from plugins.upstream_compat.cache import View
from plugins.upstream_compat.nrt import Nrt
from plugins.upstream_compat.pod import (
    Container,
    Pod,
    apps,
    asks_for_devices,
    effective_request,
    inits,
    qos_class,
)
from plugins.upstream_compat.zones import NumaZone, numa_zones
from shared.domain.policies import SINGLE_NUMA_NODE

CONTAINER_TEXTS = {
    "init": "cannot align init container",
    "sidecar": "cannot align sidecar container",
    "app": "cannot align container",
}


class Code(IntEnum):
    """Status codes of the scheduler framework."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2


class Verdict(msgspec.Struct, frozen=True):
    """The status of one node. If `marks` is set, the caller must call `node_maybe_overreserved` of
    the cache.
    """

    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()
    marks: bool = False
    detail: str = ""

    @property
    def message(self) -> str:
        """The reasons as one text, as `Status.Message()` joins them."""
        return ", ".join(self.reasons)

    @property
    def passes(self) -> bool:
        """Whether the node is acceptable."""
        return self.code == Code.SUCCESS


PASS = Verdict()


def filter_node(pod: Pod, offered: Collection[str] | None, view: View) -> Verdict:
    """Return the filter result of one node. `offered` are the node's resource names
    (`node.named_resources`), None without a Node.
    """
    if offered is None:
        return Verdict(Code.ERROR, ("node not found",))
    if qos_class(pod) == "BestEffort" and not asks_for_devices(pod):
        return PASS
    if not view.fresh:
        return Verdict(Code.UNSCHEDULABLE, ("invalid node topology data",))
    if view.nrt is None or view.nrt.manager.policy != SINGLE_NUMA_NODE:
        return PASS
    verdict = _align_by_scope(pod, offered, view.nrt)
    return verdict if verdict.passes else msgspec.structs.replace(verdict, marks=True)


def _align_by_scope(pod: Pod, offered: Collection[str], nrt: Nrt) -> Verdict:
    zones = numa_zones(nrt)
    return (
        _pod_scope(pod, offered, zones)
        if nrt.manager.scope == "pod"
        else _container_scope(pod, offered, zones)
    )


def _pod_scope(pod: Pod, offered: Collection[str], zones: Sequence[NumaZone]) -> Verdict:
    alignment = align(effective_request(pod), qos_class(pod), offered, zones)
    if isinstance(alignment, int):
        return PASS
    return Verdict(
        Code.UNSCHEDULABLE,
        ("cannot align pod",),
        detail=f"resource {alignment.resource}: {alignment.why}",
    )


def _container_scope(pod: Pod, offered: Collection[str], zones: Sequence[NumaZone]) -> Verdict:
    """Filter by container: init containers are tested and take nothing; each app container takes
    from the lowest zone that fits it.
    """
    qos = qos_class(pod)
    for container in (*inits(pod), *apps(pod)):
        alignment = align(container.requests, qos, offered, zones)
        if not isinstance(alignment, int):
            return _refused(container, f"resource {alignment.resource}: {alignment.why}")
        overdrawn = (
            subtract(container.requests, qos, zones, alignment) if container.kind == "app" else None
        )
        if overdrawn is not None:
            return Verdict(
                Code.ERROR, ("inconsistent resource accounting", _overdrawn_text(overdrawn))
            )
    return PASS


def _refused(container: Container, detail: str) -> Verdict:
    return Verdict(
        Code.UNSCHEDULABLE,
        (CONTAINER_TEXTS[container.kind],),
        detail=f"container {container.name}, {detail}",
    )


def _overdrawn_text(overdrawn: Overdrawn) -> str:
    return (
        f'resource "{overdrawn.resource}" request {overdrawn.request.text()} '
        f"exceeds NUMA {overdrawn.zone} availability {overdrawn.available.text()}"
    )
