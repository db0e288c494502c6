"""The scheduler's fold as the projector runs it, and its snapshot.

What is volatile (queue order of arrival, counts of rejections, traces) is made again from what it
follows. The upstream plugin caches learn from every fact and are never restored from a snapshot:
they replay.
"""

from __future__ import annotations

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.state import state as following
from shared.eventlog.snapshots import fingerprint
from shared.hints import registry
from shared.ledger.promises import promises, weight
from shared.runtime.marks import Promises
from shared.runtime.projector import Fold


def fold_of(config: CoreConfig) -> Fold[SchedulerCore]:
    """The fold; with snapshots where the core stands on the ledger alone."""

    if config.upstream is not None:
        return Fold(
            initial=lambda: SchedulerCore(config),
            evolve=SchedulerCore.evolve,
            pass_over=SchedulerCore.pass_over,
            set_aside=SchedulerCore.set_aside,
        )
    return Fold(
        initial=lambda: SchedulerCore(config, begun=False),
        evolve=SchedulerCore.evolve,
        pass_over=SchedulerCore.pass_over,
        set_aside=SchedulerCore.set_aside,
        fingerprint=fingerprint(following, "scheduler", registry.PROVIDERS),
        dump=dump,
        load=lambda data: load(config, data),
        promises=Promises(lambda core: promises(core.ledger), lambda core: weight(core.ledger)),
    )


def dump(core: SchedulerCore) -> bytes:
    """What a snapshot keeps."""
    return following.dump(core.followed)


def load(config: CoreConfig, data: bytes) -> SchedulerCore:
    """A core that stands where the snapshot was made. Raises msgspec.MsgspecError on anything else."""
    return SchedulerCore(config, following.load(data), begun=False)
