"""Foreign pods: bound pods that some other scheduler placed, by scheduler name alone.

Upstream keeps the known profile names and the detection mode in process-wide globals: the last
profile initialised decides the mode for all (R10). `Profiles` is that global, handed to every cache
of a process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

from plugins.upstream_compat.exclusive import is_exclusive
from plugins.upstream_compat.pod import Pod

Detection = Literal["None", "All", "OnlyExclusiveResources"]


class Profiles:
    """The process-wide registry: whose pods are known, and whether only exclusive ones count as
    foreign.
    """

    def __init__(self, names: Iterable[str] = (), detection: Detection = "All") -> None:
        self.names: set[str] = set()
        self.only_exclusive = False
        self.register(names, detection)

    def register(self, names: Iterable[str], detection: Detection) -> None:
        """A further profile starts: its names join the others, its detection mode replaces
        theirs.
        """
        self.names |= set(names)
        self.only_exclusive = detection == "OnlyExclusiveResources"

    def is_foreign(self, pod: Pod, zone_resources: Collection[str]) -> bool:
        """Is the pod bound, unknown by scheduler name and, where asked for, exclusive?"""
        if not pod.node_name or pod.scheduler_name in self.names:
            return False
        return not self.only_exclusive or is_exclusive(pod, zone_resources)
