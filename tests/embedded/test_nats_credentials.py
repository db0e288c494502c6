"""Each exporter has its own key, with which it publishes for its own nodes: tried on the bundled
server, by the services' client and by a bare client.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from nats.aio.client import Client
from nats.errors import MaxPayloadError
from typer.testing import CliRunner

from services.cli.main import app
from services.embedded import nats_credentials
from services.embedded.binaries import find_nats_server
from services.embedded.errors import DataFolderError
from services.embedded.nats import NatsSettings
from services.embedded.servers import EmbeddedServers
from shared.bus import nkeys, subjects
from shared.bus.jetstream import JetStreamBus
from shared.bus.port import BusUnavailable, Message
from tests.embedded.refused import settled
from tests.embedded.test_nats_rights import FORBIDDEN_PUBLICATIONS, FORBIDDEN_SUBSCRIPTIONS

MIB = 1 << 20


class Running:
    """A server that knows the credentials of a folder."""

    def __init__(self, servers: EmbeddedServers, folder: Path) -> None:
        self.servers, self.folder = servers, folder
        self.host = servers.nats_url.rpartition("@")[2]

    def url(self, name: str) -> str:
        query = f"seed={quote(str(nats_credentials.seed_file(self.folder, name)))}"
        scheme = self.servers.nats_url.split("://")[0]
        return f"{scheme}://{self.host}{'&' if '?' in self.host else '?'}{query}"

    def exporter(self, name: str, patience_s: float = 5.0) -> JetStreamBus:
        return JetStreamBus(self.url(name), keeps_streams=False, patience_s=patience_s)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    folder = tmp_path / "credentials"
    nats_credentials.keep(
        folder, [("n1", ["n1"]), ("n2.example", ["n2.example"]), ("many", ["m1", "m2"])]
    )
    settings = NatsSettings(credentials=str(folder))
    async with EmbeddedServers(
        tmp_path / "data", want_postgres=False, nats_settings=settings
    ) as servers:
        bus = JetStreamBus(servers.nats_url)
        await bus.ensure_streams()
        await bus.close()
        yield Running(servers, folder)


@pytest.fixture
async def client_and_refusals(running: Running) -> AsyncIterator[tuple[Client, list[str]]]:
    """A bare client with the key of n1, and the refusals of the server."""
    refused: list[str] = []

    async def note(error: Exception) -> None:
        refused.append(str(error).lower())

    client = await _bare(running, "n1", note)
    yield client, refused
    await client.close()


async def _bare(running: Running, name: str, note: Any) -> Client:
    seed = nkeys.read(nats_credentials.seed_file(running.folder, name)).seed

    class Bare(Client):
        def _connect_command(self) -> bytes:
            self._public_nkey = nkeys.public(seed)
            return bytes(super()._connect_command())

    client = Bare()
    prefix = subjects.exporters_inbox(name)
    await client.connect(
        f"nats://{running.host}",
        signature_cb=lambda nonce: nkeys.signature(seed, nonce),
        error_cb=note,
        inbox_prefix=prefix,
    )
    return client


async def test_an_exporter_publishes_the_reports_of_its_own_nodes(running: Running) -> None:
    for name, nodes in (("n1", ["n1"]), ("n2.example", ["n2.example"]), ("many", ["m1", "m2"])):
        bus = running.exporter(name)
        for node in nodes:
            await bus.publish(subjects.report(node), b"{}", {})
        await bus.close()
    reader = JetStreamBus(running.servers.nats_url)
    async with asyncio.timeout(30):
        batch = await anext(reader.reports())
    await reader.close()
    assert sorted(subjects.unescape(message.subject.split(".")[2]) for message in batch) == [
        "m1",
        "m2",
        "n1",
        "n2.example",
    ]


async def test_no_exporter_speaks_for_another_node(running: Running) -> None:
    for name, node in (("n1", "n2.example"), ("n1", "m1"), ("many", "n1"), ("n1", "n1.n2")):
        bus = running.exporter(name, patience_s=0.6)
        with pytest.raises(BusUnavailable):
            await bus.publish(subjects.report(node), b"{}", {})
        await bus.close()


async def test_it_says_nothing_else(client_and_refusals: tuple[Client, list[str]]) -> None:
    client, refused = client_and_refusals
    others = [
        subjects.ECHO,
        f"$JS.API.STREAM.INFO.{subjects.REPORT_STREAM}",
        "_INBOX_topolog.x",
        "$JS.ACK.x",
    ]
    for subject in (*FORBIDDEN_PUBLICATIONS, *others):
        refused.clear()
        await client.publish(subject, b"{}")
        await settled(client, refused)
        assert any("permissions violation for publish" in text for text in refused), subject


async def test_it_hears_nothing_but_answers_to_itself(
    client_and_refusals: tuple[Client, list[str]],
) -> None:
    client, refused = client_and_refusals

    async def ignored(_message: Any) -> None:
        return

    for subject in (
        *FORBIDDEN_SUBSCRIPTIONS,
        subjects.report("n1"),
        "_INBOX_exporter-n2%2Eexample.>",
    ):
        refused.clear()
        await client.subscribe(subject, cb=ignored)
        await settled(client, refused)
        assert any("permissions violation for subscription" in text for text in refused), subject


async def test_a_flood_is_bounded_in_size_and_leaves_others_heard(running: Running) -> None:
    """Of 20,000 messages the stream keeps one; a message above the limit is refused; another node
    is received meanwhile.
    """

    async def note(_error: Exception) -> None:
        return

    flooding, second = await _bare(running, "n1", note), running.exporter("n2.example")
    with pytest.raises(MaxPayloadError):
        await flooding.publish(subjects.report("n1"), bytes(MIB + 1))
    for number in range(20_000):
        await flooding.publish(subjects.report("n1"), b"%d" % number, reply="", headers=None)
        if number == 10_000:
            await second.publish(subjects.report("n2.example"), b"{}", {})
    await flooding.flush(30)
    await flooding.publish(subjects.report("n1"), b"{}", headers={"Nats-Rollup": "all"})
    await flooding.flush(30)
    reader = JetStreamBus(running.servers.nats_url)
    async with asyncio.timeout(30):
        batch = await anext(reader.reports())
    await asyncio.gather(flooding.close(), second.close(), reader.close())
    assert sorted(message.subject for message in batch) == [
        "topolog.report.n1",
        "topolog.report.n2%2Eexample",
    ]


async def test_a_replaced_key_works_and_a_withdrawn_key_is_refused(
    running: Running,
) -> None:
    bus, gone = running.exporter("n1", patience_s=20), running.exporter("many", patience_s=1.0)
    await bus.publish(subjects.report("n1"), b"{}", {})
    await gone.publish(subjects.report("m1"), b"{}", {})
    nats_credentials.keep(running.folder, [("n1", ["n1"])], renew=True, drop=["many"])
    await running.servers.reload_nats()
    async with asyncio.timeout(30):
        while await bus.connected():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await bus.publish(subjects.report("n1"), b'{"again":1}', {})
    with pytest.raises(BusUnavailable, match=r"many\.nk, which TOPOLOG_NATS_URL names by seed="):
        await gone.publish(subjects.report("m1"), b"{}", {})
    await asyncio.gather(bus.close(), gone.close())


async def test_the_servers_of_others_take_the_file_of_users(tmp_path: Path) -> None:
    nats_credentials.keep(tmp_path, [("n1", ["n1"])])
    (tmp_path / "nats.conf").write_text('port: -1\nauthorization { include "users.conf" }\n')
    command = [find_nats_server(), "-t", "-c", str(tmp_path / "nats.conf")]
    client_and_refusals = subprocess.run(  # noqa: ASYNC221
        command,
        env={"TOPOLOG_PASSWORD_TEXT": '"x"'},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert client_and_refusals.returncode == 0, client_and_refusals.stderr


def test_credentials_are_kept_replaced_and_withdrawn_and_seeds_are_their_owners_alone(
    tmp_path: Path,
) -> None:
    first = nats_credentials.keep(tmp_path, [("n1", ["n1"]), ("n2", ["n2"])])
    again = nats_credentials.keep(tmp_path, [("n1", ["n1"]), ("n3", ["n3"])])
    assert [item.name for item in again] == ["n1", "n2", "n3"]
    assert again[:2] == first
    renewed = nats_credentials.keep(tmp_path, [("n1", ["n1"])], renew=True, drop=["n2"])
    assert [item.name for item in renewed] == ["n1", "n3"]
    assert renewed[0].key != first[0].key
    assert nats_credentials.load(tmp_path) == tuple(renewed)
    seeds = sorted((tmp_path / nats_credentials.SEEDS).iterdir())
    assert [(seed.name, seed.stat().st_mode & 0o777) for seed in seeds] == [
        ("n1.nk", 0o600),
        ("n3.nk", 0o600),
    ]
    for seed in seeds:
        assert nkeys.read(seed).seed not in "".join(
            path.read_text() for path in tmp_path.iterdir() if path.is_file()
        )


def test_concurrent_writers_of_keys_lose_no_credential(tmp_path: Path) -> None:
    """Compose creates the key of the simulated nodes and that of a machine at the same time."""
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    second = threading.Thread(target=nats_credentials.keep, args=(tmp_path, [("n1", ["n1"])]))
    second.start()
    second.join(0.5)
    value = nats_credentials.Credential("n2", ("n2",), "key")
    (tmp_path / nats_credentials.REGISTER).write_bytes(msgspec.json.encode([value]))
    os.close(folder)
    second.join(60)
    assert [item.name for item in nats_credentials.load(tmp_path)] == ["n1", "n2"]


@pytest.mark.parametrize("name", ["", "../n1", "n1\n", "a b", ">", "n" * 300])
def test_a_name_that_no_node_has_is_refused_and_nothing_is_made(tmp_path: Path, name: str) -> None:
    for wanted, drop in (([(name, ["n1"])], ()), ([("n1", [name])], ()), ((), (name,))):
        with pytest.raises(DataFolderError, match="no node name"):
            nats_credentials.keep(tmp_path / "new", wanted, drop=drop)
    assert not (tmp_path / "new").exists()


def test_the_command_names_what_it_made_and_needs_a_node(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text(
        '[{"name": "m1", "socket": "/s"}, {"name": "m2", "socket": "/s"}]'
    )
    folder = str(tmp_path / "made")
    done = CliRunner().invoke(
        app,
        [
            "nats",
            "credentials",
            "--dir",
            folder,
            "--nodes-file",
            str(tmp_path / "nodes.json"),
            "--together",
            "x",
            "--json",
        ],
    )
    (made,) = json.loads(done.stdout)["credentials"]
    assert (made["name"], made["nodes"]) == ("x", ["m1", "m2"])
    assert nkeys.public(nkeys.read(Path(made["seed"])).seed) == made["key"]
    assert CliRunner().invoke(app, ["nats", "credentials", "--dir", folder]).exit_code != 0


# The pair of keys in NATS' documentation (NKeys).
KNOWN_SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
KNOWN_KEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


def test_keys_are_written_as_natss_own_tools_write_them() -> None:
    assert nkeys.public(KNOWN_SEED) == KNOWN_KEY


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# n1\n",
        "# n1\nSUA\n",
        KNOWN_SEED[:-1] + "A",
        "SA" + KNOWN_SEED[2:],
        KNOWN_SEED.lower(),
        "SU" + "1" * 56,
    ],
)
def test_a_damaged_seed_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "n1.nk"
    path.write_text(text)
    with pytest.raises(nkeys.KeyInvalid) as raised:
        nkeys.read(path)
    assert KNOWN_SEED[5:20] not in str(raised.value)
    assert KNOWN_SEED not in repr(nkeys.Login("n1", KNOWN_SEED)) + str(Message("s", b"", {}))
