"""From settings to what the core is told: which cache decides, by which arguments. Reads the plugin's argument file.

Every problem of settings and file is told at once. Must not start anything.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from services.scheduler.compat.arguments import Arguments
from services.scheduler.compat.arguments_reading import LIMIT_TEXT_CHARS, LIMIT_WEIGHT, Outcome, read_text
from services.scheduler.core import CoreConfig
from services.scheduler.cycle.config import CycleConfig
from services.scheduler.cycle.scoring import STRATEGIES
from services.scheduler.placing_upstream import UpstreamConfig
from services.scheduler.settings import CacheName, SchedulerSettings
from shared.runtime.settings import SettingsInvalid

DEFAULT_RESYNC_S = 5
NAME = "TOPOLOG_PLUGIN_CONFIG"


class Choice(msgspec.Struct, frozen=True):
    """`resync_period_s` 0 means no ticks; `warnings` are legal but unwise arguments, a line each."""

    core: CoreConfig
    resync_period_s: int = 0
    warnings: tuple[str, ...] = ()


def chosen(settings: SchedulerSettings) -> Choice:
    """What these settings mean. Raises SettingsInvalid with every problem."""
    outcome = _read(settings.plugin_config) if settings.plugin_config else Outcome({})
    problems = [f"{NAME} {settings.plugin_config}: {each}" for each in outcome.errors]
    arguments, found = _of_profile(outcome, settings.scheduler_name)
    problems += found if not problems else []
    upstream = settings.compat == "upstream" or settings.cache != "ledger"
    if upstream:
        arguments = _with_cache(arguments, settings.cache, problems)
        profiles = (settings.scheduler_name, *outcome.profiles)
        config = UpstreamConfig(arguments, settings.scheduler_name, profiles, settings.compat == "upstream")
        core = CoreConfig(settings.scheduler_name, settings.cycle, 1, config)
    else:
        core = _by_ledger(settings, arguments, problems)
    if problems:
        raise SettingsInvalid(problems)
    period_s = arguments.cache_resync_period_s if upstream and arguments.cache == "overreserve" else 0
    warnings = [str(each) for each in outcome.problems if each.severity == "warning"]
    if upstream:
        warnings += _in_vain(arguments)
    return Choice(core, period_s, tuple(warnings))


def _in_vain(arguments: Arguments) -> list[str]:
    """Preemption that is asked for where the plugin would do it; elsewhere the reader of the arguments says so."""
    if arguments.preemption_mode != "Enabled" or arguments.cache != "overreserve":
        return []
    remedy = "set preemptionMode: Disabled, or let the ledger decide (TOPOLOG_CACHE and TOPOLOG_COMPAT unset), which preempts"
    return [f"{NAME}: preemptionMode: Enabled evicts nobody here: eviction simulation is not reproduced; {remedy}"]


def _read(path: str) -> Outcome:
    try:
        with Path(path).open(encoding="utf-8") as file:
            return read_text(file.read(LIMIT_TEXT_CHARS + 1))
    except (OSError, UnicodeDecodeError) as error:
        remedy = "name a readable YAML or JSON file with the plugin's arguments, or unset it"
        raise SettingsInvalid([f"{NAME}: {path} cannot be read ({error}); {remedy}"]) from error


def _of_profile(outcome: Outcome, scheduler_name: str) -> tuple[Arguments, list[str]]:
    """The arguments of the profile of our name, or of the only one there is."""
    profiles = outcome.profiles
    if scheduler_name in profiles:
        return profiles[scheduler_name], []
    if len(profiles) > 1:
        listed = ", ".join(sorted(profiles))
        return Arguments(), [f"{NAME}: no profile {scheduler_name} among {listed}; set TOPOLOG_SCHEDULER_NAME to one of them"]
    return next(iter(profiles.values()), Arguments()), []


def _by_ledger(settings: SchedulerSettings, arguments: Arguments, problems: list[str]) -> CoreConfig:
    """The default mode takes the scoring strategy from the arguments; what they say of caches is upstream's."""
    cycle = settings.cycle
    if settings.plugin_config:
        cycle = msgspec.structs.replace(cycle, strategy=arguments.strategy, weights=arguments.weights)
    problems += _wrong_scoring(cycle)
    return CoreConfig(settings.scheduler_name, cycle, settings.dirty_after_rejections)


def _wrong_scoring(cycle: CycleConfig) -> list[str]:
    problems = [
        f"TOPOLOG_CYCLE_WEIGHTS: {name} weighs {weight}; write a whole number from 1 to {LIMIT_WEIGHT}"
        for name, weight in sorted(cycle.weights.items())
        if not 1 <= weight <= LIMIT_WEIGHT
    ]
    if cycle.strategy not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        problems.append(f"TOPOLOG_CYCLE_STRATEGY: {cycle.strategy!r} is not a strategy; write one of {known}")
    return problems


def _with_cache(arguments: Arguments, cache: CacheName, problems: list[str]) -> Arguments:
    """The arguments such that they choose this cache; `ledger` leaves the choice to them."""
    if cache == "ledger":
        return arguments
    if arguments.cache not in ("passthrough", cache):
        problems.append(f"TOPOLOG_CACHE: {cache}, but the arguments choose {arguments.cache}; drop one of the two")
    period_s = (arguments.cache_resync_period_s or DEFAULT_RESYNC_S) if cache == "overreserve" else 0
    return msgspec.structs.replace(arguments, cache_resync_period_s=period_s, discard_reserved_nodes=cache == "discardreserved")
