"""An exporter's credential reaches no subject but its own: not by a reply subject, a header, or the
JetStream API.

NATS checks permissions on the subject that a client publishes to. Whatever the server itself sends
in answer (an acknowledgement, an error, a trace) goes to subjects that the client names.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from services.embedded import nats_credentials
from services.embedded.binaries import find_nats_server
from services.embedded.nats import NatsSettings
from services.embedded.servers import EmbeddedServers
from shared.bus import nkeys, subjects
from shared.bus.jetstream import JetStreamBus
from tests.embedded.test_nats_rights import FORBIDDEN_PUBLICATIONS
from tests.embedded.test_token_logins import Running, api, running
from tests.fixtures.ports import free_port

__all__ = ["api", "running"]

VICTIM = subjects.report("victim")
REPLIES = [
    VICTIM,
    subjects.ECHO,
    "topolog.fact.cluster.PodEnded",
    "topolog.fact.log.LogOpened",
    "_INBOX.x",
    "_INBOX_topolog.x",
    "_INBOX_exporter-victim.x",
    f"$JS.API.STREAM.DELETE.{subjects.REPORT_STREAM}",
    f"$JS.API.STREAM.PURGE.{subjects.REPORT_STREAM}",
    f"$JS.API.CONSUMER.CREATE.{subjects.REPORT_STREAM}",
    f"$JS.ACK.{subjects.REPORT_STREAM}.c.1.1.1.1.0",
    "$JS.EVENT.ADVISORY.x",
    "$SYS.REQ.USER.AUTH",
    "$SYS.REQ.SERVER.PING",
]
# Headers that make the server answer or act: acknowledgements, errors, traces, schedules, batches.
HEADERS: list[dict[str, str] | None] = [
    None,
    {"Nats-Msg-Id": "victims-next"},
    {"Nats-Expected-Stream": "ANOTHER"},
    {"Nats-Expected-Last-Sequence": "99"},
    {
        "Nats-Expected-Last-Subject-Sequence": "0",
        "Nats-Expected-Last-Subject-Sequence-Subject": VICTIM,
    },
    {"Nats-Rollup": "all"},
    {"Nats-Rollup": "sub"},
    {"Nats-TTL": "1s"},
    {"Nats-Trace-Dest": VICTIM},
    {"Nats-Trace-Dest": VICTIM, "Nats-Trace-Only": "true"},
    {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"},
    {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": VICTIM},
    {"Nats-Incr": "1"},
    {"Nats-Marker-Reason": "Purge"},
    {"Nats-Response-Type": "error"},
]


class Attack:
    """A stolen credential's client, and everything that the services' user sees meanwhile."""

    def __init__(self, client: Client, node: str, services: Client) -> None:
        self.client, self.own, self.services = client, subjects.report(node), services
        self.seen: list[str] = []

    async def watch(self) -> None:
        async def note(message: Any) -> None:
            self.seen.append(message.subject)

        await self.services.subscribe(">", cb=note)
        await self.services.flush()
        await self.services.publish(VICTIM, b"honest")

    async def settled(self) -> list[str]:
        """Return the subjects with messages that the client's own reports do not explain."""
        await self.client.flush()
        await asyncio.sleep(0.2)
        await self.services.flush()
        explained = {self.own, subjects.receipt(self.own)}
        for honest in (VICTIM, subjects.receipt(VICTIM)):
            if self.seen.count(honest) <= 1:
                explained.add(honest)
        return sorted(set(self.seen) - explained)

    async def intact(self) -> None:
        """Check that the streams exist, and that the victim's last report is its own."""
        jetstream = self.services.jetstream()
        last = await jetstream.get_last_msg(subjects.REPORT_STREAM, VICTIM)
        assert last.data == b"honest"
        assert (await jetstream.stream_info(subjects.FACT_STREAM)).state.messages == 0
        with pytest.raises(NotFoundError):
            await jetstream.get_last_msg(subjects.REPORT_STREAM, subjects.ECHO)


async def ignore(_error: Exception) -> None:
    """Ignore errors, because refusals are expected."""


def unchecked() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@asynccontextmanager
async def by_user(folder: Path) -> AsyncIterator[Attack]:
    """Start a server with the user that all exporters share if there are neither keys nor
    tokens.
    """
    settings = NatsSettings(exporter_password="reports")
    async with EmbeddedServers(folder, want_postgres=False, nats_settings=settings) as servers:
        bus = JetStreamBus(servers.nats_url)
        await bus.ensure_streams()
        await bus.close()
        client, services = Client(), Client()
        host = servers.nats_url.rpartition("@")[2]
        await client.connect(f"nats://{host}", user="exporter", password="reports", error_cb=ignore)
        await services.connect(servers.nats_url, error_cb=ignore)
        yield Attack(client, "n1", services)
        await client.close()
        await services.close()


@asynccontextmanager
async def by_container(running: Running, kind: str) -> AsyncIterator[Attack]:
    """Start the container's server, which accepts keys and tokens."""
    url = f"nats://127.0.0.1:{running.port}"
    services = Client()
    await services.connect(url, user="topolog", password="all", tls=unchecked(), error_cb=ignore)
    if kind == "token":
        client, node = Client(), "n1"
        token = running.api.gives(node)
        await client.connect(url, token=token, tls=unchecked(), error_cb=ignore)
    else:
        seed, node = nkeys.read(running.folder / "keys" / "seeds" / "k1.nk").seed, "k1"

        class Keyed(Client):
            def _connect_command(self) -> bytes:
                self._public_nkey = nkeys.public(seed)
                return bytes(super()._connect_command())

        client = Keyed()
        await client.connect(
            url,
            signature_cb=lambda nonce: nkeys.signature(seed, nonce),
            tls=unchecked(),
            error_cb=ignore,
        )
    yield Attack(client, node, services)
    await client.close()
    await services.close()


async def attack_by_replies(attack: Attack, replies: list[str] = REPLIES) -> None:
    await attack.watch()
    for reply in replies:
        for headers in HEADERS:
            own_reply = headers and {
                name: reply if value == VICTIM else value for name, value in headers.items()
            }
            await attack.client.publish(attack.own, b"own", reply=reply, headers=own_reply)
        await attack.client.publish(attack.own, bytes((1 << 20) - 64), reply=reply)
    assert await attack.settled() == []
    await attack.intact()


async def attack_by_requests(attack: Attack) -> None:
    """Forbidden subjects stay forbidden, whatever the reply subject."""
    await attack.watch()
    for subject in (*FORBIDDEN_PUBLICATIONS, subjects.ECHO, "$SYS.REQ.USER.AUTH", "_INBOX.x"):
        for reply in (VICTIM, attack.own):
            await attack.client.publish(subject, b"{}", reply=reply)
    assert await attack.settled() == []
    await attack.intact()


ATTACKS = [attack_by_replies, attack_by_requests]


@pytest.mark.parametrize("kind", ["token", "key"])
@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_stolen_key_or_token_reaches_only_its_own_subject(
    running: Running, kind: str, attack: Any
) -> None:
    async with by_container(running, kind) as stolen:
        await attack(stolen)


async def test_the_shared_user_reaches_nothing_but_reports(tmp_path: Path) -> None:
    """The user may publish the reports of every node, also through a trace header."""
    async with by_user(tmp_path / "data") as stolen:
        await attack_by_replies(stolen, [reply for reply in REPLIES if reply != VICTIM])


async def test_a_message_id_of_one_node_does_not_suppress_the_report_of_another(
    running: Running,
) -> None:
    """Exporters of this release send no ids; NATS remembers them across the subjects of a
    stream.
    """
    victim = running.exporter(running.api.gives("victim"), "victim")
    async with by_container(running, "key") as stolen:
        await stolen.client.publish(stolen.own, b"own", headers={"Nats-Msg-Id": "exporter:7"})
        await stolen.client.flush()
        await victim.publish(VICTIM, b"honest", {subjects.MSG_ID: "exporter:7"})
        last = await stolen.services.jetstream().get_last_msg(subjects.REPORT_STREAM, VICTIM)
        assert last.data == b"honest"


async def test_an_exporter_whose_permissions_are_of_an_older_release_still_reports(
    tmp_path: Path,
) -> None:
    """Its users.conf does not allow receipts; it waits for the server alone."""
    folder = tmp_path / "keys"
    nats_credentials.keep(folder, [("n1", ["n1"])])
    (old,) = nats_credentials.users(nats_credentials.load(folder))
    old["permissions"] = {
        "publish": [subjects.report("n1")],
        "subscribe": [f"{subjects.exporters_inbox('n1')}.>"],
    }
    port = free_port()
    config = {
        "host": "127.0.0.1",
        "port": port,
        "jetstream": {"store_dir": str(tmp_path / "js")},
        "authorization": {"users": [{"user": "topolog", "password": "all"}, old]},
    }
    (tmp_path / "nats.conf").write_text(json.dumps(config))
    server = subprocess.Popen(  # noqa: ASYNC220 - the server outlives the call
        [find_nats_server(), "-c", str(tmp_path / "nats.conf")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    bus = JetStreamBus(f"nats://topolog:all@127.0.0.1:{port}")
    seed = nats_credentials.seed_file(folder, "n1")
    exporter = JetStreamBus(f"nats://127.0.0.1:{port}?seed={seed}", keeps_streams=False)
    try:
        await bus.ensure_streams()
        await exporter.publish(subjects.report("n1"), b"{}", {})
        async with asyncio.timeout(10):
            (batch,) = [await anext(bus.reports())]
        assert subjects.report("n1") in {message.subject for message in batch}
    finally:
        await exporter.close()
        await bus.close()
        server.kill()
        server.wait()
