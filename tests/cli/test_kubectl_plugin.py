"""`kubectl topolog` runs topolog in the scheduler's pod, with kubectl's own connection."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IN_POD = ["-n", "topolog", "exec", "deploy/scheduler", "--", "topolog"]

# Answers the plugin's two queries, and records the arguments of all other calls.
KUBECTL = """#!{python}
import json, sys
argv = sys.argv[1:]
words = [word for word in argv if not word.startswith("--")]
if words[:2] == ["config", "view"]:
    print("team-a")
elif words[:1] == ["get"]:
    if "--context=away" in argv:
        sys.exit("the server is away")
    kind = words[1]
    print("\\n".join(["pod/web-0", "pod/web-1", "pod/job"] if kind == "pods" else ["node/n1"]))
else:
    print(json.dumps(argv))
    sys.exit(3)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL.format(python=sys.executable))
    kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
    return f"{tmp_path}:{os.environ['PATH']}"


def plugin(path: str, *words: str, command: str = "main") -> subprocess.CompletedProcess[str]:
    """Run an entry point as kubectl would."""
    script = f"from services.cli.kubectl_plugin import {command}; {command}()"
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        (("explain", "web-0"), [*IN_POD, "replay", "explain", "team-a/web-0"]),
        (("explain", "b/web-0", "--json"), [*IN_POD, "replay", "explain", "b/web-0", "--json"]),
        (
            ("why-not", "web-0", "n1", "-n", "b"),
            [*IN_POD, "replay", "why-not", "b/web-0", "--node", "n1"],
        ),
        (("predict", "b/web-0"), [*IN_POD, "replay", "predict", "b/web-0"]),
        (("zones",), [*IN_POD, "replay", "at", "head"]),
        (
            ("zones", "n1", "--context", "c", "--kubeconfig", "k"),
            ["--context=c", "--kubeconfig=k", *IN_POD, "replay", "at", "head", "--node", "n1"],
        ),
        (("top",), [*IN_POD, "top", "--once"]),
        (
            ("doctor", "--topolog-namespace", "t"),
            ["-n", "t", *IN_POD[2:], "doctor"],
        ),
    ],
)
def test_each_verb_runs_topolog_in_the_schedulers_pod(
    path: str, words: tuple[str, ...], argv: list[str]
) -> None:
    ended = plugin(path, *words)
    assert json.loads(ended.stdout) == argv
    assert ended.returncode == 3, "the exit code is that of the command in the pod"


def test_without_kubectl_the_error_says_what_to_do(tmp_path: Path) -> None:
    ended = plugin(str(tmp_path), "zones")
    assert ended.returncode == 1
    assert "kubectl is not on the PATH" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert plugin(str(tmp_path), "explain", "", command="complete").stdout == ":4\n"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("",), ["explain", "why-not", "predict", "zones", "top", "doctor"]),
        (("wh",), ["why-not"]),
        (("explain", "web"), ["web-0", "web-1"]),
        (("-n", "b", "why-not", "web-0", ""), ["n1"]),
        (("zones", "n"), ["n1"]),
        (("zones", "n1", ""), []),
        (("explain", "--context", "away", ""), []),
        (("explain", "--js"), []),
        (("what", ""), []),
        ((), ["explain", "why-not", "predict", "zones", "top", "doctor"]),
    ],
)
def test_completion_offers_verbs_and_live_names(
    path: str, words: tuple[str, ...], offered: list[str]
) -> None:
    ended = plugin(path, *words, command="complete")
    assert ended.stdout.splitlines() == [*offered, ":4"]


def test_help_names_what_users_type(path: str) -> None:
    assert "usage: kubectl topolog explain" in plugin(path, "explain", "--help").stdout
    assert "kubectl topolog why-not --help" in plugin(path, "why-not", "web-0").stderr
