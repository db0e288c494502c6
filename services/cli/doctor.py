"""`topolog doctor`: examine an installation from outside and print findings with remedies.

Asks the database, the bus and the Kubernetes API once each; `services.doctor` judges the answers.
Exit code 1 if there is a problem, else 0.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from services.cli.addresses import bus_option, data_dir_option, database_option
from services.cli.deciding_here import deciding_here
from services.cli.in_cells import Cell
from services.cli.log_source import LogSource
from services.cli.output import EXIT_FAILED, EXIT_OK, CommandError, json_line, say_table
from services.cli.paths import kubeconfig_option
from services.doctor import bus, cluster, database, nodes, pods, reading
from services.doctor.finding import Finding, note, problem, warning
from services.doctor.nodes import Machine
from services.replay.reading import envelopes, fold_one
from shared.domain.cells import OWNER
from shared.eventlog.port import EventLog
from shared.eventlog.skips import skips
from shared.events.cluster_events import PodEnded
from shared.events.quarantine import QuarantinedStreams
from shared.kube.port import Answer, Kube, KubeUnavailableError, Lost
from shared.kube.rights import BY_SERVICE, CELL, TOPOLOGY_GROUP, Right
from shared.ledger.state import Ledger
from shared.telemetry.scrubbing import scrub_text

REJECTIONS_WITHIN_US = 24 * 3600 * 1_000_000
BUS_PATIENCE_S = 15
STOPPED = "not checked: topolog up does not run on this data folder"
NAMESPACE = "topolog"
# The cell of the pod in which the command runs.
OWN_CELL = "TOPOLOG_CELL"
# The exporters of `topolog up --kubeconfig` run as pods, its other services as processes.
ALWAYS_PODS = ("exporter",)
_RANK = {"problem": 0, "warning": 1, "note": 2}


class Installation(msgspec.Struct, frozen=True):
    """Addresses of one installation. Services run as pods in `namespace`, or if it is empty as
    processes of `topolog up`. A stopped data folder has no `running` services. `settings` are the
    variables by which the schedulers decide. `cells` are the databases of the cells to examine, and
    `cell_names` all cells if they are known; none without cells.
    """

    database_url: str
    nats_url: str = ""
    kubeconfig: str = ""
    namespace: str = ""
    running: bool = True
    settings: dict[str, str] = {}
    cells: dict[str, str] = {}
    cell_names: tuple[str, ...] = ()


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor_command)


def doctor_command(
    database_url: Annotated[str, database_option()] = "",
    nats_url: Annotated[str, bus_option()] = "",
    kubeconfig: Annotated[
        str, kubeconfig_option("Kubeconfig file or API URL. Default: this pod's service account.")
    ] = "",
    namespace: Annotated[
        str,
        typer.Option(
            help="Namespace of the services. Empty if they are not pods: "
            "then the rights of the current credentials are checked."
        ),
    ] = NAMESPACE,
    data_dir: Annotated[
        Path | None, data_dir_option("Data folder of `topolog up`, running or stopped.")
    ] = None,
    cell: Cell = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON line per finding.")] = False,
) -> None:
    """Check an installation and print a remedy for each problem.

    Checks the database, the bus, the rights of the services, the reports and the kubelets, of all
    cells if there are several. A check that is not possible is listed, too. Exit code 1 if there is
    a problem.
    """

    async def examined() -> list[Finding]:
        addresses = Installation(database_url, nats_url, kubeconfig, namespace)
        return await examine_here(addresses, data_dir, cell)

    findings = asyncio.run(examined())
    findings.sort(key=lambda finding: _RANK[finding.severity])
    if as_json:
        for finding in findings:
            json_line(finding)
    else:
        rows = [
            (finding.severity, finding.about, finding.seen, finding.remedy) for finding in findings
        ]
        say_table(("severity", "about", "seen", "remedy"), rows)
    has_problem = any(finding.severity == "problem" for finding in findings)
    raise typer.Exit(EXIT_FAILED if has_problem else EXIT_OK)


async def examine_here(addresses: Installation, data_dir: Path | None, cell: str) -> list[Finding]:
    """Examine the given database, or that of the data folder or of each cell."""
    replace = msgspec.structs.replace
    if url := addresses.database_url:
        own_name = cell or os.environ.get(OWN_CELL, "")
        cells = {own_name: url} if own_name else {}
        return await examine(replace(addresses, settings=dict(os.environ), cells=cells))
    source = LogSource("", data_dir, cell=cell)
    urls, settings = source.cells(), source.settings(os.environ)
    async with source.database(make=False) as url:
        target = replace(
            addresses,
            database_url=url,
            settings=settings,
            cells={cell: url} if cell else urls,
            cell_names=tuple(urls),
        )
        if not source.cells_are_named():
            running = not source.started_here
            target = replace(
                target,
                nats_url=target.nats_url or (source.nats_url() if running else ""),
                kubeconfig=target.kubeconfig or source.kubeconfig(running),
                namespace="",
                running=running,
            )
        return await examine(target)


async def examine(target: Installation) -> list[Finding]:
    """Return all findings. A part that does not answer is a finding, too."""
    findings = await _bus(target)
    kube_findings, machines = await _cluster(target)
    findings += kube_findings
    if not target.cells:
        return findings + await _log(target, machines)
    if target.cell_names:
        findings += nodes.without_cell(machines, target.cell_names)
    for cell, url in target.cells.items():
        owned = {name: machine for name, machine in machines.items() if machine.cell == cell}
        of_cell = msgspec.structs.replace(target, database_url=url)
        findings += [
            msgspec.structs.replace(finding, about=f"cell {cell}: {finding.about}")
            for finding in await _log(of_cell, owned)
        ]
    return findings


async def _log(target: Installation, machines: Mapping[str, Machine]) -> list[Finding]:
    """Examine one database, and the nodes and pods of its log."""
    findings = await _database(target)
    schema_is_wrong = any(
        finding.about == database.ABOUT
        and finding.severity == "problem"
        and "revision" in finding.seen
        for finding in findings
    )
    if not schema_is_wrong:
        async with LogSource(target.database_url, None) as log:
            ledger, rejections, quarantined = await fold(log)
        findings += nodes.judge(ledger, machines, rejections)
        findings += pods.judge(ledger, deciding_here(target.settings).cycle)
        findings += reading.judge(quarantined)
    return findings


async def _database(target: Installation) -> list[Finding]:
    from shared.eventlog.inspection import inspect

    try:
        seen = await inspect(target.database_url)
    except Exception as error:  # the driver's errors have no names outside shared.eventlog
        raise CommandError(
            f"the database does not answer: {scrub_text(str(error))}", "check TOPOLOG_DATABASE_URL"
        ) from error
    return list(database.judge(seen, in_cluster=bool(target.namespace), running=target.running))


async def _bus(target: Installation) -> list[Finding]:
    if not target.running:
        return [note(bus.ABOUT, STOPPED)]
    if not target.nats_url:
        return [
            warning(bus.ABOUT, "not checked: no address is given", "--nats-url or TOPOLOG_NATS_URL")
        ]
    from shared.bus.description import describe

    try:
        async with asyncio.timeout(BUS_PATIENCE_S):
            return list(bus.judge(await describe(target.nats_url)))
    except Exception as error:  # the client's errors have no names outside shared.bus
        reason = scrub_text(str(error)) or type(error).__name__
        return [
            problem(
                bus.ABOUT,
                f"NATS does not answer: {reason}",
                "kubectl -n topolog get pods -l app=nats",
            )
        ]


async def _cluster(target: Installation) -> tuple[list[Finding], dict[str, Machine]]:
    from shared.kube.client import KubeClient

    if not target.running and not target.kubeconfig:
        return [note(cluster.ABOUT, STOPPED)], {}
    remedy = "--kubeconfig or TOPOLOG_KUBECONFIG"
    try:
        kube = KubeClient(target.kubeconfig)
    except KubeUnavailableError as error:
        return [problem(cluster.ABOUT, str(error), remedy)], {}
    try:
        served = await kube.served_versions(TOPOLOGY_GROUP)
        if isinstance(served, Lost):
            seen = f"the API does not answer: {served.message}"
            return [problem(cluster.ABOUT, seen, remedy)], {}
        findings = list(cluster.judge_definition(served))
        needed = {"scheduler": BY_SERVICE["scheduler"] | CELL} if target.cells else {}
        findings += await _rights(kube, target.namespace, BY_SERVICE | needed)
        machines = map(machine_of, (await kube.list("nodes")).items)
        return findings, {name: machine for name, machine in machines if name}
    except KubeUnavailableError as error:
        return [problem(cluster.ABOUT, str(error), "a kubeconfig that may list nodes")], {}
    finally:
        await kube.close()


async def _rights(
    kube: Kube, namespace: str, needed: Mapping[str, frozenset[Right]]
) -> list[Finding]:
    """Ask the API for each right of each service: of its service account if it runs as a pod, else
    of the current credentials. A service without an answer is reported as not checked.
    """
    answers: dict[str, dict[Right, bool]] = {}
    unanswered: dict[str, str] = {}
    accounts: dict[str, str] = {}
    for service, rights in needed.items():
        is_pod = bool(namespace) or service in ALWAYS_PODS
        account = f"system:serviceaccount:{namespace or NAMESPACE}:{service}" if is_pod else ""
        accounts[service] = account
        for right in sorted(rights):
            answer = await kube.may(right, account)
            if isinstance(answer, Answer) and answer.ok:
                status = answer.body.get("status") or {}
                answers.setdefault(service, {})[right] = bool(status.get("allowed"))
            else:
                unanswered[service] = _reason(answer)
                break
    return list(cluster.judge_rights(answers, unanswered, accounts))


def _reason(answer: Answer | Lost) -> str:
    if isinstance(answer, Lost):
        return answer.message
    return answer.message or f"the API answered {answer.status} {answer.reason}".rstrip()


def machine_of(node: dict[str, Any]) -> tuple[str, Machine]:
    """Return the name of a Node object, and what is judged of it."""
    status = node.get("status") or {}
    conditions = {
        condition.get("type"): condition.get("status")
        for condition in status.get("conditions") or []
        if isinstance(condition, dict)
    }
    version = str((status.get("nodeInfo") or {}).get("kubeletVersion", ""))
    metadata = node.get("metadata") or {}
    owner = str((metadata.get("labels") or {}).get(OWNER, ""))
    return str(metadata.get("name", "")), Machine(version, conditions.get("Ready") == "True", owner)


async def fold(log: EventLog) -> tuple[Ledger, Counter[str], dict[str, str]]:
    """Return the ledger at the head, the kubelet rejections of the log's last day by node, and the
    reason of each quarantined stream."""
    ledger, quarantined = Ledger(), QuarantinedStreams(await skips(log))
    rejections: list[tuple[int, str]] = []
    newest_us = 0
    async for envelope in envelopes(log):
        newest_us = envelope.time_us
        # Read before the fold: afterwards a pod that ended may have no entry.
        entry = (
            ledger.pods.get(envelope.stream.removeprefix("pod/"))
            if envelope.type == "PodEnded"
            else None
        )
        node = entry.node if entry is not None else ""
        event, _ = fold_one(ledger, envelope, quarantined)
        if isinstance(event, PodEnded) and event.cause == "rejected":
            rejections.append((envelope.time_us, node))
    since_us = newest_us - REJECTIONS_WITHIN_US
    recent = Counter(node for time_us, node in rejections if node and time_us > since_us)
    return ledger, recent, quarantined.streams
