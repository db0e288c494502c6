"""Judge the nodes: reports, policies, fingerprints, rejections, kubelet versions that the model was
not compared with. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from services.doctor.finding import Finding, problem, warning
from services.replay.confirmations import actual_zones
from services.replay.words import confirmed_by
from services.scheduler.snapshot.owners import owners_of
from services.scheduler.snapshot.topology_policy import POLICY_LABEL, unkept_labels
from shared.domain import policies
from shared.domain.predicted import is_as_predicted
from shared.domain.report import KOORDLET, UNKNOWN, Placement, Report
from shared.domain.resources import is_memory
from shared.kubelet.versions import RECORDED, is_recorded, support
from shared.ledger.state import Ledger, LedgerNode
from shared.owned.drift import drift_of

# Pods that one finding names.
DRIFTED_SHOWN = 3
# With more combinations of hints a kubelet's own merge takes minutes: one for each subset of zones
# and each resource.
MERGE_LIMIT = 10**7
EXPORTER_OF = (
    "kubectl -n topolog get pods -l app=exporter -o wide --field-selector spec.nodeName={}"
)


class Machine(msgspec.Struct, frozen=True):
    """Kubelet version, readiness and cell by the Node object."""

    kubelet_version: str = ""
    ready: bool = True
    cell: str = ""


def judge(
    ledger: Ledger, machines: Mapping[str, Machine], rejections: Mapping[str, int]
) -> Iterator[Finding]:
    """Yield the findings in order of node name. `rejections` counts the pods that each node's
    kubelet rejected recently."""
    for name in sorted(set(ledger.nodes) | set(machines)):
        node, machine = ledger.nodes.get(name), machines.get(name)
        if machine is not None and machine.ready:
            yield from _reporting(name, node)
        if node is not None and node.report is not None and node.observed is not None:
            yield from _placing(name, node, node.report, rejections.get(name, 0))
            yield from _drift(name, _drifted(ledger, node))
            yield from _unlike(name, node, node.report)
        if machine is not None and not is_recorded(machine.kubelet_version):
            version = machine.kubelet_version or "of unknown version"
            recorded = ", ".join(f"1.{minor}" for minor in RECORDED)
            yield warning(
                f"node {name}",
                f"kubelet {version}: {support(machine.kubelet_version)} (recorded: {recorded})",
                "topolog replay predictions shows how often the model was right on this cluster",
            )


def without_cell(machines: Mapping[str, Machine], cells: Collection[str]) -> Iterator[Finding]:
    """Yield the nodes that none of several cells owns."""
    for name, machine in sorted(machines.items()):
        if machine.cell not in cells:
            owner = f"its owner {machine.cell!r} is no cell" if machine.cell else "no cell owns it"
            yield problem(
                f"node {name}",
                f"{owner}: it takes no pod",
                "check that the scheduler of the cell that wants it runs, and its log for "
                "`cell.kept`; topolog cells list",
            )


def _reporting(name: str, node: LedgerNode | None) -> Iterator[Finding]:
    if node is None or node.report is None:
        yield problem(
            f"node {name}",
            "is ready and has never reported: it takes no pod that needs zones",
            EXPORTER_OF.format(name),
        )
    elif node.expired:
        yield problem(
            f"node {name}",
            "its report has expired: it takes no pod that needs zones",
            EXPORTER_OF.format(name),
        )


def _knowledge(about: str, report: Report) -> Iterator[Finding]:
    """Yield what the node's exporter does not report."""
    if report.policy == UNKNOWN:
        by_koordlet = report.exporter == KOORDLET
        yield problem(
            about,
            "its exporter does not know the kubelet's topology policy",
            "remove disable-query-kubelet-config from koordlet's arguments"
            if by_koordlet
            else "give the exporter the kubelet's configuration "
            "(--kubelet-dir, --kubelet-config or --topology-manager-policy)",
        )
    if any(map(is_memory, report.unlisted)):
        yield warning(
            about,
            "koordlet does not report the Memory Manager's policy, so each Guaranteed pod's memory "
            "counts in every zone where it may be",
            "if no kubelet has memoryManagerPolicy Static: TOPOLOG_KOORDLET_MEMORY_POLICY=None for "
            "the topology-store",
        )


def _placing(name: str, node: LedgerNode, report: Report, rejected: int) -> Iterator[Finding]:
    about = f"node {name}"
    yield from _knowledge(about, report)
    labels, owners = node.observed.labels if node.observed else {}, owners_of(report)
    label = labels.get(POLICY_LABEL, "")
    labelled, _ = policies.parse(label) or ("", "")
    if labelled not in ("", policies.NONE) and owners.cpu == "nobody":
        yield warning(
            about,
            f"its label says {labelled}, and nothing on the node chooses zones: {owners.reason}",
            "run topolog-agent or koordlet there, or set the kubelet's managers to static; "
            "docs/owned-zones.md",
        )
    elif label and labelled and report.policy not in (labelled, UNKNOWN) and not owners.is_owned:
        yield warning(
            about,
            f"its label says {labelled}, its kubelet uses {report.policy}",
            f"set topologyManagerPolicy {labelled} in the kubelet's configuration; "
            "docs/constraints.md says which of the two decides",
        )
    for _, sentence in () if owners.is_owned else unkept_labels(report, labels):
        key, _, remedy = sentence.partition(": ")
        yield warning(about, f"its kubelet does not keep the {key}", remedy)
    if rejected:
        yield warning(
            about,
            f"its kubelet rejected {rejected} pod(s) ({report.policy}, {report.scope})",
            "topolog replay log --type PodEnded; "
            "compare the kubelet's configuration with the report's policy",
        )
    if report.source != "bus" and report.exporter != KOORDLET and not confirmed_by(node):
        yield problem(
            about,
            "its reports have neither placements nor a fingerprint: no placement is ever confirmed",
            "--pods-fingerprint for RTE or NFD's topology updater, or Topolog's own exporter",
        )
    if node.dirty and node.listed is None:
        yield warning(
            about,
            f"dirty, and its fingerprint ({report.fingerprint_method or 'none'}) does not match",
            f"topolog replay at -1 --node {name}",
        )
    combinations = (2 ** len(report.zones) - 1) ** max(len(report.tracked), 1)
    if len(report.zones) >= 8 and combinations > MERGE_LIMIT:
        yield warning(
            about,
            f"{len(report.zones)} zones and {len(report.tracked)} resources: "
            "its kubelet may not finish a merge of hints",
            "KubeletConfiguration: topologyManagerPolicyOptions max-allowable-numa-nodes, "
            "fewer device resources, or sub-NUMA clustering off",
        )


def _drift(name: str, drifted: list[str]) -> Iterator[Finding]:
    if drifted:
        more = f" and {len(drifted) - DRIFTED_SHOWN} more" if len(drifted) > DRIFTED_SHOWN else ""
        yield warning(
            f"node {name}",
            f"{', '.join(drifted[:DRIFTED_SHOWN])}{more}: in other zones than were predicted with "
            "certainty, so its kubelet does not work like the model",
            "compare the kubelet's version and options with the report; "
            "topolog replay predictions --by node",
        )


def _unlike(name: str, node: LedgerNode, report: Report) -> Iterator[Finding]:
    """Yield a finding about pods whose containers have other CPUs or zones than were reserved."""
    by_uid: dict[str, list[Placement]] = {}
    for placement in report.enforced or ():
        by_uid.setdefault(placement.pod_uid, []).append(placement)
    drifts = [
        f"{charge.key} ({text})"
        for uid, charge in sorted(node.charges.items())
        if charge.allocation and (text := drift_of(charge.allocation, by_uid.get(uid, ())))
    ]
    if drifts:
        more = f" and {len(drifts) - DRIFTED_SHOWN} more" if len(drifts) > DRIFTED_SHOWN else ""
        yield warning(
            f"node {name}",
            f"runs pods otherwise than reserved: {', '.join(drifts[:DRIFTED_SHOWN])}{more}",
            "read the agent's log there: it repairs containers unless something else sets their "
            "CPUs again; docs/agent.md",
        )


def _drifted(ledger: Ledger, node: LedgerNode) -> list[str]:
    """Return the names of confirmed pods in other zones than were predicted with certainty."""
    drifted = []
    for uid, charge in node.charges.items():
        entry = ledger.pods.get(uid)
        if entry is None or not (entry.certain and charge.confirmed):
            continue
        if not is_as_predicted(entry.predicted, actual_zones(node, charge.key)):
            drifted.append(charge.key)
    return sorted(drifted)
