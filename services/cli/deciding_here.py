"""What `explain` decides again with: the scheduler's settings as this shell has them, and the code that is installed here."""

from __future__ import annotations

from collections.abc import Mapping

from services.cli.output import EXIT_USAGE, CommandError
from services.replay.recomputing import Deciding
from services.scheduler.configuration import chosen
from services.scheduler.settings import SchedulerSettings
from shared.runtime.settings import SettingsInvalid, load


def deciding_here(environment: Mapping[str, str]) -> Deciding:
    """Raises CommandError for settings that no scheduler would start with."""
    try:
        core = chosen(load(SchedulerSettings, environment)).core
    except SettingsInvalid as error:
        problem = "the scheduler's settings cannot be used: " + "; ".join(error.problems)
        raise CommandError(problem, "correct these variables, or unset them", EXIT_USAGE) from error
    return Deciding(core.cycle, core.provenance, core.upstream is not None)
