"""What an agent says about the containers of its node, in a file that the exporter reads.

The file exists while the agent is registered with the container runtime. The agent holds a lock
(`flock`) on the lock file beside it for its life, so a file that a dead agent left counts for
nothing. This module does not know files.
"""

from __future__ import annotations

from typing import Final

import msgspec

from shared.domain.report import Placement

STATEMENT_FILE: Final = "enforced.json"
LOCK_FILE: Final = "agent.lock"
TOPOLOG: Final = "topolog"


class Statement(msgspec.Struct, frozen=True, omit_defaults=True):
    """The enforcer's name, and what containers of pods with zones have by their cgroups.

    CPUs that a pod has for itself count as amount. CPUs that it shares have amount 0, and so has
    memory. All containers of a pod have the same CPUs, so they are not added up.
    """

    enforcer: str = TOPOLOG
    containers: tuple[Placement, ...] = ()
