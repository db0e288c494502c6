"""How the kubelet parses policy options, and its errors when it cannot start.

This is Go's strconv grammar for booleans and integers, with its error texts. This module does not
know any single option.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from shared.kubelet.versions import Level

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT64_MAX = (1 << 63) - 1


class ConfigError(msgspec.Struct, frozen=True):
    """A kubelet would not start with this machine and configuration. `message` is its error
    text.
    """

    message: str
    # The kubelet may start here; this model cannot judge it.
    is_model_limit: bool = False


def parse_bool(text: str) -> bool | ConfigError:
    """Parse as strconv.ParseBool does."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    return ConfigError(f'strconv.ParseBool: parsing "{text}": invalid syntax')


def parse_int(text: str) -> int | ConfigError:
    """Parse as strconv.Atoi does."""
    if _INTEGER.fullmatch(text) is None:
        return ConfigError(f'strconv.Atoi: parsing "{text}": invalid syntax')
    value = int(text) if len(text) <= 20 else _INT64_MAX + 1
    if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        return ConfigError(f'strconv.Atoi: parsing "{text}": value out of range')
    return value


def bad_value(name: str, cause: ConfigError) -> ConfigError:
    """Return the error for an option whose boolean value cannot be parsed."""
    return ConfigError(f'bad value for option "{name}": {cause.message}')


def not_available(
    manager: str, name: str, levels: Mapping[str, Level], *, alpha: bool, beta: bool
) -> ConfigError | None:
    """Return the error for an option of the `CPU` or `Topology` Manager that the kubelet's version
    does not know, or whose level's gate is off; None if it may be used.
    """
    level = levels.get(name)
    if level is None:
        return ConfigError(f'unknown {manager} Manager Policy option: "{name}"')
    if (level == "alpha" and not alpha) or (level == "beta" and not beta):
        return ConfigError(
            f"{manager} Manager Policy {level.capitalize()}-level Options not enabled, "
            f'but option "{name}" provided'
        )
    return None
