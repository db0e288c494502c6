"""Generate docs/messages.md from the code: Kubernetes Events and conditions, reasons of a node, and
log lines at warning and above, with their remedies.

`make docs` writes the page, and a test compares it. Meaning and remedy of a log event are at its
declaration in shared/telemetry/names.py, agent_names.py or exporter_names.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from services.scheduler.explain import wording
from services.scheduler.filter.constraints import predicates, registry
from services.scheduler.filter.constraints.constraint import RefusalReason
from services.scheduler.filter.topology import fit
from shared.domain.refusal import Reason
from shared.telemetry import agent_names, declare, exporter_names, names

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "messages.md"
KUBERNETES = (
    (
        "Event `FailedScheduling`, condition `PodScheduled=False`",
        "No node passed the filters; the message counts the reasons. Attempts follow each change "
        "that may help, and every few minutes.",
        "`topolog replay explain POD` shows zones, holders and remedies; "
        "`topolog replay why-not POD --node NODE` one node's current state.",
    ),
    ("Event `Scheduled`", "The pod was bound. At most 50 a second are written.", "None."),
    (
        "Event `AdmittedOnZone`",
        "A report shows the zone that the kubelet chose, and whether it was predicted.",
        "None.",
    ),
    (
        "Event `ZoneRequirementMissed`",
        "A pod or node label asked for one zone, and a report shows the pod in several.",
        "Compare the kubelet's configuration with the report (`topolog doctor`). Delete the pod "
        "to place it again.",
    ),
    (
        "Event `PlacementDrift`",
        "A report shows the pod in other zones than were predicted with certainty: the kubelet "
        "differs from its model. Or its agent reports other CPUs or zones than were reserved.",
        "The same; `topolog replay predictions` lists all misses. Of an agent: read its log.",
    ),
    (
        "Event `DevicesLost`",
        "The Device object of the pod's node no longer offers a card that the pod holds.",
        "See why the card is unhealthy or gone; delete the pod to place it elsewhere.",
    ),
    (
        "Condition `topolog.io/PreferencesKept=False`",
        "Annotations or labels of other schedulers express preferences that had no effect.",
        "[What each key needs](constraints.md#keys-of-other-schedulers).",
    ),
    (
        "Condition `topolog.io/ZoneAvailable=False`",
        "Some node has enough in all, but no zone has. The message names what each zone of the "
        "nearest node has.",
        "See the message. `topolog doctor` counts such pods.",
    ),
    (
        "Event `NodeExcluded` of a Node",
        "The node is excluded for a pod class.",
        "Fix the cause. The exclusion ends by itself, or with `topolog node readmit NODE`.",
    ),
    (
        "Event `Preempted`",
        "The pod was evicted for a pod of higher priority.",
        "None.",
    ),
    (
        "Pod `Failed`, `TopologyAffinityError`",
        "The kubelet rejected the pod: its zones had no room.",
        "`topolog replay explain POD` shows whether the end of another pod explains it. If not, "
        "report it.",
    ),
    (
        "Pod `Failed`, `OutOfcpu` (`OutOfmemory`, ...)",
        "The node as a whole had too little. The kubelet checks that after alignment.",
        "Look for pods that no scheduler counted. `topolog admit` repeats the kubelet's check.",
    ),
)


def page() -> str:
    """Return the whole page."""
    return "\n".join([_HEAD, *_kubernetes(), *_reasons(), *_warnings(), _COMMAND])


def _kubernetes() -> list[str]:
    rows = [f"|{place}|{meaning}|{remedy}|" for place, meaning, remedy in KUBERNETES]
    return ["## In Kubernetes", "", "|message|meaning|remedy|", "|---|---|---|", *rows, ""]


def _reasons() -> list[str]:
    """Return one row for each remedy, with the messages that it is for."""
    remedies = {reason.phrase: reason.remedy for reason in _carried_reasons()}
    remedies |= {
        phrase.format(subject="X", resource="RESOURCE", asked="AMOUNT"): _NUMA.get(reason, "")
        for reason, phrase in wording.PHRASES.items()
        if reason != Reason.KUBELET_FAILS
    }
    messages: dict[str, list[str]] = {}
    for phrase, remedy in sorted(remedies.items()):
        shown = phrase.replace("%s", "X").replace("%r", "RESOURCE")
        messages.setdefault(remedy or _BY_AMOUNT, []).append(shown)
    rows = [f"|{'<br>'.join(phrases)}|{remedy}|" for remedy, phrases in messages.items()]
    return [_REASONS, "|message|remedy|", "|---|---|", *rows, "", _STORED]


def _carried_reasons() -> list[RefusalReason]:
    """Return the reasons that carry their phrase and remedy."""
    return [*registry.reasons(), *fit.REASONS, *predicates.REASONS]


def _warnings() -> list[str]:
    lines = [
        "## Log lines at warning and above",
        "",
        "|event|meaning|remedy|",
        "|---|---|---|",
    ]
    for name in sorted(_DECLARED[constant] for constant in warned()):
        message = declare.EVENTS[name]
        lines.append(f"|`{name}`|{message.meaning}|{message.remedy}|")
    return [*lines, ""]


def warned() -> set[str]:
    """Return the constants of events that are logged at warning or above."""
    return logged("warning", "error", "critical")


def logged(*levels: str) -> set[str]:
    """Return the constants of events that are logged at one of these levels. The call itself must
    name the constant of `names`, of `exporter_names`, or of `agent_names` imported as `names`."""
    constants: set[str] = set()
    for _, tree in _sources():
        for call in _calls(tree):
            if isinstance(call.func, ast.Attribute) and call.func.attr in levels and call.args:
                constants |= _constants(call.args[0])
    return constants


def _constants(node: ast.expr) -> set[str]:
    return {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Name)
        and part.value.id in ("names", "exporter_names")
    }


def _sources() -> Iterator[tuple[Path, ast.Module]]:
    for folder in ("services", "shared"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "_pb2" not in path.name and "services/comparison" not in str(path):
                yield path.relative_to(ROOT), ast.parse(path.read_text())


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


_DECLARED = vars(agent_names) | vars(exporter_names) | vars(names)
_HEAD = """\
# Messages

The messages of Topolog with their remedies. `make docs` generates this page from the code, and a
test compares it.
"""
_REASONS = """\
## Why a node rejects a pod

The reasons that FailedScheduling counts, in kube-scheduler's words if it has the reason, too.
`topolog replay explain POD` shows a remedy for each node.
"""
_STORED = """\
A message that ends with `(undecided: NAMES)` might not hold in another state of the kubelet that
agrees with its report; see [the names](feasibility.md#undecided). Stored events name a reason by a
constant of `shared/domain/refusal.py`, or of the constraint that has it.
"""
_BY_AMOUNT = "`topolog replay explain POD` says how much must be freed, or which nodes have it"
_NUMA = {
    Reason.INVALID_POD: "correct what the message names",
    Reason.UNSUPPORTED: "have kube-scheduler place such pods, with Topolog as its extender",
    Reason.NEVER_ALIGNED: "request less, or use nodes with larger zones",
    Reason.SMT_ALIGNMENT: "request a multiple of the threads of a core",
    Reason.NOT_ON_EVERY_BRANCH: "wait for the node's next report, or until pending pods run there",
    Reason.BRANCH_LIMIT: "wait for the node's next report, or raise steps_last_resort",
}
_COMMAND = """\
## Errors of the command, and refusals to start

The command prints the problem with its remedy (`topolog: PROBLEM`, `try: REMEDY`) and ends with one
of [these exit codes](operate.md#exit-codes). A service logs every invalid setting at once
(`VARIABLE: problem; remedy`) and ends with exit code 2. Its other codes: 1 a task failed; 3 a newer
instance has the role; 4 the log, the bus or the Kubernetes API was not reachable at the start.
"""


if __name__ == "__main__":
    PAGE.write_text(page())
