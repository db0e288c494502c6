"""docs/messages.md: every message that a person may meet, what it means, what to do. Read from the
code itself.

`make docs` writes the page; a test holds it to the code, and fails when a new warning has no advice
below.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from services.scheduler.explain.undecided import NAMES
from shared.domain.refusal import Reason
from shared.telemetry import declare, names

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "messages.md"
ERRORS = (
    "CommandError", "FilterError", "UnknownPod", "UsageError", "UpkeepRefused", "EmbeddedError", "DataFolderError",  # noqa: E501
    "PortInUseError",
    "ServerBinaryError", "ChildFailedError", "OutsideServerError", "KubeUnavailableError", "LogUnavailable", "LogNotMigrated",  # noqa: E501
    "LoginTooStrong", "LoginTooWeak", "LogBroken", "LogBusy",
    "BusUnavailable",
)  # fmt: skip
ADVICE = {
    "service": "look at the lines before it; the process is started again by its supervisor or by Kubernetes",  # noqa: E501
    "task": "the problem is in the line; the service ends and is started again. If it comes back, report it with the line",  # noqa: E501
    "consumer": "`topolog replay verify` names the fact; `topolog log skip` counts a fact as never told",  # noqa: E501
    "log": "is Postgres up, and does TOPOLOG_DATABASE_URL name it? Nothing is lost meanwhile",
    "snapshot": "nothing: the log is replayed; it takes longer once",
    "retry": "nothing while it is rare; else look at what is named (Postgres, mostly)",
    "lease": "nothing: another instance leads. When it flaps, look at the latency of Postgres",
    "bus": "is NATS up, with JetStream, and does TOPOLOG_NATS_URL name it? Consumers poll the log meanwhile",  # noqa: E501
    "relay": "nothing: another relay works",
    "kube": "is the API server reachable with this kubeconfig, and are the rights of k8s/base/rbac.yaml given?",  # noqa: E501
    "fold": "nothing while it is rare; else Postgres or this process is too slow: see topolog_consumer_lag",  # noqa: E501
    "plugin": "take the value that the line recommends",
    "pod": "`topolog replay explain POD` tells the story; report it when the problem is not the pod's own",  # noqa: E501
    "report": "correct the exporter of that node as the line says",
    "node": "look at the node's exporter and kubelet; `topolog node release` when the node is locked out",  # noqa: E501
    "object": "correct the object that the line names",
    "topology": "look at the rights and the definition of NodeResourceTopology, `topolog doctor` where it is there",  # noqa: E501
    "http": "set a token as the line says, or keep the port inside",
    "kube.certificate": "put the authority, or a certificate and the key that belongs to it, where the line says",  # noqa: E501
    "http.certificate": "put certificate and key that belong together where the line says; the next connection reads them",  # noqa: E501
    "slices": "give the exporter the right that the line names, or leave --dra-slices out",
    "stream": "`topolog replay verify` names the fact; `topolog log skip` counts it as never told",
    "watch": "nothing; raise fs.inotify.max_user_instances on the node to hear of changes at once",
    "extender": "look at the certificate files that the line names, and at the extender section of the scheduler's configuration",  # noqa: E501
    "list": "is something between here and the API server answering in its place? The list is asked for again",  # noqa: E501
    "bus.stream_made_anew": "nothing: the log holds what was lost. Give NATS more disk; `topolog doctor` shows its limits",  # noqa: E501
    "bus.trouble": "it is tried again; where it stays, look at what the client says in the line (rights, limits, address)",  # noqa: E501
    "extender.failed": "nothing: kube-scheduler asks again. If it comes back, report it with the line",  # noqa: E501
    "extender.stranger": "give the client a certificate with a name that the extender section allows, or find out who asks",  # noqa: E501
    "kube.untold": "nothing while it is rare; else what stands between here and the API server keeps objects back",  # noqa: E501
    "kube.mass_absence": "nothing while a second list disagrees; else look at what stands between here and the API server",  # noqa: E501
    "kube.mass_absence_judged": "nothing; what ended so is in `topolog replay log --type PodEnded`",
    "log.history_lost": "find out why the database was set back (a replica that lagged was promoted?); see docs/backup.md",  # noqa: E501
    "kube.unlisted": "nothing while it lasts seconds; else `/healthz` of the observing scheduler says why there is no list",  # noqa: E501
    "kube.relist": "nothing while it is rare",
    "kube.set_back": "nothing where etcd was restored; else find out which API server answers with an old state",  # noqa: E501
    "log.login_too_strong": "`topolog database roles` makes the login topolog_service: give the service its URL",  # noqa: E501
    "log.near_limit": "`topolog log archive --older-than 30d` compresses what is old; or more room, and TOPOLOG_LOG_LIMIT_GIB",  # noqa: E501
    "node.set_aside": "mend what the line names; the node opens by itself, or by `topolog node readmit NODE`",  # noqa: E501
    "pod.rejected": "one alone: nothing; again and again on one node: is its kubelet set up as its exporter reports it?",  # noqa: E501
    "node.silent": "is its exporter running, and does it reach NATS? Running pods keep their charges",  # noqa: E501
    "node.taint_left": "may the topology-store patch nodes? See k8s/base/rbac.yaml",
    "node.unreadable": "does the exporter reach the kubelet's socket and folders that the line names?",  # noqa: E501
    "pod.bind_uncertain": "nothing: the cluster's answer decides, and nothing is bound twice",
    "pod.evict_refused": "look at the PodDisruptionBudget that the line names",
    "pod.readiness_refused": "give the exporter the right that the line names, or --podreadiness=false",  # noqa: E501
    "pod.undecidable": "report it, with the line; `topolog replay why-not POD --node NODE` shows the state that it met",  # noqa: E501
}
"""What to do about a warning: by its name where that is here, else by the first word of it."""
KUBERNETES = (
    ("event FailedScheduling, condition PodScheduled=False",
     "no node took the pod when it was looked at last, as after each change that could have let it in, and every few "  # noqa: E501
     "minutes; the message counts the reasons",
     "`topolog replay explain POD` names the zones, who holds them, and what would fit; `topolog replay why-not POD --node NODE` "  # noqa: E501
     "tells how it stands now"),
    ("event Scheduled", "the pod was bound", "nothing"),
    ("event AdmittedOnZone", "a report shows on which zone the kubelet put the pod, and whether that was predicted", "nothing"),  # noqa: E501
    ("event NodeSetAside, at the node", "pods of one kind are not sent there for now; the message says why",  # noqa: E501
     "mend that; the node opens by itself, or by `topolog node readmit NODE`"),
    ("event Preempted", "the pod was evicted for one of higher priority", "nothing; its controller makes it anew"),  # noqa: E501
    ("pod status Failed, TopologyAffinityError", "the kubelet refused the pod: its zones had no room",  # noqa: E501
     "`topolog replay explain POD` says whether the end of another pod explains it; where none does, it is worth a report"),  # noqa: E501
    ("pod status Failed, OutOfcpu (OutOfmemory, ...)", "the node as a whole had not enough; the kubelet checks after alignment",  # noqa: E501
     "`topolog admit` plays it; look for pods that no scheduler counted"),
)  # fmt: skip


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_kubernetes(), *_reasons(), *_warnings(), *_errors(), _SETTINGS])


def _kubernetes() -> list[str]:
    lines = ["## In Kubernetes", "", "| where | what it means | what to do |", "|---|---|---|"]
    return [
        *lines,
        *(f"| {where} | {meaning} | {advice} |" for where, meaning, advice in KUBERNETES),
        "",
    ]


def _reasons() -> list[str]:
    lines = [_REASONS]
    within = [f"- {name}: {meaning}" for name, meaning in sorted(NAMES.items())]
    return [*lines, *sorted(f"- {reason.value}" for reason in Reason), "", _WITHIN, *within, ""]


def _warnings() -> list[str]:
    lines = [
        "## Log lines at warning and above",
        "",
        "| event | what it means | what to do |",
        "|---|---|---|",
    ]
    said = {getattr(names, name) for name in warned()}
    return [
        *lines,
        *(f"| `{event}` | {declare.EVENTS[event]} | {advice(event)} |" for event in sorted(said)),
        "",
    ]


def advice(event: str) -> str:
    """What to do about an event. Raises KeyError for a kind of event that nobody gave advice for."""  # noqa: E501
    return ADVICE.get(event) or ADVICE[event.partition(".")[0]]


def warned() -> set[str]:
    """Names of `shared.telemetry.names` that are logged at warning or above somewhere."""
    return logged("warning", "error", "critical")


def logged(*levels: str) -> set[str]:
    """Names of `shared.telemetry.names` that are logged at one of these levels. The call itself
    must name them: one that is handed to it as a value is not found."""
    found = set()
    for _, tree in _sources():
        for call in _calls(tree):
            if isinstance(call.func, ast.Attribute) and call.func.attr in levels and call.args:
                found |= {
                    name.attr
                    for name in ast.walk(call.args[0])
                    if isinstance(name, ast.Attribute)
                    and isinstance(name.value, ast.Name)
                    and name.value.id == "names"
                }
    return found


def _errors() -> list[str]:
    lines = [_ERRORS]
    told: dict[str, set[str]] = {}
    for path, tree in _sources():
        for call in _calls(tree):
            name = (
                call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            )
            if name not in ERRORS or not call.args:
                continue
            problem = _text(call.args[0])
            remedy = _text(call.args[1]) if len(call.args) > 1 else ""
            if problem.strip("… "):
                told.setdefault("/".join(path.parts[:2]), set()).add(
                    f"- {problem}" + (f" — try: {remedy}" if remedy.strip("… ") else "")
                )
    for room in sorted(told):
        lines += [f"### {room}", "", *sorted(told[room]), ""]
    return lines


def _sources() -> Iterator[tuple[Path, ast.Module]]:
    for folder in ("services", "shared"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "_pb2" not in path.name and "services/comparison" not in str(path):
                yield path.relative_to(ROOT), ast.parse(path.read_text())


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _text(node: ast.expr) -> str:
    """A literal as people read it; everything computed is `…`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return " ".join(node.value.split()).replace("|", "\\|")
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
        return " ".join("".join(map(str, parts)).split()).replace("|", "\\|")
    return "…"


_HEAD = """\
# Messages

Every message that a person may meet: what it means, and what to do. Made from the code by `make docs`; a test
holds the page to the code.
"""  # noqa: E501
_REASONS = """\
## Why a node takes no pod

The reasons that FailedScheduling counts, in the words that it uses. What would help is in `topolog replay explain POD`,
node by node.
"""  # noqa: E501
_WITHIN = """\
Where the report leaves open what the kubelet has, a refusal that another state might not share ends with `known within bounds
only:` and these names, in an event, too, if the node is among the nearest misses; `replay why-not` and the story of a reservation
tell them, too ([feasibility](feasibility.md)).
"""  # noqa: E501
_ERRORS = """\
## Errors of the command, and refusals to start

`…` stands for what the message names. `topolog:` stands before it, `try:` before what to do; services write the same words
into their log.
"""  # noqa: E501
_SETTINGS = """\
## Settings that cannot be used, and exit codes

A service names every setting to correct at once (`VARIABLE: what is wrong; what to give`) and ends with exit code 2. Its other
codes: 1 a task failed, 3 a newer instance has the role, 4 the log, the bus or the Kubernetes API could not be reached at the
start. The command's codes: 0 done, 1 failed or something was found, 2 wrong usage, 3 a kubelet rejected a pod, 4 a feasible pod
was left.
"""  # noqa: E501


if __name__ == "__main__":
    PAGE.write_text(page())
