"""Selects the upstream plugin's cache and arguments from the settings and the plugin's argument
file.

Loaded only if a plugin file, a cache or `compat: upstream` is set. Starts nothing.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from plugins.upstream_compat.arguments import Arguments
from plugins.upstream_compat.arguments_reading import LIMIT_TEXT_CHARS, Outcome, read_text
from plugins.upstream_compat.placing import UpstreamConfig
from services.scheduler.core import CoreConfig
from services.scheduler.settings import CacheName, SchedulerSettings
from services.scheduler.snapshot.config import CycleConfig
from shared.runtime.settings import SettingsInvalid

DEFAULT_RESYNC_S = 5
NAME = "TOPOLOG_PLUGIN_CONFIG"


class FromPlugin(msgspec.Struct):
    """What the settings and the plugin's file select together. `upstream` is None if the ledger
    decides: then only the scoring strategy of the arguments counts. With `resync_period_s` 0 there
    are no ticks. `warnings` has one line each.
    """

    upstream: UpstreamConfig | None
    cycle: CycleConfig
    problems: list[str]
    resync_period_s: int
    warnings: list[str]

    def core(self, scheduler_name: str) -> CoreConfig:
        """Return the settings of the core if a cache decides: it marks nodes dirty at the first
        rejection.
        """
        return CoreConfig(scheduler_name, self.cycle, 1, self.upstream)


def from_plugin(settings: SchedulerSettings) -> FromPlugin:
    """Read the plugin's file, if any, and choose the cache. Raises SettingsInvalid for a file that
    cannot be read.
    """
    outcome = _read(settings.plugin_config) if settings.plugin_config else Outcome({})
    problems = [f"{NAME} {settings.plugin_config}: {each}" for each in outcome.errors]
    arguments, notes = _of_profile(outcome, settings.scheduler_name)
    problems += notes if not problems else []
    warnings = [str(each) for each in outcome.problems if each.severity == "warning"]
    if settings.compat != "upstream" and settings.cache == "ledger":
        cycle = settings.cycle
        if settings.plugin_config:
            cycle = msgspec.structs.replace(
                cycle, strategy=arguments.strategy, weights=arguments.weights
            )
        return FromPlugin(None, cycle, problems, 0, warnings)
    arguments = _with_cache(arguments, settings.cache, problems)
    profiles = _known_schedulers(outcome, settings.scheduler_name)
    config = UpstreamConfig(
        arguments, settings.scheduler_name, profiles, settings.compat == "upstream"
    )
    period_s = arguments.cache_resync_period_s if arguments.cache == "overreserve" else 0
    return FromPlugin(config, settings.cycle, problems, period_s, warnings + _in_vain(arguments))


def _in_vain(arguments: Arguments) -> list[str]:
    """Return a warning for preemption that the arguments enable and the plugin would do; otherwise
    the reader of the arguments warns.
    """
    if arguments.preemption_mode != "Enabled" or arguments.cache != "overreserve":
        return []
    remedy = (
        "set preemptionMode: Disabled, or let the ledger decide (TOPOLOG_CACHE and "
        "TOPOLOG_COMPAT unset), which preempts"
    )
    return [
        (
            f"{NAME}: preemptionMode: Enabled evicts nobody here: eviction simulation is not "
            f"reproduced; {remedy}"
        )
    ]


def _read(path: str) -> Outcome:
    try:
        with Path(path).open(encoding="utf-8") as file:
            return read_text(file.read(LIMIT_TEXT_CHARS + 1))
    except (OSError, UnicodeDecodeError) as error:
        remedy = "name a readable YAML or JSON file with the plugin's arguments, or unset it"
        raise SettingsInvalid([f"{NAME}: {path} cannot be read ({error}); {remedy}"]) from error


def _of_profile(outcome: Outcome, scheduler_name: str) -> tuple[Arguments, list[str]]:
    """Return the arguments of the profile with our name, or of the only profile."""
    profiles = outcome.profiles
    if scheduler_name in profiles:
        return profiles[scheduler_name], []
    if len(profiles) > 1:
        listed = ", ".join(sorted(profiles))
        return Arguments(), [
            (
                f"{NAME}: no profile {scheduler_name} among {listed}; set TOPOLOG_SCHEDULER_NAME "
                "to one of them"
            )
        ]
    return next(iter(profiles.values()), Arguments()), []


def _known_schedulers(outcome: Outcome, scheduler_name: str) -> tuple[str, ...]:
    """Return the schedulers whose pods are not foreign: ours, and those of other profiles that the
    plugin would register. Only OverReserve registers profiles, and only if it detects foreign pods.
    A file without our name belongs to another process, whose pods are foreign.
    """
    if scheduler_name not in outcome.profiles:
        return (scheduler_name,)
    outcomes = outcome.profiles.items()
    register = [
        name
        for name, each in outcomes
        if each.cache == "overreserve" and each.foreign_pods_detect != "None"
    ]
    return (scheduler_name, *(name for name in register if name != scheduler_name))


def _with_cache(arguments: Arguments, cache: CacheName, problems: list[str]) -> Arguments:
    """Return the arguments changed so that they select this cache; `ledger` leaves the choice to
    them.
    """
    if cache == "ledger":
        return arguments
    if arguments.cache not in ("passthrough", cache):
        problems.append(
            f"TOPOLOG_CACHE: {cache}, but the arguments choose {arguments.cache}; drop one of "
            "the two"
        )
    period_s = (
        (arguments.cache_resync_period_s or DEFAULT_RESYNC_S) if cache == "overreserve" else 0
    )
    return msgspec.structs.replace(
        arguments, cache_resync_period_s=period_s, discard_reserved_nodes=cache == "discardreserved"
    )
