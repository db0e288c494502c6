"""Outside servers are asked before anything starts: every problem in one error, without secrets,
and nothing left running.
"""

from pathlib import Path

import msgspec
import pytest

from services.embedded.errors import OutsideServerError
from services.embedded.up.migrating import migrate
from services.embedded.up.options import UpOptions
from services.embedded.up.outside import check_outside
from services.embedded.up.run import Up
from services.simulator.api.cluster_store import ClusterStore
from services.simulator.api.serve import start
from tests.fixtures.ports import free_port
from tests.fixtures.servers import PostgresServer


async def test_all_unreachable_servers_are_reported_before_anything_starts(
    tmp_path: Path,
) -> None:
    nowhere = free_port()
    options = UpOptions(
        data_dir=tmp_path / "data",
        database_url=f"postgresql://me:s3cret@127.0.0.1:{nowhere}/x",
        nats_url=f"nats://me:s3cret@127.0.0.1:{nowhere}",
        kubeconfig="/nonexistent/config",
    )
    with pytest.raises(OutsideServerError) as refused:
        await Up(options).run()
    printed = str(refused.value)
    assert f"no Postgres answers at postgresql://127.0.0.1:{nowhere}/x" in printed
    assert f"no NATS answers at nats://127.0.0.1:{nowhere}" in printed
    assert "kubeconfig '/nonexistent/config' cannot be used" in printed
    assert "without them Topolog starts its own" in printed
    assert "s3cret" not in printed
    assert not (tmp_path / "data" / "postgres").exists()


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("database_url", "nonsense", "must begin with postgresql://"),
        (
            "database_url",
            "postgresql://127.0.0.1:port/x",
            "--database-url has a port that is not a number",
        ),
        ("nats_url", "http://127.0.0.1:1", "give nats://HOST:PORT"),
        ("nats_url", "nats://127.0.0.1:99999", "--nats-url has a port that is not a number"),
        ("nats_url", "nats://", "give nats://HOST:PORT"),
        ("kubeconfig", "http://127.0.0.1:9", "list of nodes from http://127.0.0.1:9 failed"),
    ],
)
async def test_an_invalid_address_is_reported(
    tmp_path: Path, field: str, value: str, says: str
) -> None:
    with pytest.raises(OutsideServerError) as refused:
        await check_outside(msgspec.structs.replace(UpOptions(data_dir=tmp_path), **{field: value}))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[1]",
        b"\x00",
        b"a: [",
        b"clusters: 5",
        b"current-context: c\ncontexts: []\nclusters: []",
    ],
)
async def test_a_kubeconfig_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(content)
    with pytest.raises(OutsideServerError, match=str(path)):
        await check_outside(UpOptions(data_dir=tmp_path, kubeconfig=str(path)))


async def test_servers_that_answer_are_taken(
    tmp_path: Path, database_url: str, nats_url: str
) -> None:
    api = await start(ClusterStore())
    try:
        far = f"nats://127.0.0.1:{free_port()},{nats_url}"
        await check_outside(
            UpOptions(
                data_dir=tmp_path, database_url=database_url, nats_url=far, kubeconfig=api.url
            )
        )
    finally:
        await api.stop()


async def test_a_database_that_refuses_the_tables_is_reported(
    postgres_server: PostgresServer, database_url: str
) -> None:
    postgres_server.postgres.run_sql("drop role if exists guest; create role guest login;")
    guest = database_url.replace("postgres@", "guest@")
    with pytest.raises(OutsideServerError, match=r"cannot hold the log.*permission denied"):
        await migrate(guest)
