"""Foreign pods: bound pods of another scheduler, by scheduler name alone.

Upstream keeps the known profile names and the detection mode in process-wide globals, so the last
initialised profile decides the mode for all (R10). `Profiles` is that global; every cache of a
process gets it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

from plugins.upstream_compat.exclusive import is_exclusive
from plugins.upstream_compat.pod import Pod

Detection = Literal["None", "All", "OnlyExclusiveResources"]


class Profiles:
    """The process-wide registry: the known scheduler names, and whether only exclusive pods count
    as foreign.
    """

    def __init__(self, names: Iterable[str] = (), detection: Detection = "All") -> None:
        self.names: set[str] = set()
        self.only_exclusive = False
        self.register(names, detection)

    def register(self, names: Iterable[str], detection: Detection) -> None:
        """Add a profile: its names join the others, its detection mode replaces theirs."""
        self.names |= set(names)
        self.only_exclusive = detection == "OnlyExclusiveResources"

    def is_foreign(self, pod: Pod, zone_resources: Collection[str]) -> bool:
        """Return whether the pod is bound, of an unknown scheduler and, if the mode requires it,
        exclusive.
        """
        if not pod.node_name or pod.scheduler_name in self.names:
            return False
        return not self.only_exclusive or is_exclusive(pod, zone_resources)
