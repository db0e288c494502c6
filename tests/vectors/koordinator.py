"""Reading the shapes of Koordinator's vectors: machines, nodes, pods and what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from services.scheduler.snapshot.topology_policy import POLICY_LABEL, node_rule
from shared.domain.policies import NONE, Policy, parse
from shared.domain.report import Report
from shared.kubelet.cpuset import format_cpus, parse_cpus
from shared.kubelet.masks import nodes_of
from shared.kubelet.topology import Cpu
from shared.owned.machine import CpuNesting, nesting
from shared.owned.request import cpu_binding
from shared.owned.values import (
    Holding,
    OwnedNode,
    OwnedRequest,
    Strategy,
    ZoneAmounts,
    ZoneExclusive,
)

Json = dict[str, Any]

# Quirks of Koordinator that Topolog does not copy, with the reason. A case with such a quirk may
# differ; it is counted under this name (docs/adr/0037-owned-zones.md).
DELIBERATE = {
    "suffixed-policy-name-not-recognised": "the kubelet's scopes are part of its policy names",
    "literal-none-is-a-policy": "None is the name of no policy",
    "sparse-zone-ids-status-index": "the use of a zone is looked up by its id",
    "nobody-cares-yet-exclusive-refuses": "a pod without zoned requests takes no zone",
    "cpuset-without-zone-record-not-counted": "a CPU that a pod holds is not free in its zone",
    "ledger-dropped-without-cpu-topology": "what a pod holds is never dropped",
    "core-id-in-several-zones": "a core is in one zone",
    "distribute-evenly-means-least-allocated": "DistributeEvenly is implemented",
}


def differences_named(case: Json) -> list[str]:
    """Return the deliberate differences that a case may show."""
    return [quirk for quirk in case.get("quirk", ()) if quirk in DELIBERATE]


def answers(case: Json) -> list[Json]:
    """Return the accepted answers: that of the real code, that after small corrections, and every
    recorded one if Go's order of a map decides.
    """
    corrected = [case["expect_fixed"]] if case.get("expect_fixed") else []
    return [case["expect"], *corrected, *case.get("expect_any", ())]


def with_machines(doc: Json) -> Iterator[Json]:
    """Yield the cases of a file, each with the machine that it names."""
    machines = {name: machine_of(made["cpus"]) for name, made in doc["machines"].items()}
    for case in doc["cases"]:
        name = case["machine"] if "machine" in case else case["node"]["machine"]
        yield {**case, "nesting": machines[name]}


def machine_of(rows: list[list[int]]) -> CpuNesting | None:
    return nesting(Cpu(cpu, core, socket, zone, 0) for cpu, core, socket, zone in rows)


def node_of(doc: Json, config: Json, machine: CpuNesting | None) -> OwnedNode:
    """Return the node, its policy as Koordinator combines it: label first."""
    default = cast(Strategy, config["numa_scoring_strategy"])
    forced = {"FullPCPUsOnly": "FullPCPUs", "SpreadByPCPUs": "SpreadByPCPUs"}
    bind = forced.get(doc["cpu_bind_policy_label"], "")
    return OwnedNode(
        "node",
        zones=tuple(zone_of(zone) for zone in doc["zones"]),
        cpus=machine if doc["has_cpu_topology"] else None,
        reserved_cpus=parse_cpus(doc["reserved_cpus"]),
        policy=label_first(doc["label_policy"], doc["nrt_policies"]),
        forced_bind="FullPCPUs" if doc["kubelet_full_pcpus_only"] else cast(Any, bind),
        cpu_strategy=cast(Strategy, doc["numa_allocate_strategy_label"] or default),
        zone_strategy=default,
        sharers=doc["max_ref_count"],
        weights=tuple(config["numa_scoring_weights"].items()),
    )


def label_first(label: str, reported: list[str]) -> Policy:
    """Return the policy of a node by the scheduler's own rule, with the label before the report."""
    report = Report("node", "boot", 1, "exporter", policy=reported_policy(reported))
    labels = {POLICY_LABEL: label} if label else {}
    return cast(Policy, node_rule(report, labels, "label-first", is_owned=True).policy)


def reported_policy(names: list[str]) -> Policy:
    """Return the first policy other than none among the names of a report (`topologyPolicies`)."""
    return next((policy for policy in map(policy_of, names) if policy != NONE), NONE)


def policy_of(text: str) -> Policy:
    parsed = parse(text)
    return NONE if parsed is None else cast(Policy, parsed[0])


def zone_of(doc: Json) -> ZoneAmounts:
    return ZoneAmounts(doc["zone"], doc["resources"])


def holding_of(doc: Json) -> Holding:
    zones = tuple(zone_of(zone) for zone in doc["zones"])
    return Holding(parse_cpus(doc["cpus"]), doc["exclusive"], zones)


def request_of(doc: Json, default_bind: str) -> OwnedRequest:
    policy = policy_of(doc["numa_topology_policy"])
    takes_set, bind, is_required = cpu_binding(
        doc["qos"],
        doc["priority_class"],
        doc["required_cpu_bind_policy"],
        doc["preferred_cpu_bind_policy"],
        cast(Any, default_bind),
    )
    return OwnedRequest(
        doc["requests"],
        policy=None if policy == NONE else policy,
        zone_exclusive=cast(ZoneExclusive, doc["single_numa_node_exclusive"]),
        takes_cpu_set=takes_set,
        bind=bind,
        bind_is_required=is_required,
        cpu_exclusive=doc["preferred_cpu_exclusive_policy"] if takes_set else "",
    )


def zones_json(zones: tuple[ZoneAmounts, ...]) -> list[Json]:
    return [{"zone": zone.zone, "resources": dict(zone.amounts)} for zone in zones]


def mask_json(mask: int | None) -> list[int] | None:
    return None if mask is None else list(nodes_of(mask))


def holding_json(holding: Holding) -> Json:
    return {"allocated": zones_json(holding.zones), "cpus": format_cpus(holding.cpus)}
