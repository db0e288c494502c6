"""The variables that each service's settings declare. `topolog up` passes only these on to the
service. They are collected here because the supervisor starts services without importing them.
"""

from __future__ import annotations

import msgspec

from services.binder.settings import BinderSettings
from services.console.settings import ConsoleSettings
from services.embedded.up.children import BINDER, CONSOLE, EXPORTER, SCHEDULER, STORE
from services.exporter.settings import ExporterSettings
from services.scheduler.settings import SchedulerSettings
from services.topology_store.settings import TopologyStoreSettings
from shared.runtime.settings import names

_KINDS: dict[str, type[msgspec.Struct]] = {
    STORE: TopologyStoreSettings,
    SCHEDULER: SchedulerSettings,
    BINDER: BinderSettings,
    EXPORTER: ExporterSettings,
    CONSOLE: ConsoleSettings,
}


def declared() -> dict[str, tuple[str, ...]]:
    """Return the sorted variables of each service."""
    return {service: tuple(sorted(names(kind))) for service, kind in _KINDS.items()}
