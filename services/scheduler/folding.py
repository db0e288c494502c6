"""The scheduler's fold as the projector runs it, and its snapshot: ledger and stream versions.

What is volatile (queue order of arrival, counts of rejections, traces) is made again from the ledger. The upstream plugin caches
learn from every fact and are never restored from a snapshot: they replay.
"""

from __future__ import annotations

import msgspec

from services.scheduler.core import CoreConfig, SchedulerCore
from shared.domain import demand, effective, report
from shared.eventlog.snapshots import fingerprint
from shared.ledger import alike, charge, charging, digest, fingerprints, fold, pods, proof, reports, settle, state, view
from shared.ledger.state import Ledger
from shared.runtime.projector import Fold

_MODULES = (
    alike, charge, charging, demand, digest, effective, fingerprints, fold, pods, proof, report, reports, settle, state, view,
)  # fmt: skip


class _Saved(msgspec.Struct):
    ledger: Ledger
    versions: dict[str, int]


_decoder = msgspec.json.Decoder(_Saved)


def fold_of(config: CoreConfig) -> Fold[SchedulerCore]:
    """The fold; with snapshots where the core stands on the ledger alone."""

    if config.upstream is not None:
        return Fold(initial=lambda: SchedulerCore(config), evolve=SchedulerCore.evolve)
    return Fold(
        initial=lambda: SchedulerCore(config),
        evolve=SchedulerCore.evolve,
        fingerprint=fingerprint(_MODULES, "scheduler"),
        dump=dump,
        load=lambda data: load(config, data),
    )


def dump(core: SchedulerCore) -> bytes:
    """What a snapshot keeps."""
    return msgspec.json.encode(_Saved(core.ledger, core.versions))


def load(config: CoreConfig, data: bytes) -> SchedulerCore:
    """A core that stands where the snapshot was made. Raises msgspec.MsgspecError on anything else."""
    saved = _decoder.decode(data)
    core = SchedulerCore(config, saved.ledger)
    core.versions = saved.versions
    return core
