"""Placement settings of a kubelet: the Topology, CPU and Memory Manager part of its configuration.

Pure: documents and flags in, `KubeletSettings` or `KubeletConfigError` out. A running kubelet
merges its sources in this order, later ones over earlier ones (1.28 to 1.36):

1. its defaults,
2. the file of `--config`,
3. the `*.conf` files of `--config-dir`, sorted by name, each as a JSON merge patch (maps are merged
   key by key, lists and scalars replaced),
4. its flags. A flag with a map replaces the whole map, `--feature-gates` key by key.

A field that no source sets has the kubelet's default only if every source was read; else the policy
is `unknown`. Must not know the place of a text (`kubelet_sources`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from services.exporter.reserved import Reserved, reserved, sets_reservations
from shared.domain.policies import NONE, POLICIES, SCOPES
from shared.domain.report import POD_LEVEL_GATE, UNKNOWN

CONTAINER = "container"
KIND = "KubeletConfiguration"
MAX_NUMA_NODES = "max-allowable-numa-nodes"
DEFAULT_MAX_NUMA_NODES = 8
# A KubeletConfiguration has a few thousand bytes, and YAML is parsed at some 100 kB a second.
MAX_FILE_BYTES = 128 << 10
# Kubelet flag -> field of the KubeletConfiguration.
FLAG_FIELDS = {
    "topology-manager-policy": "topologyManagerPolicy",
    "topology-manager-scope": "topologyManagerScope",
    "topology-manager-policy-options": "topologyManagerPolicyOptions",
    "cpu-manager-policy": "cpuManagerPolicy",
    "cpu-manager-policy-options": "cpuManagerPolicyOptions",
    "memory-manager-policy": "memoryManagerPolicy",
    "reserved-cpus": "reservedSystemCPUs",
    "kube-reserved": "kubeReserved",
    "system-reserved": "systemReserved",
    "feature-gates": "featureGates",
}
GATES_FLAG = "feature-gates"
_MAP_FLAGS = (
    "topology-manager-policy-options",
    "cpu-manager-policy-options",
    "kube-reserved",
    "system-reserved",
    GATES_FLAG,
)
# What Go's strconv.ParseBool reads as true, as text.
_TRUE = ("1", "t", "true")


class KubeletConfigError(ValueError):
    """A kubelet would reject the configuration; names field, value and fix."""


class KubeletSettings(msgspec.Struct, frozen=True):
    """Policy, scope and options of one node.

    `options` holds the options of the Topology and the CPU Manager (their names differ), and the
    gate PodLevelResourceManagers if some source turns it on. `policy`
    is `unknown` if no source that could be read sets it and `unread` names sources that could not
    be read; `cpu_policy` and `memory_policy` are empty then. `reserved` is None if it is unknown.
    """

    policy: str = UNKNOWN
    scope: str = CONTAINER
    options: dict[str, str] = {}
    cpu_policy: str = ""
    memory_policy: str = ""
    unread: tuple[str, ...] = ()
    reserved: Reserved | None = None

    @property
    def max_numa_nodes(self) -> int:
        """Return `max-allowable-numa-nodes`; policy none ignores its options."""
        if self.policy == NONE:
            return DEFAULT_MAX_NUMA_NODES
        return int(self.options.get(MAX_NUMA_NODES, DEFAULT_MAX_NUMA_NODES))

    @property
    def notice(self) -> str:
        """Return why the policy is unknown; empty if it is known."""
        if self.policy != UNKNOWN:
            return ""
        sources = ", ".join(self.unread) or "any source of the kubelet's settings"
        return (
            f"Topology Manager policy unknown: no readable source sets it; not read: {sources}. "
            "Mount these, allow --kubelet-config-uri, or set --topology-manager-policy"
        )


class _Fields(msgspec.Struct, rename="camel"):
    topology_manager_policy: str | None = None
    topology_manager_scope: str | None = None
    topology_manager_policy_options: dict[str, str] | None = None
    cpu_manager_policy: str | None = None
    cpu_manager_policy_options: dict[str, str] | None = None
    memory_manager_policy: str | None = None
    feature_gates: dict[str, Any] | None = None


def parse(text: bytes, where: str) -> KubeletSettings:
    """Return the settings of a whole KubeletConfiguration. Raises KubeletConfigError."""
    return merged([(where, document(text, where))])


def document(text: bytes, where: str) -> dict[str, Any]:
    """Return a KubeletConfiguration in YAML or JSON as a mapping. Raises KubeletConfigError."""
    if len(text) > MAX_FILE_BYTES:
        raise KubeletConfigError(
            f"{where}: {len(text)} bytes, at most {MAX_FILE_BYTES} are read; "
            "name the kubelet's own file"
        )
    try:
        content = mapping(text)
    except ValueError as error:
        raise KubeletConfigError(
            f"{where}: {error}; expected a KubeletConfiguration in YAML or JSON"
        ) from error
    kind = content.get("kind", KIND)
    if kind != KIND:
        raise KubeletConfigError(f"{where}: kind is {kind!r}, expected KubeletConfiguration")
    return content


def mapping(text: bytes) -> dict[str, Any]:
    """Return a YAML or JSON mapping. Raises ValueError.

    JSON is tried first: it is YAML, too, and reading it loads no YAML library into memory.
    """
    content: Any
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        from shared.domain import yaml_text

        try:
            content = yaml_text.document(text)
        except (yaml_text.YAMLError, RecursionError) as error:
            raise ValueError(str(error)) from error
    if not isinstance(content, dict):
        raise ValueError(f"expected a mapping, got {type(content).__name__}")
    return content


def combined(
    documents: Iterable[tuple[str, Mapping[str, Any]]],
    flags: Iterable[tuple[str, Mapping[str, str]]],
) -> dict[str, Any]:
    """Return the content of documents and flags, each (source, content), later over earlier."""
    content: dict[str, Any] = {}
    for _, patch in documents:
        content = _patched(content, patch)
    for _, values in flags:
        fields = _from_flags(values)
        gates = FLAG_FIELDS[GATES_FLAG]
        if gates in fields and isinstance(content.get(gates), dict):
            fields[gates] = {**content[gates], **fields[gates]}
        content.update(fields)
    return content


def merged(
    documents: Sequence[tuple[str, Mapping[str, Any]]],
    flags: Sequence[tuple[str, Mapping[str, str]]] = (),
    unread: tuple[str, ...] = (),
) -> KubeletSettings:
    """Return the settings of documents and flags (see `combined`).

    `unread` names sources that exist or may exist and could not be read. Raises KubeletConfigError.
    """
    content = combined(documents, flags)
    where = ", ".join(source for source, _ in (*documents, *flags)) or "no source"
    try:
        fields = msgspec.convert(content, _Fields)
    except msgspec.ValidationError as error:
        raise KubeletConfigError(
            f"{where}: {error}; expected a KubeletConfiguration in YAML or JSON"
        ) from error
    default = UNKNOWN if unread else NONE
    options = {
        **(fields.cpu_manager_policy_options or {}),
        **(fields.topology_manager_policy_options or {}),
    }
    if str((fields.feature_gates or {}).get(POD_LEVEL_GATE)).lower() in _TRUE:
        options[POD_LEVEL_GATE] = "true"
    settings = checked(
        fields.topology_manager_policy or default,
        fields.topology_manager_scope or CONTAINER,
        options,
        where,
    )
    return msgspec.structs.replace(
        settings,
        cpu_policy=fields.cpu_manager_policy or ("" if unread else "none"),
        memory_policy=fields.memory_manager_policy or ("" if unread else "None"),
        unread=unread,
        reserved=None if unread and not sets_reservations(content) else reserved(content),
    )


def checked(policy: str, scope: str, options: dict[str, str], where: str) -> KubeletSettings:
    """Return the settings after the kubelet's own checks. Raises KubeletConfigError.

    Policy none skips the checks of scope and options, as the kubelet does from 1.28. An `unknown`
    policy stays unknown.
    """
    if policy not in (*POLICIES, UNKNOWN):
        raise KubeletConfigError(
            f"{where}: topologyManagerPolicy must be one of {', '.join(POLICIES)} (is {policy!r})"
        )
    ordered = dict(sorted(options.items()))
    if policy == NONE:
        return KubeletSettings(policy, scope if scope in SCOPES else CONTAINER, ordered)
    if scope not in SCOPES:
        raise KubeletConfigError(
            f"{where}: topologyManagerScope must be one of {', '.join(SCOPES)} (is {scope!r})"
        )
    limit = options.get(MAX_NUMA_NODES, str(DEFAULT_MAX_NUMA_NODES))
    is_number = limit.isascii() and limit.isdigit() and len(limit) < 6
    if not is_number or not DEFAULT_MAX_NUMA_NODES <= int(limit) <= 1024:
        raise KubeletConfigError(
            f"{where}: {MAX_NUMA_NODES} must be a number from 8 to 1024 (is {limit!r})"
        )
    return KubeletSettings(policy, scope, ordered)


def _patched(content: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a JSON merge patch (RFC 7386), as the kubelet does with its drop-in files."""
    result = dict(content)
    for key, value in patch.items():
        current = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(current, dict):
            result[key] = _patched(current, value)
        else:
            result[key] = value
    return result


def _from_flags(values: Mapping[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for flag, text in values.items():
        if flag in _MAP_FLAGS:
            pairs = (pair.partition("=") for pair in text.split(",") if pair)
            fields[FLAG_FIELDS[flag]] = {key.strip(): value.strip() for key, _, value in pairs}
        elif flag in FLAG_FIELDS:
            fields[FLAG_FIELDS[flag]] = text
    return fields
