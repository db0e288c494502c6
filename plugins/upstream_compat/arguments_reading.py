"""Reads plugin arguments from a KubeSchedulerConfiguration, or from an args object alone, and
reports every mistake at once.

Upstream validates two of its nine values and treats an unknown value as its neighbour. Here an
unknown field, value or type is an error with its remedy, and a valid value with a drawback is a
warning. Nothing is raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal, get_args

import msgspec

from plugins.upstream_compat.arguments import Arguments, PreemptionMode, ResyncScope, StrategyName
from plugins.upstream_compat.fingerprint import InformerMode, ResyncMethod
from plugins.upstream_compat.foreign import Detection
from shared.domain import yaml_text

PLUGIN = "NodeResourceTopologyMatch"
KIND = "NodeResourceTopologyMatchArgs"
LIMIT_TEXT_CHARS = 1_000_000
LIMIT_WEIGHT = 1_000_000
LIMIT_PERIOD_S = 86_400
SHORT_PERIOD_S = 5
_TYPE_META = ("apiVersion", "kind")


class Problem(msgspec.Struct, frozen=True):
    """One mistake, or with severity `warning` a value with a drawback: the field, its value, and
    the remedy.
    """

    field: str
    value: str
    remedy: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.field}: {self.value}: {self.remedy}"


class Outcome(msgspec.Struct, frozen=True):
    """Arguments by profile (scheduler name), and every problem. If a problem is an error,
    `profiles` is empty.
    """

    profiles: dict[str, Arguments]
    problems: tuple[Problem, ...] = ()

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that forbid starting."""
        return tuple(each for each in self.problems if each.severity == "error")


def read_text(text: str) -> Outcome:
    """Read YAML or JSON text of a KubeSchedulerConfiguration or of an args object."""
    if len(text) > LIMIT_TEXT_CHARS:
        return _failed(
            Problem("document", f"{len(text)} characters", f"keep it under {LIMIT_TEXT_CHARS}")
        )
    try:
        document = yaml_text.document(text)
        repeated = yaml_text.repeated_keys(text)
    except (yaml_text.YAMLError, ValueError, RecursionError) as error:
        return _failed(
            Problem(
                "document",
                type(error).__name__,
                f"write valid YAML or JSON ({' '.join(str(error).split())})",
            )
        )
    if repeated:
        return Outcome(
            {},
            tuple(
                Problem(f"line {each.line}", each.key, "is there already; keep one of the two")
                for each in repeated
            ),
        )
    return read(document)


def read(document: object) -> Outcome:
    """Read a decoded document. An args object alone counts as the profile `default-scheduler`."""
    reader = _Reader()
    if not isinstance(document, Mapping):
        return _failed(
            Problem("document", _shown(document), "write a KubeSchedulerConfiguration object")
        )
    if "profiles" in document or document.get("kind") == "KubeSchedulerConfiguration":
        profiles = reader.profiles(document)
    else:
        profiles = {"default-scheduler": reader.arguments(document, "")}
    problems = tuple(reader.problems)
    return Outcome({} if any(each.severity == "error" for each in problems) else profiles, problems)


def _failed(problem: Problem) -> Outcome:
    return Outcome({}, (problem,))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class _Reader:
    """Collects problems while it reads, so that one pass finds all of them."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def profiles(self, document: Mapping[Any, Any]) -> dict[str, Arguments]:
        by_name: dict[str, Arguments] = {}
        for index, profile in enumerate(self._list(document, "profiles", "")):
            path = f"profiles[{index}]"
            name = self._text(profile, "schedulerName", f"{path}.", "default-scheduler")
            for entry, plugin in enumerate(self._list(profile, "pluginConfig", f"{path}.")):
                where = f"{path}.pluginConfig[{entry}]"
                if plugin.get("name") != PLUGIN:
                    continue
                if name in by_name:
                    self._error(
                        f"{where}.name", PLUGIN, f"profile {name} has it already; keep one entry"
                    )
                by_name[name] = self.arguments(
                    self._object(plugin, "args", f"{where}."), f"{where}.args."
                )
        if not by_name and not self.problems:
            self._error(
                "profiles", "no entry", f"add a pluginConfig entry named {PLUGIN} to a profile"
            )
        return by_name

    def arguments(self, raw: Mapping[Any, Any], path: str) -> Arguments:
        fields = (
            "scoringStrategy",
            "cacheResyncPeriodSeconds",
            "discardReservedNodes",
            "cache",
            "preemptionMode",
        )
        self._known(raw, (*_TYPE_META, *fields), path)
        if raw.get("kind") not in (None, KIND):
            self._error(f"{path}kind", raw["kind"], f"write {KIND}, or leave it out")
        strategy, weights = self._scoring(raw, path)
        cache = self._object(raw, "cache", path)
        self._known(
            cache,
            ("foreignPodsDetect", "resyncMethod", "informerMode", "resyncScope"),
            f"{path}cache.",
        )
        parsed = Arguments(
            strategy=strategy,
            weights=weights,
            cache_resync_period_s=self._period(raw, path),
            discard_reserved_nodes=self._flag(raw, "discardReservedNodes", path),
            foreign_pods_detect=self._one_of(
                cache, "foreignPodsDetect", f"{path}cache.", get_args(Detection), "All"
            ),
            resync_method=self._one_of(
                cache, "resyncMethod", f"{path}cache.", get_args(ResyncMethod), "Autodetect"
            ),
            informer_mode=self._one_of(
                cache, "informerMode", f"{path}cache.", get_args(InformerMode), "Dedicated"
            ),
            resync_scope=self._one_of(
                cache, "resyncScope", f"{path}cache.", get_args(ResyncScope), "All"
            ),
            preemption_mode=self._one_of(
                raw, "preemptionMode", path, get_args(PreemptionMode), "Disabled"
            ),
        )
        self._advise(parsed, path)
        return parsed

    def _scoring(self, raw: Mapping[Any, Any], path: str) -> tuple[StrategyName, dict[str, int]]:
        defaults = Arguments()
        if raw.get("scoringStrategy") is None:
            return defaults.strategy, defaults.weights
        scoring = self._object(raw, "scoringStrategy", path)
        where = f"{path}scoringStrategy."
        self._known(scoring, ("type", "resources"), where)
        if scoring.get("type") is None:
            self._error(
                f"{where}type", "missing", f"write one of {', '.join(get_args(StrategyName))}"
            )
        strategy = self._one_of(scoring, "type", where, get_args(StrategyName), defaults.strategy)
        weights: dict[str, int] = {}
        for index, resource in enumerate(self._list(scoring, "resources", where)):
            self._weight(resource, f"{where}resources[{index}].", weights)
        return strategy, weights or defaults.weights

    def _weight(self, resource: Mapping[Any, Any], path: str, weights: dict[str, int]) -> None:
        self._known(resource, ("name", "weight"), path)
        name = self._text(resource, "name", path, "")
        weight = self._whole(resource, "weight", path, 0, LIMIT_WEIGHT)
        if not name:
            self._error(f"{path}name", _shown(name), "name the resource, such as cpu")
        elif name in weights:
            self._error(f"{path}name", name, "list every resource once")
        weights[name] = max(1, weight)

    def _period(self, raw: Mapping[Any, Any], path: str) -> int:
        return self._whole(raw, "cacheResyncPeriodSeconds", path, 0, LIMIT_PERIOD_S)

    def _advise(self, arguments: Arguments, path: str) -> None:
        period = arguments.cache_resync_period_s
        if 0 < period < SHORT_PERIOD_S:
            self._warn(
                f"{path}cacheResyncPeriodSeconds",
                period,
                f"{SHORT_PERIOD_S} or more is kinder to the API server",
            )
        if arguments.discard_reserved_nodes and period:
            self._warn(
                f"{path}cacheResyncPeriodSeconds",
                period,
                "it has no effect while discardReservedNodes is true",
            )
        if arguments.preemption_mode == "Enabled" and arguments.cache != "overreserve":
            remedy = "it needs cacheResyncPeriodSeconds above 0 and discardReservedNodes false"
            self._warn(f"{path}preemptionMode", "Enabled", remedy)

    def _known(self, raw: Mapping[Any, Any], fields: tuple[str, ...], path: str) -> None:
        for key in raw:
            if key not in fields:
                near = get_close_matches(str(key), fields, n=1)
                remedy = (
                    f"did you mean {near[0]}?"
                    if near
                    else f"remove it; known are {', '.join(fields)}"
                )
                self._error(f"{path}{key}", "unknown field", remedy)

    def _one_of(
        self, raw: Mapping[Any, Any], key: str, path: str, values: tuple[str, ...], default: str
    ) -> Any:
        value = raw.get(key)
        if value is None:
            return default
        if not isinstance(value, str) or value not in values:
            near = get_close_matches(str(value), values, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            self._error(f"{path}{key}", _shown(value), f"write one of {', '.join(values)}{hint}")
            return default
        return value

    def _object(self, raw: Mapping[Any, Any], key: str, path: str) -> Mapping[Any, Any]:
        value = raw.get(key)
        if value is None or isinstance(value, Mapping):
            return value or {}
        self._error(f"{path}{key}", _shown(value), "write an object here")
        return {}

    def _list(self, raw: Mapping[Any, Any], key: str, path: str) -> list[Mapping[Any, Any]]:
        value = raw.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
            self._error(f"{path}{key}", _shown(value), "write a list of objects here")
            return []
        return value

    def _text(self, raw: Mapping[Any, Any], key: str, path: str, default: str) -> str:
        value = raw.get(key)
        if value is None or isinstance(value, str):
            return default if value is None else value
        self._error(f"{path}{key}", _shown(value), "write a text here")
        return default

    def _flag(self, raw: Mapping[Any, Any], key: str, path: str) -> bool:
        value = raw.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        self._error(f"{path}{key}", _shown(value), "write true or false")
        return False

    def _whole(self, raw: Mapping[Any, Any], key: str, path: str, least: int, most: int) -> int:
        value = raw.get(key)
        if value is None:
            return least
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self._error(
                f"{path}{key}", _shown(value), f"write a whole number from {least} to {most}"
            )
            return least
        return value

    def _error(self, field: str, value: object, remedy: str) -> None:
        self.problems.append(Problem(field, str(value), remedy))

    def _warn(self, field: str, value: object, remedy: str) -> None:
        self.problems.append(Problem(field, str(value), remedy, "warning"))
