"""The Topology Manager: its configuration, and the result of each policy over the hints of all
providers.

Source: kubelet 1.36, cm/topologymanager. This module does not know how providers make hints or
allocate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from shared.domain.policies import (
    BEST_EFFORT,
    NONE,
    RESTRICTED,
    SCOPES,
    SINGLE_NUMA_NODE,
    Policy,
    Scope,
)
from shared.kubelet.hint import Hint, Hints
from shared.kubelet.masks import mask_of
from shared.kubelet.merge import Distances, filter_hints, merge_hints, single_node_hints
from shared.kubelet.options import ConfigError, bad_value, not_available, parse_bool, parse_int
from shared.kubelet.versions import DEFAULT, Level

ScopeName = Literal["none"] | Scope

PREFER_CLOSEST = "prefer-closest-numa-nodes"
MAX_ALLOWABLE = "max-allowable-numa-nodes"
DEFAULT_MAX_ALLOWABLE = 8

NO_HINT = Hint(None, False)
"""What a container's stored hint reads when the policy is none."""


class TopologyManager(msgspec.Struct, frozen=True):
    """A configured Topology Manager. `distances` is set only under prefer-closest-numa-nodes."""

    policy: Policy
    scope: ScopeName
    default_mask: int
    distances: Distances | None = None


class _Options(msgspec.Struct, frozen=True):
    prefer_closest: bool = False
    max_allowable: int = DEFAULT_MAX_ALLOWABLE


def configure(
    policy: str,
    scope: str,
    options: dict[str, str],
    nodes: Iterable[int],
    distances: Distances | None,
    *,
    levels: Mapping[str, Level] = DEFAULT.topology_options,
    alpha: bool = False,
    beta: bool = True,
) -> TopologyManager | ConfigError:
    """Return a manager for NUMA `nodes`, or the error text with which the kubelet would not start.
    `levels` are the options of its version, `alpha` and `beta` the gates of their levels.

    `distances` is None if the machine does not report them. Policy none checks nothing, as in the
    kubelet.
    """
    ids = sorted(nodes)
    if policy == NONE:
        return TopologyManager(NONE, "none", mask_of(ids))
    for name in sorted(options):
        unavailable = not_available("Topology", name, levels, alpha=alpha, beta=beta)
        if unavailable is not None:
            return unavailable
    parsed = _parse_options(options)
    if isinstance(parsed, ConfigError):
        return parsed
    if parsed.prefer_closest and (distances is None or any(node not in distances for node in ids)):
        return ConfigError(
            "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
        )
    if len(ids) > parsed.max_allowable:
        return ConfigError(
            f"unsupported on machines with more than {parsed.max_allowable} NUMA Nodes"
        )
    return _named(policy, scope, mask_of(ids), distances if parsed.prefer_closest else None)


def row_of(distances: Sequence[int], highest: int) -> tuple[int, ...]:
    """Return a node's distances as the kubelet looks them up: by id as an index into the list.

    For ids with gaps this is another node's entry. Beyond the end a kubelet crashes (1.36.2), so no
    entry is returned.
    """
    return (*distances, *[0] * (highest + 1 - len(distances)))


def _named(
    policy: str, scope: str, default_mask: int, distances: Distances | None
) -> TopologyManager | ConfigError:
    if policy not in (BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE):
        return ConfigError(f'unknown policy: "{policy}"')
    if scope not in SCOPES:
        return ConfigError(f'unknown scope: "{scope}"')
    return TopologyManager(policy, scope, default_mask, distances)  # type: ignore[arg-type]


def _parse_options(options: dict[str, str]) -> _Options | ConfigError:
    parsed = _Options()
    for name, text in sorted(options.items()):
        step = _parse_option(parsed, name, text)
        if isinstance(step, ConfigError):
            return step
        parsed = step
    return parsed


def _parse_option(options: _Options, name: str, text: str) -> _Options | ConfigError:
    if name == PREFER_CLOSEST:
        flag = parse_bool(text)
        return (
            bad_value(name, flag)
            if isinstance(flag, ConfigError)
            else _Options(flag, options.max_allowable)
        )
    count = parse_int(text)
    if isinstance(count, ConfigError):
        return ConfigError(f'unable to convert policy option to integer "{name}": {count.message}')
    if count < DEFAULT_MAX_ALLOWABLE:
        return ConfigError(
            f'the minimum value of "{name}" should not be less than {DEFAULT_MAX_ALLOWABLE}'
        )
    return _Options(options.prefer_closest, count)


def merge(manager: TopologyManager, providers: Iterable[Hints]) -> tuple[Hint, bool]:
    """The hint that would be stored, and whether the policy admits it."""
    if manager.policy == NONE:
        return NO_HINT, True
    lists = filter_hints(providers)
    if manager.policy == SINGLE_NUMA_NODE:
        return _merge_single(lists, manager.default_mask)
    best = merge_hints(lists, manager.default_mask, manager.distances)
    return best, manager.policy == BEST_EFFORT or best.preferred


def _merge_single(lists: list[list[Hint]], default_mask: int) -> tuple[Hint, bool]:
    best = merge_hints(single_node_hints(lists), default_mask)
    if best.mask == default_mask:
        best = Hint(None, best.preferred)
    return best, best.preferred
