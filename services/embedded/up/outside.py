"""Check outside servers before anything is started, and report all problems at once."""

from __future__ import annotations

import asyncio

from lightkube.core.exceptions import ConfigError

from services.embedded.errors import OutsideServerError
from services.embedded.up.options import UpOptions
from shared.domain.secret_url import bus_trouble, database_trouble
from shared.eventlog.postgres_connection import connect, masked_url
from shared.kube.client import KubeClient
from shared.kube.port import KubeUnavailableError
from shared.telemetry.reasons import plain

_PATIENCE_S = 10.0
_NATS_PORT = 4222


_REMEDY = "correct --kubeconfig; without it Topolog simulates a cluster"


async def check_outside(options: UpOptions) -> None:
    """Contact each outside server once. Raises OutsideServerError with all problems."""
    asked = {
        "--database-url": _database(options.database_url),
        "--nats-url": _nats(options.nats_url),
        "--kubeconfig": _cluster(options.kubeconfig),
    }
    problems = dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))
    wrong = [flag for flag, problem in problems.items() if problem]
    if wrong:
        raise OutsideServerError(
            "; ".join(problem for problem in problems.values() if problem),
            f"correct {' and '.join(wrong)}; without them Topolog starts its own",
        )


async def _database(url: str) -> str:
    if not url:
        return ""
    if trouble := database_trouble(url):
        return f"--database-url {trouble}"
    try:
        connection = await connect(url, timeout_s=_PATIENCE_S)
    except Exception as error:  # the driver's errors have no names outside shared.eventlog
        return f"no Postgres answers at {masked_url(url)}: {plain(error)}"
    await connection.close()
    return ""


async def _nats(url: str) -> str:
    if not url:
        return ""
    if trouble := bus_trouble(url):
        return f"--nats-url {trouble}"
    from shared.bus.jetstream_client import split_credentials

    servers, _ = split_credentials(url)
    problems = [await _no_nats(server) for server in servers]
    return "" if "" in problems else "; ".join(problems)


async def _no_nats(server: str) -> str:
    address = server.partition("://")[2]
    host, _, port = address.rpartition(":") if ":" in address else (address, "", str(_NATS_PORT))
    try:
        async with asyncio.timeout(_PATIENCE_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, OverflowError) as error:
        return f"no NATS answers at {server}: {plain(error)}"
    writer.close()
    return ""


async def _cluster(kubeconfig: str) -> str:
    if not kubeconfig:
        return ""
    try:
        await nodes_of(kubeconfig)
    except OutsideServerError as error:
        return error.problem
    return ""


async def nodes_of(kubeconfig: str) -> list[str]:
    """Return the names of an outside cluster's nodes. Raises OutsideServerError."""
    try:
        kube = KubeClient(kubeconfig)
    except KubeUnavailableError as error:
        raise OutsideServerError(str(error), _REMEDY) from error
    except (ConfigError, OSError, ValueError) as error:
        problem = (
            f"the kubeconfig {kubeconfig} names credentials that cannot be used: {plain(error)}"
        )
        raise OutsideServerError(problem, _REMEDY) from error
    try:
        return [str(node["metadata"]["name"]) for node in (await kube.list("nodes")).items]
    except KubeUnavailableError as error:
        raise OutsideServerError(str(error), _REMEDY) from error
    finally:
        await kube.close()
