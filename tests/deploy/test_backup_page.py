"""The commands in docs/backup.md work: every block is executed, in order, on a real Postgres."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec

from services.embedded.binaries import find_postgres
from shared.eventlog.port import Commit, Draft
from shared.eventlog.postgres import PostgresEventLog
from shared.events.binding_events import BindIntended, PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved, PodEnded, PodObserved, PodRunning
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import NodeCharged, PodReserved
from tests.eventlog.conftest import migrated_database
from tests.fixtures.servers import PostgresServer
from tests.ledger.given import pod, report, zone

PAGE = Path(__file__).parents[2] / "docs" / "backup.md"
ALICE = msgspec.structs.replace(
    pod("alice-notebook", uid="uid-1", cpus=2, labels={"owner": "alice"}), namespace="default"
)
UID = ALICE.uid


def _reported(at: int) -> tuple[str, Event]:
    return "report/n1", NodeReported(report(zone(0, 8), zone(1, 8), at=at))


FACTS: list[list[tuple[str, Event]]] = [
    [("node/n1", NodeObserved("n1", "uid-n1", allocatable={"cpu": 16_000}))],
    [("report/n1", NodeReported(report(zone(0, 8), zone(1, 8))))],
    [(f"pod/{UID}", PodObserved(ALICE))],
    [(f"pod/{UID}", PodReserved(UID, "n1", 1)), ("node/n1", NodeCharged("n1", UID))],
    [(f"pod/{UID}", BindIntended(UID, "default", "alice-notebook", "n1", 4))],
    [(f"pod/{UID}", PodBound(UID, "n1"))],
    [(f"pod/{UID}", PodRunning(UID, "n1"))],
    [(f"pod/{UID}", PodEnded(UID, "succeeded", "n1"))],
    *([_reported(time_ms)] for time_ms in range(9, 13)),
]


def test_every_block_of_the_page_runs(postgres_server: PostgresServer, tmp_path: Path) -> None:
    url = migrated_database(postgres_server)
    asyncio.run(_fill(url))
    restored = _named(postgres_server, "restored_here")
    environment = os.environ | {
        "TOPOLOG_DATABASE_URL": _libpq(url),
        "RESTORED_URL": _libpq(restored),
        "PATH": os.pathsep.join(
            [str(Path(sys.executable).parent), str(find_postgres().folder), os.environ["PATH"]]
        ),
    }
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 7
    for block in blocks:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    dump = subprocess.run(
        ["pg_dump", _libpq(url)], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert "alice-notebook" not in _decoded(dump)
    assert '"uid":"uid-1","namespace":"default","name":"redacted-' in _decoded(dump)


async def _fill(url: str) -> None:
    log = await PostgresEventLog.open(url)
    for number, drafts in enumerate(FACTS):
        await log.append(
            [
                Commit(
                    f"c{number}",
                    "test",
                    0,
                    1_700_000_000_000_000 + number,
                    tuple(Draft(*draft) for draft in drafts),
                )
            ]
        )
    await log.close()


def _named(server: PostgresServer, name: str) -> str:
    server.postgres.create_database(name)
    return server.postgres.url(name)


def _libpq(url: str) -> str:
    return url.replace("postgresql+asyncpg", "postgresql")


def _decoded(dump: str) -> str:
    """The dump with the texts in its hexadecimal columns readable."""
    return re.sub(
        r"\\\\x((?:[0-9a-f]{2})+)",
        lambda text: bytes.fromhex(text[1]).decode(errors="replace"),
        dump,
    )
