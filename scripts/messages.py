"""Generate docs/messages.md: every message, its meaning and its remedy, read from the code.

`make docs` writes the page, and a test compares it. Meaning and remedy of a log event are at its
declaration in shared/telemetry/names.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from services.scheduler.explain import wording
from services.scheduler.explain.undecided import NAMES
from services.scheduler.filter.constraints import predicates, registry
from services.scheduler.filter.constraints.constraint import RefusalReason
from services.scheduler.filter.topology import fit
from shared.domain.refusal import Reason
from shared.telemetry import declare, names

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "messages.md"
ERRORS = (
    "CommandError",
    "FilterError",
    "UnknownPod",
    "UsageError",
    "UpkeepRefused",
    "EmbeddedError",
    "DataFolderError",
    "PortInUseError",
    "ServerBinaryError",
    "ChildFailedError",
    "OutsideServerError",
    "KubeUnavailableError",
    "LogUnavailable",
    "LogNotMigrated",
    "LoginTooStrong",
    "LoginTooWeak",
    "LogBroken",
    "LogBusy",
    "BusUnavailable",
)
KUBERNETES = (
    (
        "Event `FailedScheduling`, condition `PodScheduled=False`",
        "No node passed the filters when the pod was scheduled last. That is repeated after each "
        "change that may help, and every few minutes. The message counts the reasons.",
        "`topolog replay explain POD` shows the zones, the pods that hold them, and remedies. "
        "`topolog replay why-not POD --node NODE` shows the current state.",
    ),
    ("Event `Scheduled`", "The pod was bound.", "None."),
    (
        "Event `AdmittedOnZone`",
        "A report shows the zone that the kubelet chose, and whether it was predicted.",
        "None.",
    ),
    (
        "Event `ZoneRequirementMissed`",
        "A pod or node label asked for one zone, and a report shows the pod in several. The "
        "kubelet differs from its model, or an event came that the decision could not know.",
        "Compare the kubelet's configuration with the report (`topolog doctor`). "
        "`topolog replay explain POD` shows the decision. Delete the pod to place it again.",
    ),
    (
        "Event `PlacementDrift`",
        "A report shows the pod in other zones than were predicted with certainty, and nothing "
        "else happened on the node in between. The kubelet does not work like its model.",
        "Compare the kubelet's version and options with the report (`topolog doctor`), and see "
        "`topolog replay predictions` for all misses. Delete the pod to place it again.",
    ),
    (
        "Condition `topolog.io/PreferencesKept=False`",
        "Annotations or labels of other schedulers express preferences that had no effect.",
        "See [constraints](constraints.md#keys-of-other-schedulers) for what each key needs.",
    ),
    (
        "Condition `topolog.io/ZoneAvailable=False`",
        "Some node has enough in all, but no zone has. The message names what each zone of the "
        "nearest node has. A cluster autoscaler adds no node for such a pod.",
        "Do what the message says last, or `topolog doctor`, which counts such pods.",
    ),
    (
        "Event `NodeExcluded` of a Node",
        "The node is excluded for a pod class. The message has the cause.",
        "Fix the cause. The exclusion ends by itself, or with `topolog node readmit NODE`.",
    ),
    (
        "Event `Preempted`",
        "The pod was evicted for a pod of higher priority.",
        "None: its controller creates it again.",
    ),
    (
        "Pod `Failed`, `TopologyAffinityError`",
        "The kubelet rejected the pod: its zones had no room.",
        "`topolog replay explain POD` shows whether the end of another pod explains it. Report it "
        "if none does.",
    ),
    (
        "Pod `Failed`, `OutOfcpu` (`OutOfmemory`, ...)",
        "The node as a whole had too little. The kubelet checks that after alignment.",
        "`topolog admit` repeats the kubelet's check. Look for pods that no scheduler counted.",
    ),
)


def page() -> str:
    """Return the whole page."""
    return "\n".join([_HEAD, *_kubernetes(), *_reasons(), *_warnings(), *_errors(), _SETTINGS])


def _kubernetes() -> list[str]:
    rows = [f"|{place}|{meaning}|{remedy}|" for place, meaning, remedy in KUBERNETES]
    return ["## In Kubernetes", "", "|message|meaning|remedy|", "|---|---|---|", *rows, ""]


def _reasons() -> list[str]:
    lines = [_REASONS]
    within = [f"- {name}: {meaning}" for name, meaning in sorted(NAMES.items())]
    reasons = {reason.phrase: reason.remedy for reason in _carried_reasons()}
    reasons |= {
        phrase.format(subject="X", resource="RESOURCE", asked="AMOUNT"): _NUMA.get(reason, "")
        for reason, phrase in wording.PHRASES.items()
        if reason != Reason.KUBELET_FAILS
    }
    rows = [f"|{phrase}|{remedy or _BY_AMOUNT}|" for phrase, remedy in sorted(reasons.items())]
    table = [
        "|message|remedy|",
        "|---|---|",
        *(row.replace("%s", "X").replace("%r", "RESOURCE") for row in rows),
        "",
    ]
    stored = sorted(f"- {reason.value}" for reason in Reason)
    return [*lines, *table, _STORED, *stored, "", _WITHIN, *within, ""]


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
    for name in sorted(getattr(names, constant) for constant in warned()):
        message = declare.EVENTS[name]
        lines.append(f"|`{name}`|{message.meaning}|{message.remedy}|")
    return [*lines, ""]


def warned() -> set[str]:
    """Return the constants of `shared.telemetry.names` that are logged at warning or above."""
    return logged("warning", "error", "critical")


def logged(*levels: str) -> set[str]:
    """Return the constants of `shared.telemetry.names` that are logged at one of these levels. The
    call itself must name the constant."""
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
        and part.value.id == "names"
    }


def _errors() -> list[str]:
    by_room: dict[str, set[str]] = {}
    for path, tree in _sources():
        for call in _calls(tree):
            raised = call.func.id if isinstance(call.func, ast.Name) else ""
            raised = call.func.attr if isinstance(call.func, ast.Attribute) else raised
            if raised not in ERRORS or not call.args:
                continue
            problem = _text(call.args[0])
            remedy = _text(call.args[1]) if len(call.args) > 1 else ""
            before, _, after = problem.rpartition("; ")
            if not remedy and _says(before) and after[:1].isalpha() and path.parts[0] == "shared":
                # Errors of one text end with their remedy.
                problem, remedy = before, after
            remedy = remedy if _says(remedy) else ""
            if _says(problem) or remedy:
                by_room.setdefault("/".join(path.parts[:2]), set()).add(f"|{problem}|{remedy}|")
    lines = [_ERRORS]
    for room in sorted(by_room):
        lines += [f"### {room}", "", "|problem|remedy|", "|---|---|", *sorted(by_room[room]), ""]
    return lines


def _says(text: str) -> bool:
    """Return whether the text has words of its own, or consists of values only."""
    return any(character.isalpha() for character in text)


def _sources() -> Iterator[tuple[Path, ast.Module]]:
    for folder in ("services", "shared"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "_pb2" not in path.name and "services/comparison" not in str(path):
                yield path.relative_to(ROOT), ast.parse(path.read_text())


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _text(node: ast.expr) -> str:
    """Return a literal as text, with `…` for computed parts."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return " ".join(node.value.split()).replace("|", "\\|")
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
        return " ".join("".join(map(str, parts)).split()).replace("|", "\\|")
    return "…"


_HEAD = """\
# Messages

Every message that a person may meet, with its meaning and a remedy. `make docs` generates this
page from the code, and a test compares it.
"""
_REASONS = """\
## Why a node rejects a pod

The reasons that FailedScheduling counts, in its words. `topolog replay explain POD` shows a
remedy for each node.
"""
_STORED = """\
Scheduling outcomes store a name for each reason. These are Topolog's own; a constraint may have a
name of its own.
"""
_BY_AMOUNT = "`topolog replay explain POD` says how much must be freed, or which nodes have it."
_NUMA = {
    Reason.INVALID_POD: "correct what the message names",
    Reason.UNSUPPORTED: "have kube-scheduler place such pods, with Topolog as its extender",
    Reason.NEVER_ALIGNED: "request less, or use nodes with larger zones",
    Reason.SMT_ALIGNMENT: "request a multiple of the threads of a core",
    Reason.NOT_ON_EVERY_BRANCH: "wait for the node's next report, or until pending pods run there",
    Reason.BRANCH_LIMIT: "wait for the node's next report, or raise steps_last_resort",
}
_WITHIN = """\
If a report leaves the kubelet's state open, a rejection that does not hold in every possible
state is undecided. It ends with these names ([feasibility](feasibility.md)):
"""
_ERRORS = """\
## Errors of the command, and refusals to start

`…` stands for a value. The command prints `topolog: PROBLEM` and `try: REMEDY`; services log them.
"""
_SETTINGS = """\
## Invalid settings, and exit codes

A service names every invalid setting at once (`VARIABLE: problem; remedy`) and ends with exit
code 2. Its other codes: 1 a task failed; 3 a newer instance has the role; 4 the log, the bus or
the Kubernetes API was not reachable at the start. Exit codes of the command: 0 success; 1 failure
or a finding; 2 wrong usage; 3 a kubelet rejected a pod; 4 a feasible pod was left.
"""


if __name__ == "__main__":
    PAGE.write_text(page())
