"""What decides, as fingerprints: decision facts carry them, so that a reader of the log can say
whether it would decide alike.
"""

from __future__ import annotations

import msgspec
import xxhash

from services.scheduler.select import placing
from services.scheduler.snapshot.config import CycleConfig, Provenance
from shared.eventlog.closure import code_fingerprint
from shared.hints import registry


def provenance(cycle: CycleConfig, instead: object = None) -> Provenance:
    """Of this configuration, and of the code that is running: the rooms of deciding and all that
    they import, and the hint providers with their arguments. `instead` is what decides in their
    place, with its arguments. Raises TypeError for a provider of which arguments cannot be told
    (`closure.key_of`)."""
    config = xxhash.xxh3_64(
        msgspec.json.encode((cycle, repr(instead)), order="deterministic")
    ).hexdigest()
    rooms = [placing.__name__] if instead is None else [placing.__name__, type(instead).__module__]
    return Provenance(config, code_fingerprint(rooms, registry.PROVIDERS))
