"""The scheduler's settings (TOPOLOG_* variables, or a YAML/TOML file named by TOPOLOG_CONFIG), and
the core configuration that they mean. Reports every problem at once; must not start anything.

The upstream plugin (`plugins.upstream_compat`) is imported by name, and only if it is configured.
What decides is imported where it is needed: `topolog up` reads these settings and decides nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

import msgspec
import xxhash

from services.scheduler.extender.settings import ExtenderSettings
from services.scheduler.snapshot.config import (
    GANG_TIMEOUT_S,
    MOST_AFTER_S,
    CycleConfig,
    HoldSettings,
    Provenance,
)
from shared.domain.cells import WAIT_S, Cell, Cells, cells_of
from shared.eventlog.closure import code_fingerprint
from shared.hints import registry
from shared.runtime.settings import CommonSettings, SettingsInvalid

if TYPE_CHECKING:
    from services.scheduler.core import CoreConfig
    from services.scheduler.explain.placing import OtherPlacing

CacheName = Literal["ledger", "overreserve", "discardreserved", "passthrough"]
Positive = Annotated[int, msgspec.Meta(ge=1)]
# The highest weight of a resource in scores; the reader of the plugin's arguments has the same
# limit.
LIMIT_WEIGHT = 1_000_000
PLUGIN = "plugins.upstream_compat.configuration"


class SchedulerSettings(CommonSettings, frozen=True, kw_only=True):
    """All settings; extender settings are in a struct of their own.

    - `kubeconfig`: a file, a bare http:// URL, or empty inside a cluster.
    - `dirty_after_rejections`: consecutive Filter failures after which a node is marked dirty. With
      an upstream cache it is 1.
    - `observe`: off makes this process a decider only.
    - `relist_s`: how often the observer lists each kind again to find changes that the watch
      missed.
    - `cache`: other than `ledger` places by the upstream plugin's cache of that name. `compat:
      upstream` places by the cache that the plugin's arguments choose, defects included.
    - `plugin_config`: a file with the plugin's arguments, alone or in a KubeSchedulerConfiguration.
    - `log_limit_gib`: the relay warns before the log takes that much.
    - `hold`: how long a pod may wait before a node is held for it, and how many nodes may be.
    - `gang_timeout_s`: how long a gang may be bound in part before it is rolled back, 0 for ever.
    - `cell`, `cells`: the name of this cell, and all cells, such as `[{name: a}, {name: b, nodes:
      {pool: b}, pods: {team: b}}]`, the same in every cell.
    - `cell_wait_s`: how long a pod without a node waits before the next cell gets it, 0 for ever.
    - `shadow`: decide nothing, and compare the decisions of other schedulers with Topolog's.
    """

    kubeconfig: str = ""
    scheduler_name: str = "topolog"
    dirty_after_rejections: Positive = 3
    batch_pods: Positive = 200
    observe: bool = True
    relist_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 1800.0
    relay: bool = True
    log_limit_gib: Positive = 20
    lease_ttl_s: Annotated[float, msgspec.Meta(ge=1)] = 5.0
    cycle: CycleConfig = CycleConfig()
    cache: CacheName = "ledger"
    compat: Literal["default", "upstream"] = "default"
    plugin_config: str = ""
    shadow: bool = False
    cell: str = ""
    cells: tuple[Cell, ...] = ()
    cell_wait_s: Annotated[float, msgspec.Meta(ge=0, le=MOST_AFTER_S)] = WAIT_S
    hold: HoldSettings = HoldSettings()
    gang_timeout_s: Annotated[float, msgspec.Meta(ge=0, le=MOST_AFTER_S)] = GANG_TIMEOUT_S
    extender: ExtenderSettings = ExtenderSettings()


class Choice(msgspec.Struct, frozen=True):
    """The configuration that settings mean. `resync_period_s` 0 means no ticks; `warnings` are
    legal but unwise arguments, one line each."""

    core: CoreConfig
    resync_period_s: int = 0
    warnings: tuple[str, ...] = ()


class PluginChoice(Protocol):
    """The plugin's reading of settings and its argument file.

    `upstream` is None if the ledger decides; then only the scoring strategy of the arguments
    counts.
    """

    @property
    def upstream(self) -> OtherPlacing | None: ...
    @property
    def cycle(self) -> CycleConfig: ...
    @property
    def problems(self) -> list[str]: ...
    @property
    def resync_period_s(self) -> int: ...
    @property
    def warnings(self) -> list[str]: ...
    def core(self, scheduler_name: str) -> CoreConfig:
        """Return the core configuration with which the plugin's cache decides."""


def chosen(settings: SchedulerSettings) -> Choice:
    """Return the configuration that these settings mean. Raises SettingsInvalid with every
    problem.
    """
    if settings.plugin_config or settings.compat == "upstream" or settings.cache != "ledger":
        choice, problems = _with_plugin(settings)
    else:
        choice, problems = _default(settings, settings.cycle, [])
    problems += settings.extender.problems()
    cells = cells_of(settings.cell, settings.cells, settings.cell_wait_s)
    if isinstance(cells, str):
        problems.append(cells)
    if settings.hold.after_s and choice.core.upstream is not None:
        problems.append(
            "TOPOLOG_HOLD_AFTER_S: the upstream plugin's caches hold no nodes; "
            "use TOPOLOG_CACHE=ledger, or 0"
        )
    if settings.shadow and (settings.extender.port or choice.core.upstream is not None):
        problems.append(
            "TOPOLOG_SHADOW: a shadow places nothing; unset TOPOLOG_EXTENDER_PORT, TOPOLOG_CACHE, "
            "TOPOLOG_COMPAT"
        )
    if settings.extender.port and choice.core.upstream is not None:
        problems.append(
            "TOPOLOG_EXTENDER_PORT: the upstream plugin's caches serve no extender; "
            "use TOPOLOG_CACHE=ledger, or port 0"
        )
    if problems:
        raise SettingsInvalid(problems)
    core = msgspec.structs.replace(
        choice.core,
        provenance=provenance(choice.core.cycle, choice.core.upstream),
        hold=settings.hold,
        gang_timeout_s=settings.gang_timeout_s,
        shadow=settings.shadow,
        asked_by=settings.extender.schedulers if settings.extender.port else (),
        cells=cells if isinstance(cells, Cells) else None,
    )
    return msgspec.structs.replace(choice, core=core)


def provenance(cycle: CycleConfig, other_placing: object = None) -> Provenance:
    """Return the fingerprints of this configuration and of the code that decides: every module that
    placing imports, and the hint providers with their arguments. Decisions carry them, so that a
    reader of the log knows whether it would decide alike.

    `other_placing` decides instead of the ledger, if given. Raises TypeError for a provider whose
    arguments have no fingerprint (`closure.key_of`)."""
    from services.scheduler.explain import placing

    config = xxhash.xxh3_64(
        msgspec.json.encode((cycle, repr(other_placing)), order="deterministic")
    ).hexdigest()
    roots = [placing.__name__]
    if other_placing is not None:
        roots.append(type(other_placing).__module__)
    return Provenance(config, code_fingerprint(roots, registry.PROVIDERS))


def _default(
    settings: SchedulerSettings, cycle: CycleConfig, warnings: list[str]
) -> tuple[Choice, list[str]]:
    from services.scheduler.core import CoreConfig

    core = CoreConfig(settings.scheduler_name, cycle, settings.dirty_after_rejections)
    return Choice(core, warnings=tuple(warnings)), _scoring_problems(cycle)


def _with_plugin(settings: SchedulerSettings) -> tuple[Choice, list[str]]:
    plugin: PluginChoice = import_module(PLUGIN).from_plugin(settings)
    if plugin.upstream is None:
        choice, problems = _default(settings, plugin.cycle, plugin.warnings)
        return choice, plugin.problems + problems
    core = plugin.core(settings.scheduler_name)
    return Choice(core, plugin.resync_period_s, tuple(plugin.warnings)), plugin.problems


def _scoring_problems(cycle: CycleConfig) -> list[str]:
    from services.scheduler.score.runner import STRATEGIES

    problems = [
        f"TOPOLOG_CYCLE_WEIGHTS: {name} weighs {weight}; "
        f"write a whole number from 1 to {LIMIT_WEIGHT}"
        for name, weight in sorted(cycle.weights.items())
        if not 1 <= weight <= LIMIT_WEIGHT
    ]
    if cycle.strategy not in STRATEGIES:
        problems.append(
            f"TOPOLOG_CYCLE_STRATEGY: {cycle.strategy!r} is not a strategy; "
            f"write one of {', '.join(STRATEGIES)}"
        )
    return problems
