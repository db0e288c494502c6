"""A whole run with an upstream cache that decides: the same events and the same log, until every
feasible pod has run.
"""

from __future__ import annotations

from tests.road.harness import folder, running, topolog, verified

FEW = (
    "--nodes",
    "3",
    "--pods",
    "8",
    "--speed",
    "120",
    "--report-interval",
    "1",
    "--load",
    "0.5",
    "--exit-when-idle",
)
REJECTED = 3


def test_overreserve_decides_a_workload_to_its_end() -> None:
    """Upstream's flush may forget a reservation (R1), so a rejection is allowed, but no other
    fault.
    """
    with folder() as path:
        arguments = path.parent / "plugin.yaml"
        arguments.write_text("{cacheResyncPeriodSeconds: 1}")
        with running(
            path, *FEW, "--cache", "overreserve", env={"TOPOLOG_PLUGIN_CONFIG": str(arguments)}
        ) as road:
            assert road.wait(120) in (0, REJECTED), road.output()
            workload = road.summary()["workload"]
            over = workload["succeeded"] + workload["rejected"] + len(workload["infeasible"])
            assert over == workload["total"] == 8, road.output()
            assert workload["succeeded"] > 0
        assert verified(path)["violations"] == []
        listed = topolog(
            "replay", "log", "--type", "NodeCharged", "--data-dir", str(path), "--json"
        ).stdout
        assert listed.count('"type":"NodeCharged"') >= workload["succeeded"]


def test_an_unknown_cache_is_refused_by_name() -> None:
    done = topolog("up", "--cache", "magic")
    assert done.returncode == 2
    assert "--cache" in done.stderr
    assert "overreserve" in done.stderr
