"""Configuration folders of resource-topology-exporter (RTE): `daemon/config.yaml`, its configlets,
`extra/config.yaml`.

Files in, settings out, each with its file and key; a key without a counterpart is named with the
reason. A key that RTE does not have, a wrong type, or a value in the wrong unit is an error.
Symbolic links are followed: ConfigMap volumes consist of them. Must not know what the settings do.
Source: resource-topology-exporter 0.25, pkg/config.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from services.exporter import metrics_port
from shared.domain import durations

MAX_BYTES = 1 << 20
LEAST_NS = 1_000_000


class RteConfigError(ValueError):
    """A file cannot be used; names file, key and fix."""


class Setting(msgspec.Struct, frozen=True):
    """A setting of this exporter (`interval_s`), its value, and its source (`FILE: KEY`)."""

    name: str
    value: str
    origin: str


class LeftOut(msgspec.Struct, frozen=True):
    """A key of RTE that has no effect in this exporter."""

    origin: str
    reason: str


class RteConfig(msgspec.Struct, frozen=True):
    """Content of a folder."""

    settings: tuple[Setting, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


# The value, and `FILE: KEY`.
Value = tuple[Any, str]


def read(root: Path, node: str) -> RteConfig:
    """Return the folder's settings; `node` selects exclusions by node. Raises RteConfigError."""
    if not root.is_dir():
        raise RteConfigError(
            f"{root}: not a folder; give the folder with daemon/config.yaml or extra/config.yaml"
        )
    daemon = _flattened(
        [root / "daemon" / "config.yaml", *_configlets(root / "daemon" / "config.yaml.d")]
    )
    extra = root / "extra" / "config.yaml"
    settings: list[Setting] = []
    left_out: list[LeftOut] = []
    for key, (value, origin) in daemon.items():
        if key in _LEFT_OUT:
            left_out.append(LeftOut(origin, _LEFT_OUT[key]))
        elif key == _RESOURCE_EXCLUDE:
            settings.append(
                Setting("exclude_resources", json.dumps(_resources(value, origin, node)), origin)
            )
        elif key in _SUPPORTED:
            name, convert = _SUPPORTED[key]
            settings.append(Setting(name, convert(value, origin), origin))
        else:
            raise RteConfigError(
                f"{origin}: not a key of resource-topology-exporter; its keys are: "
                f"{', '.join(sorted(_all_keys()))}"
            )
    return RteConfig((*settings, *_extra(_document(extra), extra, node)), tuple(left_out))


def _all_keys() -> set[str]:
    return {*_SUPPORTED, *_LEFT_OUT, _RESOURCE_EXCLUDE}


def _configlets(folder: Path) -> list[Path]:
    return (
        sorted(
            path for path in folder.glob("*") if path.is_file() and not path.name.startswith(".")
        )
        if folder.is_dir()
        else []
    )


def _flattened(paths: list[Path]) -> dict[str, Value]:
    """Return the dotted keys of all files, later files over earlier ones."""
    values: dict[str, Value] = {}
    for path in paths:
        _flatten(_document(path), "", path, values)
    return values


def _flatten(tree: dict[str, Any], prefix: str, path: Path, values: dict[str, Value]) -> None:
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and name not in _WHOLE:
            _flatten(value, f"{name}.", path, values)
        elif value is not None or not _is_section(name):
            values[name] = value, f"{path}: {name}"


def _is_section(name: str) -> bool:
    """Return True for a section; RTE ignores one whose keys are all commented out, too."""
    return name in _WHOLE or any(key.startswith(f"{name}.") for key in _all_keys())


def _document(path: Path) -> dict[str, Any]:
    """Return the file's mapping; empty if there is no such file."""
    from shared.domain import yaml_text

    if not path.is_file():
        return {}
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        document = yaml_text.document(data) if len(data) <= MAX_BYTES else None
    except (OSError, yaml_text.YAMLError, ValueError, RecursionError) as error:
        raise RteConfigError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(document, dict | None) or len(data) > MAX_BYTES:
        raise RteConfigError(f"{path}: not a mapping of at most {MAX_BYTES} bytes")
    return document or {}


def _text(value: Any, origin: str) -> str:
    if not isinstance(value, str):
        raise RteConfigError(f"{origin}: {value!r} is not a text; put it in quotes")
    return value


def _flag(value: Any, origin: str) -> str:
    if not isinstance(value, bool):
        raise RteConfigError(f"{origin}: {value!r} is neither true nor false")
    return "true" if value else "false"


def _count(value: Any, origin: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise RteConfigError(f"{origin}: {value!r} is not a whole number of 0 or more")
    return str(value)


def _seconds(value: Any, origin: str) -> str:
    """Convert nanoseconds as a number, or a Go duration as text (RTE 0.25)."""
    if isinstance(value, str):
        nanoseconds = durations.nanoseconds(value)
    else:
        nanoseconds = value if isinstance(value, int) and not isinstance(value, bool) else None
    if nanoseconds is None:
        raise RteConfigError(
            f"{origin}: {value!r} is not a duration; write nanoseconds (60000000000) or a text "
            "such as '60s'"
        )
    if nanoseconds < LEAST_NS:
        meaning = f"is {nanoseconds} nanoseconds"
        if nanoseconds == 0:
            meaning = "turns reports off, and a node without reports expires"
        raise RteConfigError(f"{origin}: {value!r} {meaning}; write a text such as '60s'")
    return f"{nanoseconds / 1e9:g}"


def _unit(value: Any, origin: str) -> str:
    if value in (0, "0", "0s") and not isinstance(value, bool):
        raise RteConfigError(
            f"{origin}: {value!r} is not a unit of time; for no limit write maxEventPerTimeUnit: 0"
        )
    return _seconds(value, origin)


def _method(value: Any, origin: str) -> str:
    return _text(value, origin).lower()


def _socket(value: Any, origin: str) -> str:
    return _text(value, origin).removeprefix("unix://")


def _level(value: Any, origin: str) -> str:
    return "debug" if int(_count(value, origin)) >= 4 else "info"


def _debug(value: Any, origin: str) -> str:
    return "debug" if _flag(value, origin) == "true" else "info"


def _mode(value: Any, origin: str) -> str:
    if (mode := _text(value, origin).lower()) not in typing.get_args(metrics_port.Mode):
        raise RteConfigError(f"{origin}: {value!r} is not a mode; write disabled, http or httptls")
    return mode


def _version(value: Any, origin: str) -> str:
    try:
        return metrics_port.version(_text(value, origin))
    except ValueError as error:
        raise RteConfigError(f"{origin}: {error}") from error


def _ciphers(value: Any, origin: str) -> str:
    return json.dumps(metrics_port.ciphers(_text(value, origin)))


_SUPPORTED: dict[str, tuple[str, Callable[[Any, str], str]]] = {
    "global.debug": ("log_level", _debug),
    "global.verbose": ("log_level", _level),
    "global.kubeconfig": ("kubeconfig", _text),
    "nrtUpdater.kubeConfig": ("kubeconfig", _text),
    "nrtUpdater.noPublish": ("no_publish", _flag),
    "nrtUpdater.oneShot": ("oneshot", _flag),
    "nrtUpdater.hostname": ("node_name", _text),
    "resourceMonitor.namespace": ("watch_namespace", _text),
    "resourceMonitor.sysfsRoot": ("sysfs", _text),
    "resourceMonitor.podExclude": (
        "exclude_pods",
        lambda value, origin: json.dumps(_pods(value, origin)),
    ),
    "resourceMonitor.podSetFingerprint": ("pods_fingerprint", _flag),
    "resourceMonitor.podSetFingerprintMethod": ("pods_fingerprint_method", _method),
    "resourceMonitor.podSetFingerprintStatusFile": ("pods_fingerprint_status_file", _text),
    "topologyExporter.podResourcesSocketPath": ("podresources_socket", _socket),
    "topologyExporter.sleepInterval": ("interval_s", _seconds),
    "topologyExporter.notifyFilePath": ("notify_file", _text),
    "topologyExporter.maxEventPerTimeUnit": ("max_events_per_time_unit", _count),
    "topologyExporter.timeUnitToLimitEvents": ("time_unit_to_limit_events_s", _unit),
    "topologyExporter.topologyManagerPolicy": ("topology_manager_policy", _text),
    "topologyExporter.topologyManagerScope": ("topology_manager_scope", _text),
    "topologyExporter.kubeletConfigFile": ("kubelet_config", _text),
    "topologyExporter.addNRTOwnerEnable": ("add_nrt_owner", _flag),
    "topologyExporter.podReadinessEnable": ("podreadiness", _flag),
    "topologyExporter.metricsMode": ("metrics_mode", _mode),
    "topologyExporter.metricsTLS.certsDir": ("metrics_certs_dir", _text),
    "topologyExporter.metricsTLS.certFile": ("metrics_cert_file", _text),
    "topologyExporter.metricsTLS.keyFile": ("metrics_key_file", _text),
    "topologyExporter.metricsTLS.wantCliAuth": ("metrics_want_cli_auth", _flag),
    "topologyExporter.metricsTLS.minTLSVersion": ("http_tls_min_version", _version),
    "topologyExporter.metricsTLS.cipherSuites": ("http_tls_ciphers", _ciphers),
    "topologyExporter.metricsAddress": ("http_host", _text),
    "topologyExporter.MetricsAddress": ("http_host", _text),
    "topologyExporter.metricsPort": ("http_port", _count),
}
_OBJECTS = "objects are applied whole by the API server, and again every 5 minutes"
_LEFT_OUT = {
    "nrtUpdater.patchMode": _OBJECTS,
    "nrtUpdater.patchResync": _OBJECTS,
    "resourceMonitor.exposeTiming": "every report has the moment of its reading",
    "resourceMonitor.numaPlacement": "every report lists the zones of each container",
    "resourceMonitor.refreshNodeResources": "allocatable resources are read every interval and on "
    "change, without the API",
    "resourceMonitor.excludeTerminalPods": "kubelets since 1.34 list active pods only; older ones "
    "list names without uids",
    "topologyExporter.referenceContainer": "kubelets since 1.20 report exclusive CPUs only",
}
_RESOURCE_EXCLUDE = "resourceMonitor.resourceExclude"
_EXTRA = ("kubelet", "podExclude", "resourceExclude")
# Mappings that are values, not trees of keys.
_WHOLE = (_RESOURCE_EXCLUDE, "topologyExporter.referenceContainer")


def _extra(document: dict[str, Any], path: Path, node: str) -> list[Setting]:
    settings = []
    for key, value in document.items():
        origin = f"{path}: {key}"
        if value is None and key in _EXTRA:
            continue
        if key == "kubelet":
            settings += _kubelet(value, origin)
        elif key == "resourceExclude":
            resources = json.dumps(_resources(value, origin, node))
            settings.append(Setting("exclude_resources", resources, origin))
        elif key == "podExclude":
            settings.append(Setting("exclude_pods", json.dumps(_pods(value, origin)), origin))
        else:
            raise RteConfigError(
                f"{origin}: not a key of the extra file; its keys are: {', '.join(_EXTRA)}"
            )
    return settings


def _kubelet(value: Any, origin: str) -> list[Setting]:
    names = {
        "topologyManagerPolicy": "topology_manager_policy",
        "topologyManagerScope": "topology_manager_scope",
    }
    if not isinstance(value, dict) or not value.keys() <= names.keys():
        raise RteConfigError(f"{origin}: expected a mapping with {' and '.join(names)}")
    settings = []
    for key, text in value.items():
        if text not in (None, ""):
            settings.append(Setting(names[key], _text(text, f"{origin}.{key}"), f"{origin}.{key}"))
    return settings


def _resources(value: Any, origin: str, node: str) -> list[str]:
    """Return the names for every node (`*`) and for this one; an empty entry has none."""
    if not isinstance(value, dict) or not all(
        isinstance(listed, list | None) for listed in value.values()
    ):
        raise RteConfigError(
            f"{origin}: expected a mapping of a node's name, or '*', to a list of resources"
        )
    return sorted({_text(name, origin) for key in ("*", node) for name in value.get(key) or ()})


def _pods(value: Any, origin: str) -> list[str]:
    names = ("namespacePattern", "namePattern")
    if not isinstance(value, list) or not all(
        isinstance(entry, dict) and set(entry) == set(names) for entry in value
    ):
        raise RteConfigError(f"{origin}: expected a list of entries with {' and '.join(names)}")
    return [f"{_text(entry[names[0]], origin)}/{_text(entry[names[1]], origin)}" for entry in value]
