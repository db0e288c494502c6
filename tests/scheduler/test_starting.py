"""The command of a scheduler as a real process: modules that it loads after its first look at the
queue are there then, and problems of loading end it with a message.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from services.scheduler.handlers import ROLE
from shared.eventlog.port import Mark
from shared.eventlog.postgres import PostgresEventLog
from shared.runtime.app import Exit
from shared.runtime.membership import PLACES
from tests.eventlog.conftest import log_url  # noqa: F401 - fixture
from tests.eventlog.words import given, place
from tests.fixtures.ports import free_port

NOBODY = "127.0.0.1:9"


class Scheduler:
    """One process, without Kubernetes and without the bus."""

    def __init__(self, url: str, **settings: str) -> None:
        environment = {
            "DATABASE_URL": url,
            "HTTP_PORT": str(free_port()),
            "KUBECONFIG": f"http://{NOBODY}",
            "NATS_URL": f"nats://{NOBODY}",
            **settings,
        }
        self._url = f"http://127.0.0.1:{environment['HTTP_PORT']}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "services.scheduler"],
            env={**os.environ, **{f"TOPOLOG_{name}": value for name, value in environment.items()}},
            stderr=subprocess.PIPE,
            text=True,
        )

    def page(self, path: str) -> str:
        """Return the answer, whatever its status; empty if there is none."""
        try:
            with urllib.request.urlopen(self._url + path, timeout=10) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as refusal:
            return refusal.read().decode()
        except OSError:
            return ""

    def waiting(self) -> dict[str, str]:
        """Return the checks for which readiness waits."""
        waiting: dict[str, str] = json.loads(self.page("/readyz") or "{}").get(
            "waiting", {"start": "no answer"}
        )
        return waiting

    def until_waiting(self, components: set[str]) -> dict[str, str]:
        """Wait until these are the only reasons to wait, and return the reasons."""
        deadline_s = time.monotonic() + 60
        while set(waiting := self.waiting()) != components:
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline_s, waiting
            time.sleep(0.05)
        return waiting

    def until_sharing(self, expected: Mapping[str, object]) -> None:
        """Wait until the scheduler reports this about its part in the role."""
        deadline_s = time.monotonic() + 60
        while (sharing := json.loads(self.page("/readyz") or "{}").get("sharing", {})) != {
            **expected,
            "queue": 0,
        }:
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline_s, sharing
            time.sleep(0.05)

    def said(self) -> list[dict[str, Any]]:
        """Return the log of the process after its end."""
        _, lines = self.process.communicate(timeout=60)
        return [json.loads(line) for line in lines.splitlines()]


@contextlib.contextmanager
def started(url: str, **settings: str) -> Iterator[Scheduler]:
    scheduler = Scheduler(url, **settings)
    try:
        yield scheduler
    finally:
        scheduler.process.kill()
        scheduler.process.communicate()


def test_observer_relay_and_metrics_are_there_after_the_first_look(log_url: str) -> None:  # noqa: F811, RUF100
    with started(log_url) as scheduler:
        waiting = scheduler.until_waiting({"kubernetes", "observed cluster"})
        assert "the API does not answer" in waiting["kubernetes"]
        assert "of the cluster cannot be seen" in waiting["observed cluster"]
        page = scheduler.page("/metrics")
        for shown in (
            'topolog_leader{role="observer"} 1.0',
            'topolog_leader{role="relay"} 1.0',
            "topolog_kube_ready 0.0",
            'topolog_snapshots_total{projection="scheduler",result="absent"} 1.0',
            "topolog_decide_latency_seconds_count",
            "topolog_decide_cpu_seconds_total",
        ):
            assert shown in page


def test_a_kubeconfig_that_cannot_be_used_ends_it_and_is_named(log_url: str) -> None:  # noqa: F811, RUF100
    with started(log_url, KUBECONFIG="/nonexistent/config") as scheduler:
        said = scheduler.said()
        assert scheduler.process.returncode == Exit.UNREACHABLE
        (problem,) = [line["problem"] for line in said if line["event"] == "task.failed"]
        assert problem.startswith(
            "kubeconfig '/nonexistent/config' cannot be used: there is no such file; name a "
            "kubeconfig"
        )


async def test_a_member_without_a_share_of_the_queue_still_observes_and_relays(
    log_url: str,
) -> None:
    log = await PostgresEventLog.open(log_url)
    for number in range(PLACES):
        assert await log.acquire(f"{ROLE}/topolog/{number}", "another", 600.0) is not None
    with started(log_url) as scheduler:
        scheduler.until_waiting({"kubernetes", "observed cluster"})
        page = scheduler.page("/metrics")
        assert 'topolog_leader{role="relay"} 1.0' in page
        assert "topolog_decide_latency_seconds_count" not in page
    await log.close()


async def test_a_release_that_charges_differently_decides_nothing_next_to_the_one_at_work(
    log_url: str,
) -> None:
    log = await PostgresEventLog.open(log_url)
    await given(log, *"aaa")
    await log.save_mark("scheduler", Mark("blue/", await place(log, 3), "otherwise"))
    blue = await log.acquire(f"{ROLE}/topolog/0", "blue", 600.0)
    assert blue is not None
    with started(log_url, OBSERVE="false", RELAY="false") as scheduler:
        waiting = scheduler.until_waiting({"scheduler: marks"})
        assert "the release blue" in waiting["scheduler: marks"]
        expected = {"member": "", "members": [], "left_to": blue.role}
        scheduler.until_sharing(expected)
        assert [lease.role for lease in await log.members(f"{ROLE}/topolog")] == [blue.role]
    with started(log_url, OBSERVE="false", RELAY="false", FOLD_DIFFERS="go") as meant:
        meant.until_waiting(set())
        meant.until_sharing(
            {"member": f"{ROLE}/topolog/1", "members": [blue.role, f"{ROLE}/topolog/1"]}
        )
    with started(log_url, OBSERVE="false", RELAY="false") as green:
        green.until_sharing(expected)
        await log.release(blue)
        green.until_sharing({"member": f"{ROLE}/topolog/0", "members": [blue.role]})
    await log.close()


def test_an_extender_is_served_where_one_is_asked_for(log_url: str) -> None:  # noqa: F811, RUF100
    port = free_port()
    with started(log_url, EXTENDER_PORT=str(port), OBSERVE="false", RELAY="false") as scheduler:
        scheduler.until_waiting(set())
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/filter", data=b"{", method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, timeout=10)
        assert "topolog:" in refused.value.read().decode()
