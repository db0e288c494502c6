#!/usr/bin/env python3
"""`kubectl topolog ...`: asks the Topolog of a cluster. Each verb runs `topolog` in the scheduler's
pod by `kubectl exec`, with the user's own connection and rights.

kubectl finds the plugin as `kubectl-topolog` on the PATH, and its completion as
`kubectl_complete-topolog`. This file knows kubectl's command line, and not the log. It needs only
the standard library, because krew installs it alone (scripts/dist.py).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

EXIT_FAILED, EXIT_USAGE = 1, 2
COMPLETION_TIMEOUT_S = 5
# The directive of kubectl's completion: offer no file names (cobra's ShellCompDirectiveNoFileComp).
NO_FILES = ":4"
HOME = "topolog"
ARGUMENTS = {
    "pod": ("pods", "pod name or namespace/name"),
    "node": ("nodes", "node that the pod was not placed on"),
    "[node]": ("nodes", "only this node"),
}


class Verb(NamedTuple):
    """A verb's help, its arguments, and whether it has `--json`."""

    help: str
    arguments: tuple[str, ...] = ()
    has_json: bool = True


VERBS = {
    "explain": Verb("explain why a pod waits, or why it was placed on its node and zone", ("pod",)),
    "why-not": Verb("explain why a pod was not placed on a node", ("pod", "node")),
    "predict": Verb("say where a pod would be placed now, and in which zones", ("pod",)),
    "zones": Verb("show zones, charges and dirty nodes now", ("[node]",)),
    "top": Verb("show nodes, zones, pods and the newest events live", (), False),
    "doctor": Verb("check the installation and print a remedy for each problem", (), False),
}
# Options and their meaning; each has a value. kubectl's own first.
OPTIONS = {
    ("--context",): "context of the kubeconfig",
    ("--kubeconfig",): "kubeconfig file",
    ("--namespace", "-n"): "namespace of the pod (default: kubectl's own)",
    ("--topolog-namespace",): "Topolog's own namespace",
}


class Parser(argparse.ArgumentParser):
    """Complains as `topolog` does."""

    def error(self, message: str) -> NoReturn:
        fail(message, f"{self.prog} --help", EXIT_USAGE)


class Kubectl(NamedTuple):
    """kubectl with the options that choose the cluster."""

    context: str = ""
    kubeconfig: str = ""

    def argv(self, *words: str) -> list[str]:
        """Return a command line."""
        options = [("--context", self.context), ("--kubeconfig", self.kubeconfig)]
        return ["kubectl", *(f"{name}={value}" for name, value in options if value), *words]

    def namespace(self) -> str:
        """Return the namespace that kubectl itself would use."""
        asked = self.argv("config", "view", "--minify", "-o", "jsonpath={..namespace}")
        return output_of(asked).strip() or "default"


def parser() -> Parser:
    """Return the command line, with a subcommand per verb."""
    about = "Ask Topolog why a pod waits, where it is, and on which zones."
    whole = Parser(prog="kubectl topolog", description=about)
    shared = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    for names, text in OPTIONS.items():
        whole.add_argument(*names, default="", help=text)
        shared.add_argument(*names, help=text)
    verbs = whole.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, verb in VERBS.items():
        made = verbs.add_parser(
            name, parents=[shared], help=verb.help, description=f"{verb.help.capitalize()}."
        )
        for argument in verb.arguments:
            plain, text = argument.strip("[]"), ARGUMENTS[argument][1]
            nargs = None if plain == argument else "?"
            made.add_argument(plain, nargs=nargs, default="", help=text)
        if verb.has_json:
            made.add_argument("--json", action="store_true", help="print JSON lines")
    return whole


def words_in_pod(chosen: argparse.Namespace, kubectl: Kubectl, is_terminal: bool) -> list[str]:
    """Return the command that the pod runs."""
    as_json = ["--json"] if getattr(chosen, "json", False) else []
    if chosen.verb == "doctor":
        return ["doctor"]
    if chosen.verb == "top":
        return ["top"] if is_terminal else ["top", "--once"]
    if chosen.verb == "zones":
        only = ["--node", chosen.node] if chosen.node else []
        return ["replay", "at", "head", *only, *as_json]
    namespace = "" if "/" in chosen.pod else chosen.namespace or kubectl.namespace()
    key = f"{namespace}/{chosen.pod}" if namespace else chosen.pod
    node = ["--node", chosen.node] if chosen.verb == "why-not" else []
    return ["replay", chosen.verb, key, *node, *as_json]


def main() -> None:
    """Run `kubectl topolog`."""
    words = sys.argv[1:] or ["--help"]
    chosen = parser().parse_args(words)
    require_kubectl()
    kubectl = Kubectl(chosen.context, chosen.kubeconfig)
    is_terminal = chosen.verb == "top" and sys.stdin.isatty() and sys.stdout.isatty()
    inside = words_in_pod(chosen, kubectl, is_terminal)
    tty = ["-it"] if is_terminal else []
    home = chosen.topolog_namespace or os.environ.get("TOPOLOG_NAMESPACE") or HOME
    argv = kubectl.argv("-n", home, "exec", *tty, "deploy/scheduler", "--", "topolog", *inside)
    # This process becomes kubectl, so that exit code, signals and terminal are those of kubectl.
    sys.stdout.flush()
    os.execvp(argv[0], argv)


def fail(problem: str, remedy: str, code: int) -> NoReturn:
    """End with a problem and its remedy."""
    sys.stderr.write(f"topolog: {problem}\n  try: {remedy}\n")
    sys.exit(code)


def require_kubectl() -> None:
    """End if there is no kubectl."""
    if shutil.which("kubectl") is None:
        remedy = "install kubectl, or run topolog in the scheduler's pod"
        fail("kubectl is not on the PATH", remedy, EXIT_FAILED)


def output_of(argv: Sequence[str]) -> str:
    """Return what a command prints. A failure is no answer, and prints nothing here."""
    try:
        ended = subprocess.run(
            argv, capture_output=True, text=True, timeout=COMPLETION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout if ended.returncode == 0 else ""


def candidates(words: Sequence[str]) -> list[str]:
    """Return what may follow: the last word is being typed, and may be empty."""
    typed = words[-1] if words else ""
    verb_words, kubectl, namespace = _options(words[:-1])
    if not verb_words:
        return [verb for verb in VERBS if verb.startswith(typed)]
    arguments = VERBS[verb_words[0]].arguments if verb_words[0] in VERBS else ()
    if typed.startswith("-") or len(verb_words) > len(arguments):
        return []
    kind = ARGUMENTS[arguments[len(verb_words) - 1]][0]
    scope = ["-n", namespace] if namespace and kind == "pods" else []
    names = output_of(kubectl.argv("get", kind, *scope, "-o", "name", "--request-timeout=4s"))
    listed = [line.partition("/")[2] for line in names.splitlines()]
    return [name for name in listed if name.startswith(typed)]


def _options(words: Sequence[str]) -> tuple[list[str], Kubectl, str]:
    """Return the words without options, and what the options choose."""
    valued = {name: names[0] for names in OPTIONS for name in names}
    chosen = dict.fromkeys(valued.values(), "")
    others: list[str] = []
    rest = iter(words)
    for word in rest:
        name, separator, value = word.partition("=")
        if name in valued:
            chosen[valued[name]] = value if separator else next(rest, "")
        elif not word.startswith("-"):
            others.append(word)
    return others, Kubectl(chosen["--context"], chosen["--kubeconfig"]), chosen["--namespace"]


def complete() -> None:
    """Run `kubectl_complete-topolog`: print a candidate a line, then the directive."""
    sys.stdout.write("\n".join([*candidates(sys.argv[1:]), NO_FILES, ""]))


if __name__ == "__main__":
    # A link named kubectl_complete-topolog to this file completes.
    if Path(sys.argv[0]).name.startswith("kubectl_complete"):
        complete()
    else:
        main()
