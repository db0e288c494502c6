"""Permitted clients: those with a certificate of the authority and of a given name, by the files at
the begin of a connection.
"""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog

from services.scheduler.extender.server import ExtenderServer
from services.scheduler.extender.settings import ExtenderSettings
from shared.runtime.http_tls import HttpTlsError
from shared.tls import as_go_checks
from tests.scheduler.extender.certificates import Authority
from tests.scheduler.extender.test_extender import World, pod, small_and_large


async def asked(world: World, trusted: str, client: str | None) -> int:
    """The status of an answer to this client on a connection of its own; 0 without an answer."""
    context = as_go_checks(ssl.create_default_context(cafile=trusted))
    context.check_hostname = False
    if client:
        context.load_cert_chain(client)
    async with httpx2.AsyncClient(verify=context, timeout=5) as https:
        try:
            return (
                await https.post(f"{world.url}/filter", json={"Pod": pod("p"), "NodeNames": ["n2"]})
            ).status_code
        except httpx2.HTTPError:
            return 0


async def test_only_clients_with_a_certificate_of_a_given_name_are_heard(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    server_pem, kube, other_pem = (
        authority.issue("localhost"),
        authority.issue("kube-scheduler"),
        authority.issue("somebody"),
    )
    foreign = stranger.issue("kube-scheduler")
    settings: dict[str, Any] = {
        "certificate": server_pem,
        "key": server_pem,
        "client_ca": authority.ca,
        "clients": ("kube-scheduler",),
    }
    async with (await small_and_large()).at_work(**settings) as world:
        assert await asked(world, authority.ca, kube) == 200
        assert [await asked(world, authority.ca, each) for each in (None, other_pem, foreign)] == [
            0,
            0,
            0,
        ]


async def test_certificate_and_authority_are_rotated_by_their_files(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    was, becomes = old.issue("kube-scheduler"), new.issue("kube-scheduler")
    server, authority = tmp_path / "server.pem", tmp_path / "authority.pem"
    shutil.copy(old.issue("localhost"), server)
    shutil.copy(old.ca, authority)
    settings = {"certificate": str(server), "key": str(server), "client_ca": str(authority)}
    with structlog.testing.capture_logs() as lines:
        async with (await small_and_large()).at_work(**settings) as world:
            assert [await asked(world, old.ca, was), await asked(world, old.ca, becomes)] == [
                200,
                0,
            ]

            authority.write_text("half of it")
            assert await asked(world, old.ca, was) == 200, "what cannot be used leaves the old ones"

            shutil.copy(new.issue("localhost"), server)
            shutil.copy(new.ca, authority)
            assert [await asked(world, new.ca, becomes), await asked(world, new.ca, was)] == [
                200,
                0,
            ]
    (log_line,) = [line for line in lines if line["event"] == "extender.certificate"]
    assert str(authority) in log_line["problem"]


def test_files_that_cannot_be_used_are_named_at_the_start(tmp_path: Path) -> None:
    server = tmp_path / "server.pem"
    server.write_text("no certificate")
    settings = ExtenderSettings(
        port=1, certificate=str(server), key=str(server), client_ca=str(server)
    )
    with pytest.raises(HttpTlsError, match=str(server)):
        ExtenderServer(None, settings)  # type: ignore[arg-type]
