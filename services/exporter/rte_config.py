"""Configuration folders of resource-topology-exporter as they are: `daemon/config.yaml`,
configlets, `extra/config.yaml`.

Files in, settings out, each with the file and key that it came from; what has no counterpart here
is named with the reason. A key that RTE does not have, a wrong type, a value in the wrong unit is
an error. Symbolic links count: ConfigMap volumes consist of them. Must not know what the settings
do. Source: resource-topology-exporter 0.25, pkg/config.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from services.exporter import durations, metrics_port

MAX_BYTES = 1 << 20
LEAST_NS = 1_000_000


class RteConfigError(ValueError):
    """A file that cannot be taken; names file, key and remedy."""


class Setting(msgspec.Struct, frozen=True):
    """A setting of this exporter (`interval_s`), its value as text, and where it came from (`FILE:
    KEY`).
    """

    name: str
    value: str
    origin: str


class LeftOut(msgspec.Struct, frozen=True):
    """A key that is known and has no effect here."""

    origin: str
    reason: str


class RteConfig(msgspec.Struct, frozen=True):
    """What a folder says."""

    settings: tuple[Setting, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


Value = tuple[Any, str]
"""What stands there, and `FILE: KEY`."""


def read(root: Path, node: str) -> RteConfig:
    """The folder's settings; `node` chooses among exclusions by node. Raises RteConfigError."""
    if not root.is_dir():
        raise RteConfigError(
            f"{root}: is no folder; give the one that holds daemon/config.yaml or extra/config.yaml"
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
        elif key in _TAKEN:
            name, convert = _TAKEN[key]
            settings.append(Setting(name, convert(value, origin), origin))
        else:
            raise RteConfigError(
                f"{origin}: is no key of resource-topology-exporter; known are: {', '.join(sorted(_known()))}"
            )
    return RteConfig((*settings, *_extra(_document(extra), extra, node)), tuple(left_out))


def _known() -> set[str]:
    return {*_TAKEN, *_LEFT_OUT, _RESOURCE_EXCLUDE}


def _configlets(folder: Path) -> list[Path]:
    return (
        sorted(
            path for path in folder.glob("*") if path.is_file() and not path.name.startswith(".")
        )
        if folder.is_dir()
        else []
    )


def _flattened(paths: list[Path]) -> dict[str, Value]:
    """Dotted keys of all files, a later one over an earlier one."""
    found: dict[str, Value] = {}
    for path in paths:
        _flatten(_document(path), "", path, found)
    return found


def _flatten(tree: dict[str, Any], at: str, path: Path, found: dict[str, Value]) -> None:
    for key, value in tree.items():
        if isinstance(value, dict) and f"{at}{key}" not in _WHOLE:
            _flatten(value, f"{at}{key}.", path, found)
        elif value is not None or not _is_section(f"{at}{key}"):
            found[f"{at}{key}"] = value, f"{path}: {at}{key}"


def _is_section(name: str) -> bool:
    """One whose keys are all commented out says nothing, to RTE too."""
    return name in _WHOLE or any(key.startswith(f"{name}.") for key in _known())


def _document(path: Path) -> dict[str, Any]:
    """The file's mapping; empty where there is no such file."""
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
        raise RteConfigError(f"{path}: is no mapping of at most {MAX_BYTES} bytes")
    return document or {}


def _text(value: Any, origin: str) -> str:
    if not isinstance(value, str):
        raise RteConfigError(f"{origin}: {value!r} is no text; put it in quotes")
    return value


def _flag(value: Any, origin: str) -> str:
    if not isinstance(value, bool):
        raise RteConfigError(f"{origin}: {value!r} is neither true nor false")
    return "true" if value else "false"


def _count(value: Any, origin: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise RteConfigError(f"{origin}: {value!r} is no whole number from 0 on")
    return str(value)


def _seconds(value: Any, origin: str) -> str:
    """Nanoseconds as a number, or a Go duration as text (0.25)."""
    if isinstance(value, str):
        nanoseconds = durations.nanoseconds(value)
    else:
        nanoseconds = value if isinstance(value, int) and not isinstance(value, bool) else None
    if nanoseconds is None:
        raise RteConfigError(
            f"{origin}: {value!r} is no duration; write nanoseconds (60000000000) or a text such as '60s'"
        )
    if nanoseconds < LEAST_NS:
        told = (
            "is off, and a node that is silent is taken to be gone"
            if nanoseconds == 0
            else f"is {nanoseconds} nanoseconds"
        )
        raise RteConfigError(f"{origin}: {value!r} {told}; write a text such as '60s'")
    return f"{nanoseconds / 1e9:g}"


def _unit(value: Any, origin: str) -> str:
    if value in (0, "0", "0s") and not isinstance(value, bool):
        raise RteConfigError(
            f"{origin}: {value!r} is no unit of time; for no limit write maxEventPerTimeUnit: 0"
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
        raise RteConfigError(f"{origin}: {value!r} is no mode; write disabled, http or httptls")
    return mode


def _version(value: Any, origin: str) -> str:
    try:
        return metrics_port.version(_text(value, origin))
    except ValueError as error:
        raise RteConfigError(f"{origin}: {error}") from error


def _ciphers(value: Any, origin: str) -> str:
    return json.dumps(metrics_port.ciphers(_text(value, origin)))


_TAKEN: dict[str, tuple[str, Callable[[Any, str], str]]] = {
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
    "resourceMonitor.exposeTiming": "every report carries the moment of its reading",
    "resourceMonitor.numaPlacement": "every report lists the zones of each container",
    "resourceMonitor.refreshNodeResources": "allocatable resources are read once an interval and on change, without the API",
    "resourceMonitor.excludeTerminalPods": "kubelets since 1.34 list active pods only; older ones list names without uids",
    "topologyExporter.referenceContainer": "kubelets since 1.20 report exclusive CPUs only",
}
_RESOURCE_EXCLUDE = "resourceMonitor.resourceExclude"
_EXTRA = ("kubelet", "podExclude", "resourceExclude")
_WHOLE = (_RESOURCE_EXCLUDE, "topologyExporter.referenceContainer")
"""Mappings that are values, not trees of keys."""


def _extra(document: dict[str, Any], path: Path, node: str) -> list[Setting]:
    made = []
    for key, value in document.items():
        origin = f"{path}: {key}"
        if value is None and key in _EXTRA:
            continue
        if key == "kubelet":
            made += _kubelet(value, origin)
        elif key == "resourceExclude":
            made.append(
                Setting("exclude_resources", json.dumps(_resources(value, origin, node)), origin)
            )
        elif key == "podExclude":
            made.append(Setting("exclude_pods", json.dumps(_pods(value, origin)), origin))
        else:
            raise RteConfigError(
                f"{origin}: is no key of the extra file; known are: {', '.join(_EXTRA)}"
            )
    return made


def _kubelet(value: Any, origin: str) -> list[Setting]:
    names = {
        "topologyManagerPolicy": "topology_manager_policy",
        "topologyManagerScope": "topology_manager_scope",
    }
    if not isinstance(value, dict) or not value.keys() <= names.keys():
        raise RteConfigError(f"{origin}: expected a mapping with {' and '.join(names)}")
    said = [(key, text) for key, text in value.items() if text not in (None, "")]
    return [
        Setting(names[key], _text(text, f"{origin}.{key}"), f"{origin}.{key}") for key, text in said
    ]


def _resources(value: Any, origin: str, node: str) -> list[str]:
    """Names for every node (`*`) and for this one; a node's empty entry names none."""
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
        isinstance(each, dict) and set(each) == set(names) for each in value
    ):
        raise RteConfigError(f"{origin}: expected a list of entries with {' and '.join(names)}")
    return ["/".join(_text(each[name], origin) for name in names) for each in value]
