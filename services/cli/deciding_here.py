"""The rules by which `explain`, `why-not` and `whatif` decide again: the scheduler's settings in
this shell, and the code that is installed. Addresses are left out, because the history may be a
file, which no scheduler accepts as a database.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.cli.output import EXIT_USAGE, CommandError
from services.replay.recomputing import Deciding
from services.scheduler.settings import Choice, SchedulerSettings, chosen
from shared.runtime.secret_file import ENDING, SECRETS
from shared.runtime.settings import SettingsInvalid, load

_ADDRESSES = {*SECRETS, *(name + ENDING for name in SECRETS)}


def choice_here(environment: Mapping[str, str]) -> Choice:
    """Return the configuration that a scheduler would start with. Raises SettingsInvalid."""
    settings = {name: value for name, value in environment.items() if name not in _ADDRESSES}
    return chosen(load(SchedulerSettings, settings))


def deciding_here(environment: Mapping[str, str]) -> Deciding:
    """Return the rules to decide with. Raises CommandError for invalid settings."""
    try:
        core = choice_here(environment).core
    except SettingsInvalid as error:
        problem = "the scheduler's settings are invalid: " + "; ".join(error.problems)
        raise CommandError(problem, "correct or unset these variables", EXIT_USAGE) from error
    return Deciding(core.cycle, core.provenance, core.upstream is not None, core.scheduler_name)
