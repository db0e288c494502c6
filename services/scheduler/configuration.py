"""From settings to what the core is told. Every problem is told at once. Must not start anything.

The upstream plugin's caches and arguments are read by `plugin_configuration`, which is loaded only
where they are asked for.
"""

from __future__ import annotations

import msgspec

from services.scheduler.core import CoreConfig
from services.scheduler.provenance import provenance
from services.scheduler.score.scores import STRATEGIES
from services.scheduler.settings import SchedulerSettings
from services.scheduler.snapshot.config import CycleConfig
from shared.runtime.settings import SettingsInvalid

LIMIT_WEIGHT = 1_000_000
"""The highest weight of a resource in scores, as the reader of the plugin's arguments allows."""


class Choice(msgspec.Struct, frozen=True):
    """`resync_period_s` 0 means no ticks; `warnings` are legal but unwise arguments, a line each."""

    core: CoreConfig
    resync_period_s: int = 0
    warnings: tuple[str, ...] = ()


def chosen(settings: SchedulerSettings) -> Choice:
    """What these settings mean. Raises SettingsInvalid with every problem."""
    choice, problems = (
        _default(settings, settings.cycle, [])
        if not _upstream_asked(settings)
        else _with_plugin(settings)
    )
    problems += settings.extender.problems()
    if settings.shadow and (settings.extender.port or choice.core.upstream is not None):
        problems.append(
            "TOPOLOG_SHADOW: a shadow places nothing; unset TOPOLOG_EXTENDER_PORT, TOPOLOG_CACHE, TOPOLOG_COMPAT"
        )
    if settings.extender.port and choice.core.upstream is not None:
        problems.append(
            "TOPOLOG_EXTENDER_PORT: the upstream plugin's caches serve no extender; use TOPOLOG_CACHE=ledger, or port 0"
        )
    if problems:
        raise SettingsInvalid(problems)
    asked_by = settings.extender.schedulers if settings.extender.port else ()
    made = provenance(choice.core.cycle, choice.core.upstream)
    core = msgspec.structs.replace(
        choice.core, provenance=made, shadow=settings.shadow, asked_by=asked_by
    )
    return msgspec.structs.replace(choice, core=core)


def _upstream_asked(settings: SchedulerSettings) -> bool:
    return (
        bool(settings.plugin_config) or settings.compat == "upstream" or settings.cache != "ledger"
    )


def _default(
    settings: SchedulerSettings, cycle: CycleConfig, warnings: list[str]
) -> tuple[Choice, list[str]]:
    core = CoreConfig(settings.scheduler_name, cycle, settings.dirty_after_rejections)
    return Choice(core, warnings=tuple(warnings)), _wrong_scoring(cycle)


def _with_plugin(settings: SchedulerSettings) -> tuple[Choice, list[str]]:
    from services.scheduler.plugin_configuration import from_plugin

    found = from_plugin(settings)
    if found.upstream is None:
        choice, problems = _default(settings, found.cycle, found.warnings)
        return choice, found.problems + problems
    choice = Choice(
        found.core(settings.scheduler_name), found.resync_period_s, tuple(found.warnings)
    )
    return choice, found.problems


def _wrong_scoring(cycle: CycleConfig) -> list[str]:
    problems = [
        f"TOPOLOG_CYCLE_WEIGHTS: {name} weighs {weight}; write a whole number from 1 to {LIMIT_WEIGHT}"
        for name, weight in sorted(cycle.weights.items())
        if not 1 <= weight <= LIMIT_WEIGHT
    ]
    if cycle.strategy not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        problems.append(
            f"TOPOLOG_CYCLE_STRATEGY: {cycle.strategy!r} is not a strategy; write one of {known}"
        )
    return problems
