"""The fixtures themselves: real servers, fresh databases."""

import asyncpg
import nats
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.fixtures.servers import PostgresServer


async def test_sqlalchemy_and_asyncpg_take_the_same_url(database_url: str) -> None:
    engine = create_async_engine(database_url)
    async with engine.begin() as connection:
        await connection.execute(text("create table t (n int)"))
    await engine.dispose()
    connection = await asyncpg.connect(database_url.replace("+asyncpg", ""))
    assert await connection.fetchval("select count(*) from t") == 0
    await connection.close()


async def test_the_url_is_not_misled_by_libpq_variables(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "6000")
    connection = await asyncpg.connect(database_url.replace("+asyncpg", ""))
    assert await connection.fetchval("select 1") == 1
    await connection.close()


async def test_each_test_has_an_empty_database_and_templates_are_built_once(
    postgres_server: PostgresServer,
) -> None:
    built: list[str] = []
    first = postgres_server.create(postgres_server.template("empty", built.append))
    second = postgres_server.create(postgres_server.template("empty", built.append))
    assert first != second
    assert len(built) == 1
    postgres_server.drop(first)
    postgres_server.drop(second)


async def test_jetstream_is_there(nats_url: str, private_nats_url: str) -> None:
    for url in (nats_url, private_nats_url):
        client = await nats.connect(url)
        await client.jetstream().add_stream(name="fixture-check", subjects=["fixture.check"])
        assert (await client.jetstream().publish("fixture.check", b"x")).seq == 1
        await client.close()
