"""All annotations that koord-scheduler writes on a placed pod, for comparison with recorded cases.

Topolog writes them in two steps: the reservation completes `resource-spec`, and the Binding gets
`resource-status` in the shortest notation, because events do not keep that of the request.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.domain.policies import NONE
from shared.domain.quantity import Format
from shared.domain.zone_allocation import RESOURCE_SPEC, RESOURCE_STATUS, status_text
from shared.kubelet.cpuset import format_cpus
from shared.owned.annotations import completed_spec
from shared.owned.values import Allocation


def annotations_of(
    allocation: Allocation,
    annotations: Mapping[str, str],
    notations: Mapping[tuple[int, str], Format] | None = None,
) -> dict[str, str]:
    """Return the annotations to write on a pod that has `annotations`; empty if it has no CPU set
    and no policy is in force for it. `notations` are those of `status_text`.
    """
    completed = completed_spec(allocation, annotations)
    written = {RESOURCE_SPEC: completed} if completed else {}
    if allocation.policy != NONE or allocation.holding.cpus:
        zones = () if allocation.mask is None else allocation.holding.zones
        amounts = {record.zone: dict(record.amounts) for record in zones}
        cpus = format_cpus(allocation.holding.cpus)
        written[RESOURCE_STATUS] = status_text(cpus, amounts, notations or {})
    return written
