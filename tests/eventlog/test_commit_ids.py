"""A commit that is sent again is recognized: by the versions that it expects, or by its id.

Earlier releases store whole ids, this one stores short ones, and both work on one log.
"""

from __future__ import annotations

from typing import Any

import pytest

from shared.eventlog.port import Appended, Conflict, Duplicate, Lost
from shared.eventlog.postgres import PostgresEventLog
from tests.eventlog.test_history import append_as_an_earlier_release, owner  # noqa: F401 - fixture
from tests.eventlog.words import commit, draft, given

ROWS = "SELECT commit_id FROM commit_seen ORDER BY first"


async def test_only_commits_that_expect_no_version_have_a_row(
    postgres_log: PostgresEventLog,
    owner: Any,
) -> None:
    any_version = commit("kube/a-uid-of-36-characters/PodObserved/1805")
    versions = commit("reserve/uid/1", draft("pod/uid", 0), draft("node/n", 0), draft("s"))
    await postgres_log.append([any_version])
    await postgres_log.append([versions, commit("intent/uid/1", draft("pod/uid", 1))])
    rows = await owner.fetch(ROWS)
    assert [len(row["commit_id"]) for row in rows] == [20]
    await given(postgres_log, "s", "node/n")
    assert await postgres_log.append([any_version, versions]) == [Duplicate(1, 1), Duplicate(2, 4)]
    lost = Lost(1, 1, 4, commit_id="reserve/uid/1")
    assert (await postgres_log.begin_timeline(1, lost)).timeline == 1


async def test_another_commit_at_the_expected_version_is_a_conflict(
    postgres_log: PostgresEventLog,
) -> None:
    await postgres_log.append([commit("a", draft("s", 0))])
    assert await postgres_log.append([commit("b", draft("s", 0))]) == [Conflict("s", 0, 1)]
    assert await postgres_log.append([commit("a", draft("s", 0))]) == [Duplicate(1, 1)]


async def test_a_retry_is_recognized_whatever_the_pods_other_streams_expect(
    postgres_log: PostgresEventLog,
) -> None:
    """A reservation that is decided again names another node."""
    await postgres_log.append([commit("a", draft("node/a", 0), draft("pod/u", 0))])
    again = commit("a", draft("node/b", 0), draft("pod/u", 0))
    assert await postgres_log.append([again]) == [Duplicate(1, 2)]


@pytest.mark.parametrize("arguments", [17, 20, 21])
async def test_releases_recognize_each_others_commits(
    postgres_log: PostgresEventLog,
    owner: Any,
    arguments: int,
) -> None:
    await append_as_an_earlier_release(owner, arguments, commit("theirs"))
    assert await postgres_log.append([commit("theirs"), commit("ours")]) == [
        Duplicate(1, 1),
        Appended(2, 2, {"s": 2}),
    ]
    with pytest.raises(AssertionError):
        await append_as_an_earlier_release(owner, arguments, commit("ours"))
    assert await postgres_log.head() == 2
