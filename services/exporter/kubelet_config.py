"""What a KubeletConfiguration says about placement: Topology Manager policy, scope and options, CPU
Manager options.

Pure: text in, value or `KubeletConfigError` out. Empty or absent values are the kubelet's defaults
(1.36). Must not know where the text came from.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shared.domain.policies import POLICIES, SCOPES
from shared.domain.report import UNKNOWN

MAX_NUMA_NODES = "max-allowable-numa-nodes"
DEFAULT_MAX_NUMA_NODES = 8
MAX_FILE_BYTES = 128 << 10
"""A KubeletConfiguration has a few thousand bytes; YAML is read at some 100 kB a second."""


class KubeletConfigError(ValueError):
    """The configuration says something that a kubelet would refuse; names field, value and remedy."""


class KubeletFacts(msgspec.Struct, frozen=True):
    """Policy, scope and options of one node; `options` holds those of the Topology and the CPU
    Manager (disjoint names).

    `policy` is `unknown` where nobody told it; `cpu_policy` and `memory_policy` are empty then."""

    policy: str = UNKNOWN
    scope: str = "container"
    options: dict[str, str] = {}
    cpu_policy: str = ""
    memory_policy: str = ""

    @property
    def max_numa_nodes(self) -> int:
        """The Topology Manager's `max-allowable-numa-nodes`, 8 where it is not set."""
        return int(self.options.get(MAX_NUMA_NODES, DEFAULT_MAX_NUMA_NODES))


class _File(msgspec.Struct, rename="camel"):
    kind: str = "KubeletConfiguration"
    topology_manager_policy: str | None = None
    topology_manager_scope: str | None = None
    topology_manager_policy_options: dict[str, str] | None = None
    cpu_manager_policy: str | None = None
    cpu_manager_policy_options: dict[str, str] | None = None
    memory_manager_policy: str | None = None


def parse(text: bytes, where: str) -> KubeletFacts:
    """The placement part of a KubeletConfiguration in YAML or JSON. Raises KubeletConfigError."""
    if len(text) > MAX_FILE_BYTES:
        raise KubeletConfigError(
            f"{where}: {len(text)} bytes, at most {MAX_FILE_BYTES} are read; name the kubelet's own file"
        )
    try:
        found = msgspec.convert(_document(text), _File)
    except (msgspec.MsgspecError, ValueError) as error:
        raise KubeletConfigError(
            f"{where}: {error}; expected a KubeletConfiguration in YAML or JSON"
        ) from error
    if found.kind != "KubeletConfiguration":
        raise KubeletConfigError(f"{where}: kind is {found.kind!r}, expected KubeletConfiguration")
    options = {
        **(found.cpu_manager_policy_options or {}),
        **(found.topology_manager_policy_options or {}),
    }
    facts = checked(
        found.topology_manager_policy or "none",
        found.topology_manager_scope or "container",
        options,
        where,
    )
    managers = {
        "cpu_policy": found.cpu_manager_policy or "none",
        "memory_policy": found.memory_manager_policy or "None",
    }
    return msgspec.structs.replace(facts, **managers)


def checked(policy: str, scope: str, options: dict[str, str], where: str) -> KubeletFacts:
    """The facts after the kubelet's own checks; an `unknown` policy stays so. Raises
    KubeletConfigError.
    """
    if policy not in (*POLICIES, UNKNOWN):
        raise KubeletConfigError(
            f"{where}: topologyManagerPolicy {policy!r} is unknown; use one of {', '.join(POLICIES)}"
        )
    if scope not in SCOPES:
        raise KubeletConfigError(
            f"{where}: topologyManagerScope {scope!r} is unknown; use one of {', '.join(SCOPES)}"
        )
    limit = options.get(MAX_NUMA_NODES, str(DEFAULT_MAX_NUMA_NODES))
    if (
        not limit.isascii()
        or not limit.isdigit()
        or not DEFAULT_MAX_NUMA_NODES <= int(limit) <= 1024
    ):
        raise KubeletConfigError(
            f"{where}: {MAX_NUMA_NODES} is {limit!r}; use a number from 8 to 1024"
        )
    return KubeletFacts(policy, scope, dict(sorted(options.items())))


def _document(text: bytes) -> Any:
    """JSON is tried first: it is YAML too, and reading it costs no YAML library in memory."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        from shared.domain import yaml_text

        try:
            return yaml_text.document(text)
        except (yaml_text.YAMLError, RecursionError) as error:
            raise ValueError(str(error)) from error
