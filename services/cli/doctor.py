"""`topolog doctor`: looks at an installation from outside and says what is wrong, each finding with
what mends it.

Asks database, bus and Kubernetes API once each; what an answer means is `services.doctor`'s matter.
Exit code 1 when a problem was found, 0 else.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.addresses import bus_option, data_dir_option, database_option
from services.cli.log_source import LogSource
from services.cli.output import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    CommandError,
    console,
    json_line,
    table,
)
from services.doctor import bus, cluster, database, nodes, reading
from services.doctor.finding import Finding, problem, warning
from services.doctor.nodes import Machine
from services.replay.reading import envelopes, fold_one
from shared.eventlog.port import EventLog
from shared.eventlog.skips import skips
from shared.events.cluster_events import PodEnded
from shared.events.quarantine import QuarantinedStreams
from shared.kube.port import Answer, Kube, KubeUnavailableError, Lost
from shared.kube.rights import BY_SERVICE, TOPOLOGY_GROUP, Right
from shared.ledger.state import Ledger
from shared.telemetry.logs import scrub_text

LATELY_US = 24 * 3600 * 1_000_000
BUS_PATIENCE_S = 15
_RANK = {"problem": 0, "warning": 1, "note": 2}


def register(app: typer.Typer) -> None:
    """Mount the verb."""
    app.command("doctor")(doctor_command)


def doctor_command(
    database_url: Annotated[str, database_option()] = "",
    nats_url: Annotated[str, bus_option()] = "",
    kubeconfig: Annotated[
        str,
        typer.Option(
            "--kubeconfig",
            envvar="TOPOLOG_KUBECONFIG",
            help="A kubeconfig or URL; else this pod's account.",
        ),
    ] = "",
    namespace: Annotated[
        str,
        typer.Option(
            help="Where the services run as pods; '' where they do not: their rights are then these credentials'."
        ),
    ] = "topolog",
    data_dir: Annotated[
        Path | None, data_dir_option("A data folder of a running `topolog up`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON line for each finding.")] = False,
) -> None:
    """Look at an installation from outside: database, bus, rights, reports, kubelets; say what to
    do about each finding.
    """
    urls = _places(database_url, nats_url, kubeconfig, data_dir)
    findings = asyncio.run(examine(*urls, namespace if database_url else ""))
    findings.sort(key=lambda found: _RANK[found.severity])
    if as_json:
        for found in findings:
            json_line(found)
    else:
        rows = [(found.severity, found.about, found.seen, found.mend) for found in findings]
        console().print(table("", ("severity", "about", "seen", "what mends it"), rows))
    raise typer.Exit(
        EXIT_FAILED if any(found.severity == "problem" for found in findings) else EXIT_OK
    )


def _places(
    database_url: str, nats_url: str, kubeconfig: str, data_dir: Path | None
) -> tuple[str, str, str]:
    """Database, bus and API: as given, or as the data folder of a running `topolog up` says."""
    if database_url:
        return database_url, nats_url, kubeconfig
    from services.embedded.data_dir import default_data_dir, read_addresses

    addresses = read_addresses(data_dir or default_data_dir())
    if not addresses.database_url:
        raise CommandError(
            "no database to look at: nothing runs on the data folder",
            "--database-url, or topolog up",
            EXIT_USAGE,
        )
    return (
        addresses.database_url,
        nats_url or addresses.nats_url or "",
        kubeconfig or LogSource("", data_dir).kubeconfig(),
    )


async def examine(
    database_url: str, nats_url: str, kubeconfig: str, namespace: str
) -> list[Finding]:
    """Everything that is found. What cannot be asked is a finding too. Without a namespace the
    services are processes of a data folder: their login is the database's owner, and their rights
    are those of the kubeconfig."""
    found = await _database(database_url, pods=bool(namespace))
    found += await _bus(nats_url)
    kube_findings, machines = await _cluster(kubeconfig, namespace)
    found += kube_findings
    if not any(
        one.about == database.ABOUT and one.severity == "problem" and "revision" in one.seen
        for one in found
    ):
        async with LogSource(database_url, None) as log:
            ledger, rejections, quarantined = await fold(log)
        found += nodes.judge(ledger, machines, rejections)
        found += reading.judge(quarantined)
    return found


async def _database(url: str, *, pods: bool) -> list[Finding]:
    from shared.eventlog.inspection import inspect

    try:
        return list(database.judge(await inspect(url), pods=pods))
    except Exception as error:  # the driver's errors have no names out here
        raise CommandError(
            f"the database does not answer: {scrub_text(str(error))}", "check TOPOLOG_DATABASE_URL"
        ) from error


async def _bus(url: str) -> list[Finding]:
    if not url:
        return [warning(bus.ABOUT, "not looked at: no address", "--nats-url, or TOPOLOG_NATS_URL")]
    from shared.bus.description import describe

    try:
        async with asyncio.timeout(BUS_PATIENCE_S):
            return list(bus.judge(await describe(url)))
    except Exception as error:  # the client's errors have no names out here
        told = scrub_text(str(error)) or type(error).__name__
        return [
            problem(
                bus.ABOUT,
                f"NATS does not answer: {told}",
                "kubectl -n topolog get pods -l app=nats",
            )
        ]


async def _cluster(kubeconfig: str, namespace: str) -> tuple[list[Finding], dict[str, Machine]]:
    from shared.kube.client import KubeClient

    try:
        kube = KubeClient(kubeconfig)
    except KubeUnavailableError as error:
        return [problem(cluster.ABOUT, str(error), "--kubeconfig, or TOPOLOG_KUBECONFIG")], {}
    try:
        served = await kube.served_versions(TOPOLOGY_GROUP)
        if isinstance(served, Lost):
            return [
                problem(
                    cluster.ABOUT,
                    f"the API does not answer: {served.message}",
                    "--kubeconfig, or TOPOLOG_KUBECONFIG",
                )
            ], {}
        found = list(cluster.judge_definition(served))
        found += cluster.judge_rights(await _rights(kube, namespace))
        return found, {
            name: machine
            for name, machine in map(machine_of, (await kube.list("nodes")).items)
            if name
        }
    except KubeUnavailableError as error:
        return [problem(cluster.ABOUT, str(error), "a kubeconfig that may list nodes")], {}
    finally:
        await kube.close()


async def _rights(kube: Kube, namespace: str) -> dict[str, dict[Right, bool]]:
    """Each service's rights, as the API answers for its account (for these credentials without a
    namespace); those that may not be asked for are left out."""
    held: dict[str, dict[Right, bool]] = {}
    for service, rights in BY_SERVICE.items():
        for right in sorted(rights):
            answer = await kube.may(
                right, f"system:serviceaccount:{namespace}:{service}" if namespace else ""
            )
            if isinstance(answer, Answer) and answer.ok:
                held.setdefault(service, {})[right] = bool(
                    (answer.body.get("status") or {}).get("allowed")
                )
    return held


def machine_of(node: dict[str, Any]) -> tuple[str, Machine]:
    """Name, kubelet version and readiness of a Node object."""
    status = node.get("status") or {}
    conditions = {
        one.get("type"): one.get("status")
        for one in status.get("conditions") or []
        if isinstance(one, dict)
    }
    version = str((status.get("nodeInfo") or {}).get("kubeletVersion", ""))
    return str((node.get("metadata") or {}).get("name", "")), Machine(
        version, conditions.get("Ready") == "True"
    )


async def fold(log: EventLog) -> tuple[Ledger, Counter[str], dict[str, str]]:
    """The ledger at the head, by node how many pods its kubelet rejected within the last day of the
    log, and by stream what is wrong with those that this release sets aside."""
    ledger, quarantined = Ledger(), QuarantinedStreams(await skips(log))
    rejected: list[tuple[int, str]] = []
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
            rejected.append((envelope.time_us, node))
    lately = Counter(node for at_us, node in rejected if node and at_us > newest_us - LATELY_US)
    return ledger, lately, quarantined.streams
