"""The value of each setting and its source.

Flags go over environment, over RTE's configuration folder, over RTE's environment, over the
settings file, over defaults. Must not know what a setting does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from services.exporter import rte_config
from services.exporter.flags import with_flags
from services.exporter.rte_config import LeftOut, RteConfig
from services.exporter.settings import ExporterSettings
from shared.runtime.settings import FILE_VARIABLE, PREFIX, load, masked

CONFIG_ROOT = PREFIX + "CONFIG_ROOT"
# Setting -> RTE's variable that fills it in if nothing else sets it.
FILLED_IN = {
    "TOPOLOGY_MANAGER_POLICY": "TOPOLOGY_MANAGER_POLICY",
    "TOPOLOGY_MANAGER_SCOPE": "TOPOLOGY_MANAGER_SCOPE",
    "PFP_STATUS_FILE": "PODS_FINGERPRINT_STATUS_FILE",
    "REFERENCE_NAMESPACE": "POD_NAMESPACE",
    "REFERENCE_POD_NAME": "POD_NAME",
}


class Gathered(msgspec.Struct, frozen=True):
    """Variables from which the settings are loaded, and the source of each."""

    environment: dict[str, str]
    origins: dict[str, str] = {}
    left_out: tuple[LeftOut, ...] = ()


class Line(msgspec.Struct, frozen=True):
    """One setting, secrets masked, and the source of its value."""

    setting: str
    value: object
    origin: str


def gathered(argv: Sequence[str], environment: Mapping[str, str]) -> Gathered:
    """Return all settings but those of the file. Raises RteConfigError; a wrong flag exits."""
    variables = with_flags(argv, environment)
    by_flag = {name for name in variables if variables[name] != environment.get(name)}
    root = variables.get(CONFIG_ROOT, "")
    node = variables.get(PREFIX + "NODE_NAME", "")
    config = rte_config.read(Path(root), node) if root else RteConfig()
    filled = {
        PREFIX + setting: name for name, setting in FILLED_IN.items() if environment.get(name)
    }
    folder = {}
    for setting in config.settings:
        variable = PREFIX + setting.name.upper()
        # To RTE an empty text means unset: its environment fills it in.
        if setting.name and (setting.value or variable not in filled):
            folder[variable] = setting
    origins = {variable: f"environment {name}" for variable, name in filled.items()}
    origins |= {variable: setting.origin for variable, setting in folder.items()}
    origins |= {name: f"environment {name}" for name in environment if name.startswith(PREFIX)}
    origins |= {name: _flag_or_alias(name, environment) for name in by_flag}
    merged = {variable: environment[name] for variable, name in filled.items()}
    merged |= {variable: setting.value for variable, setting in folder.items()}
    return Gathered({**merged, **variables}, origins, config.left_out)


def _flag_or_alias(variable: str, environment: Mapping[str, str]) -> str:
    if variable == PREFIX + "NODE_NAME" and environment.get("NODE_NAME"):
        return "environment NODE_NAME"
    return "command line"


def dump(sources: Gathered) -> list[Line]:
    """Return every setting. Raises SettingsInvalid."""
    settings = load(ExporterSettings, sources.environment)
    file = sources.environment.get(FILE_VARIABLE, "")
    defaults = _flat(masked(ExporterSettings(node_name=settings.node_name or "node")))
    lines = []
    for name, value in _flat(masked(settings)).items():
        fallback = f"{file}: {name}" if file and value != defaults[name] else "default"
        lines.append(Line(name, value, sources.origins.get(PREFIX + name.upper(), fallback)))
    return lines


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return grouped settings by their full names, as in variables."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            flat.update({f"{name}_{inner}": setting for inner, setting in value.items()})
        else:
            flat[name] = value
    return flat
