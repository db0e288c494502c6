"""What `explain`, `why-not` and `whatif` decide again with: the scheduler's settings as this shell
has them, and the code that is installed here. Its addresses are no matter: the history may be a
file, which no scheduler would take for a database."""

from __future__ import annotations

from collections.abc import Mapping

from services.cli.output import EXIT_USAGE, CommandError
from services.replay.recomputing import Deciding
from services.scheduler.settings import Choice, SchedulerSettings, chosen
from shared.runtime.secret_file import ENDING, SECRETS
from shared.runtime.settings import SettingsInvalid, load

_ADDRESSES = {*SECRETS, *(name + ENDING for name in SECRETS)}


def choice_here(environment: Mapping[str, str]) -> Choice:
    """Raises SettingsInvalid."""
    return chosen(
        load(
            SchedulerSettings,
            {name: value for name, value in environment.items() if name not in _ADDRESSES},
        )
    )


def deciding_here(environment: Mapping[str, str]) -> Deciding:
    """Raises CommandError for settings that no scheduler would start with."""
    try:
        core = choice_here(environment).core
    except SettingsInvalid as error:
        problem = "the scheduler's settings cannot be used: " + "; ".join(error.problems)
        raise CommandError(problem, "correct these variables, or unset them", EXIT_USAGE) from error
    return Deciding(core.cycle, core.provenance, core.upstream is not None, core.scheduler_name)
