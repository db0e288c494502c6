"""Which of flags, environment, configuration folder, file or default holds for each setting.

Flags over environment over resource-topology-exporter's folder, then its environment, over the
settings file over defaults. Must not know what a setting does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from services.exporter import rte_config
from services.exporter.rte_config import LeftOut, RteConfig
from services.exporter.settings import ExporterSettings, with_flags
from shared.runtime.settings import FILE_VARIABLE, PREFIX, load, masked

CONFIG_ROOT = PREFIX + "CONFIG_ROOT"
FILLED_IN = {
    "TOPOLOGY_MANAGER_POLICY": "TOPOLOGY_MANAGER_POLICY",
    "TOPOLOGY_MANAGER_SCOPE": "TOPOLOGY_MANAGER_SCOPE",
    "PFP_STATUS_FILE": "PODS_FINGERPRINT_STATUS_FILE",
    "REFERENCE_NAMESPACE": "POD_NAMESPACE",
    "REFERENCE_POD_NAME": "POD_NAME",
}
"""resource-topology-exporter's environment, which counts where nothing else says more, by the setting that it fills in."""


class Gathered(msgspec.Struct, frozen=True):
    """`environment` is what the settings are loaded from; `origins` says where each variable in it
    came from.
    """

    environment: dict[str, str]
    origins: dict[str, str] = {}
    left_out: tuple[LeftOut, ...] = ()


class Line(msgspec.Struct, frozen=True):
    """One setting that holds, secrets masked, and where its value came from."""

    setting: str
    value: object
    origin: str


def gathered(argv: Sequence[str], environment: Mapping[str, str]) -> Gathered:
    """Everything that was told but the settings file. Raises RteConfigError; a wrong flag exits."""
    told = with_flags(argv, environment)
    given = {name for name in told if told[name] != environment.get(name)}
    root = told.get(CONFIG_ROOT, "")
    node = told.get(PREFIX + "NODE_NAME", "")
    found = rte_config.read(Path(root), node) if root else RteConfig()
    filled = {
        PREFIX + setting: name for name, setting in FILLED_IN.items() if environment.get(name)
    }
    variables = [(PREFIX + each.name.upper(), each) for each in found.settings if each.name]
    # To RTE an empty text is none: its environment fills it in.
    folder = {
        variable: each for variable, each in variables if each.value or variable not in filled
    }
    origins = {variable: f"environment {name}" for variable, name in filled.items()}
    origins |= {name: each.origin for name, each in folder.items()}
    origins |= {name: f"environment {name}" for name in environment if name.startswith(PREFIX)}
    origins |= {name: _flag_or_alias(name, environment) for name in given}
    fills = {variable: environment[name] for variable, name in filled.items()}
    return Gathered(
        {**fills, **{name: each.value for name, each in folder.items()}, **told},
        origins,
        found.left_out,
    )


def _flag_or_alias(variable: str, environment: Mapping[str, str]) -> str:
    if variable == PREFIX + "NODE_NAME" and environment.get("NODE_NAME"):
        return "environment NODE_NAME"
    return "command line"


def dump(found: Gathered) -> list[Line]:
    """Every setting that holds. Raises SettingsInvalid."""
    settings = load(ExporterSettings, found.environment)
    file = found.environment.get(FILE_VARIABLE, "")
    plain = _flat(masked(ExporterSettings(node_name=settings.node_name or "node")))
    lines = []
    for name, value in _flat(masked(settings)).items():
        elsewhere = f"{file}: {name}" if file and value != plain[name] else "default"
        lines.append(Line(name, value, found.origins.get(PREFIX + name.upper(), elsewhere)))
    return lines


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in groups by their full names, as in variables."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        grouped = (
            {f"{name}_{inner}": each for inner, each in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
        found.update(grouped)
    return found
