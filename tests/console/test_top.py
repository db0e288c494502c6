"""`topolog top --console` shows what a fold of the same log shows."""

from __future__ import annotations

import asyncio
import sys

import msgspec
import pytest

from services.replay.filters import FilterError
from services.top.follow import Follower
from services.top.model import Picture
from services.top.once import picture_once
from services.top.remote import ConsoleError, RemotePicture
from services.top.screen import node_page, story_page
from tests.console.served import served, small_cluster


def without_times(picture: Picture) -> Picture:
    """Return the picture without ages and rates, because clocks of log and console differ here."""
    totals = picture.totals
    ageless = msgspec.structs.replace(
        totals,
        queue=[msgspec.structs.replace(pod, age_s=0) for pod in totals.queue],
        pods=[msgspec.structs.replace(pod, age_s=0) for pod in totals.pods],
    )
    rows = sorted(picture.rows, key=lambda row: row.name)
    return msgspec.structs.replace(picture, totals=ageless, rates={}, rows=rows)


async def test_the_console_answers_what_the_fold_has(capsys: pytest.CaptureFixture[str]) -> None:
    log = (await small_cluster()).log
    follower = Follower(log)
    await follower.at_head()
    async with served(log) as url:
        remote = RemotePicture(f"{url}/console/#map")
        await remote.ask()
        assert without_times(remote.picture(0)) == without_times(follower.picture(0))
        assert [row.name for row in remote.picture(0).rows] == ["n1", "n2"]
        assert await asyncio.wait_for(_aged(remote), 30)
        placed = follower.picture(0).totals.pods[1]
        pages = [
            [
                *node_page(await source.node(placed.node), "", {}),
                *story_page(await source.story(placed.uid), {}),
            ]
            for source in (remote, follower)
        ]
        assert pages[0] == pages[1]
        assert any("2000 free" in line or "2 free" in line for line in pages[0])
        with pytest.raises(FilterError, match="no node 'n9'"):
            await remote.node("n9")
        picture_once(remote, 100, 12)
        assert "0/2 nodes are available" in capsys.readouterr().out


async def _aged(remote: RemotePicture) -> bool:
    """Wait until the console knows the time of each pod that is older than itself."""
    while not all(pod.age_s for pod in remote.picture(0).totals.pods):
        await remote.ask()
    return True


async def test_a_token_comes_from_the_address_of_the_page() -> None:
    async with served((await small_cluster()).log, http_token="secret") as url:
        with pytest.raises(ConsoleError, match="401"):
            await RemotePicture(url).ask()
        await RemotePicture(f"{url}/console/#token=secret").ask()
        await RemotePicture(url, "secret").ask()


@pytest.mark.parametrize("address", ["", "ftp://host/", "127.0.0.1:8090"])
async def test_a_wrong_address_is_refused(address: str) -> None:
    with pytest.raises(ConsoleError, match="is no http"):
        RemotePicture(address)


async def test_the_command_needs_no_database() -> None:
    async with served((await small_cluster()).log) as url:
        words = ["-m", "topolog", "top", "--once", "--console", url]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
    assert process.returncode == 0
    assert "2 nodes  1 waiting" in output.decode()
