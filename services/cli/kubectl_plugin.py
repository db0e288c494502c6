"""`kubectl topolog ...`: asks the Topolog of a cluster. Each verb runs `topolog` in the scheduler's
pod by `kubectl exec`, with the user's own connection and rights.

kubectl finds the plugin as `kubectl-topolog` on the PATH, and its completion as
`kubectl_complete-topolog`. This file knows kubectl's command line, and not the log.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, NamedTuple

import typer

from services.cli.output import EXIT_FAILED, CommandError, say_verbatim
from services.cli.verbs import HelpGroup
from services.cli.voice import run_app

COMPLETION_TIMEOUT_S = 5
# The directive of kubectl's completion: offer no file names (cobra's ShellCompDirectiveNoFileComp).
NO_FILES = ":4"
# What each argument of a verb names, for completion.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "explain": ("pods",),
    "why-not": ("pods", "nodes"),
    "predict": ("pods",),
    "zones": ("nodes",),
    "top": (),
    "doctor": (),
}

app = typer.Typer(
    name="kubectl topolog",
    cls=HelpGroup,
    help="Ask Topolog why a pod waits, where it is, and on which zones.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Pod = Annotated[str, typer.Argument(help="Pod name or namespace/name.")]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace of the pod. Default: kubectl's own.")
]
Context = Annotated[str, typer.Option(help="Context of the kubeconfig.")]
Kubeconfig = Annotated[str, typer.Option(help="Kubeconfig file.")]
Home = Annotated[
    str, typer.Option("--topolog-namespace", envvar="TOPOLOG_NAMESPACE", help="Topolog's own.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines with all fields.")]


class Kubectl(NamedTuple):
    """kubectl with the options that choose the cluster."""

    context: str = ""
    kubeconfig: str = ""

    def argv(self, *words: str) -> list[str]:
        """Return a command line."""
        options = [("--context", self.context), ("--kubeconfig", self.kubeconfig)]
        return ["kubectl", *(f"{name}={value}" for name, value in options if value), *words]

    def topolog(self, home: str, *words: str, terminal: bool = False) -> list[str]:
        """Return the command line that runs `topolog` in the scheduler's pod."""
        tty = ["-it"] if terminal else []
        return self.argv("-n", home, "exec", *tty, "deploy/scheduler", "--", "topolog", *words)

    def namespace(self) -> str:
        """Return the namespace that kubectl itself would use."""
        asked = self.argv("config", "view", "--minify", "-o", "jsonpath={..namespace}")
        return output_of(asked).strip() or "default"

    def key(self, pod: str, namespace: str) -> str:
        """Return namespace/name of a pod."""
        return pod if "/" in pod else f"{namespace or self.namespace()}/{pod}"


@app.command("explain")
def explain(
    pod: Pod,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
    home: Home = "topolog",
    as_json: Json = False,
) -> None:
    """Explain one pod: why it waits, or why it was placed on its node and zone."""
    kubectl = Kubectl(context, kubeconfig)
    words = ("replay", "explain", kubectl.key(pod, namespace), *_json(as_json))
    _become(kubectl.topolog(home, *words))


@app.command("why-not")
def why_not(
    pod: Pod,
    node: Annotated[str, typer.Argument(help="Node that the pod was not placed on.")],
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
    home: Home = "topolog",
    as_json: Json = False,
) -> None:
    """Explain why a pod was not placed on a node, and what would change that."""
    kubectl = Kubectl(context, kubeconfig)
    key = kubectl.key(pod, namespace)
    words = ("replay", "why-not", key, "--node", node, *_json(as_json))
    _become(kubectl.topolog(home, *words))


@app.command("predict")
def predict(
    pod: Pod,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
    home: Home = "topolog",
    as_json: Json = False,
) -> None:
    """Say where a pod would be placed now, and in which zones."""
    kubectl = Kubectl(context, kubeconfig)
    words = ("replay", "predict", kubectl.key(pod, namespace), *_json(as_json))
    _become(kubectl.topolog(home, *words))


@app.command("zones")
def zones(
    node: Annotated[str, typer.Argument(help="Only this node.")] = "",
    context: Context = "",
    kubeconfig: Kubeconfig = "",
    home: Home = "topolog",
    as_json: Json = False,
) -> None:
    """Show zones, charges and dirty nodes now."""
    only = ("--node", node) if node else ()
    words = ("replay", "at", "head", *only, *_json(as_json))
    _become(Kubectl(context, kubeconfig).topolog(home, *words))


@app.command("top")
def top(context: Context = "", kubeconfig: Kubeconfig = "", home: Home = "topolog") -> None:
    """Show nodes, zones, pods and the newest events live, or once if this is no terminal."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    words = ("top",) if is_terminal else ("top", "--once")
    _become(Kubectl(context, kubeconfig).topolog(home, *words, terminal=is_terminal))


@app.command("doctor")
def doctor(context: Context = "", kubeconfig: Kubeconfig = "", home: Home = "topolog") -> None:
    """Check the installation and print a remedy for each problem."""
    _become(Kubectl(context, kubeconfig).topolog(home, "doctor"))


def _json(asked: bool) -> tuple[str, ...]:
    return ("--json",) if asked else ()


def _become(argv: Sequence[str]) -> None:
    """Replace this process, so that exit code, signals and terminal are those of kubectl."""
    _require_kubectl()
    sys.stdout.flush()
    os.execvp(argv[0], list(argv))


def _require_kubectl() -> None:
    if shutil.which("kubectl") is None:
        raise CommandError(
            "kubectl is not on the PATH",
            "install kubectl, or run topolog in the scheduler's pod",
            EXIT_FAILED,
        )


def output_of(argv: Sequence[str]) -> str:
    """Return what a command prints. A failure is no answer, and prints nothing here."""
    _require_kubectl()
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
        return [verb for verb in ARGUMENTS if verb.startswith(typed)]
    kinds = ARGUMENTS.get(verb_words[0], ())
    if typed.startswith("-") or len(verb_words) > len(kinds):
        return []
    kind = kinds[len(verb_words) - 1]
    scope = ["-n", namespace] if namespace and kind == "pods" else []
    names = output_of(kubectl.argv("get", kind, *scope, "-o", "name", "--request-timeout=4s"))
    listed = [line.partition("/")[2] for line in names.splitlines()]
    return [name for name in listed if name.startswith(typed)]


def _options(words: Sequence[str]) -> tuple[list[str], Kubectl, str]:
    """Return the words without options, and what the options choose."""
    chosen = {"--context": "", "--kubeconfig": "", "--namespace": "", "-n": ""}
    valued = {*chosen, "--topolog-namespace"}
    others: list[str] = []
    rest = iter(words)
    for word in rest:
        name, separator, value = word.partition("=")
        if name in valued:
            chosen[name] = value if separator else next(rest, "")
        elif not word.startswith("-"):
            others.append(word)
    kubectl = Kubectl(chosen["--context"], chosen["--kubeconfig"])
    return others, kubectl, chosen["--namespace"] or chosen["-n"]


def main() -> None:
    """Run `kubectl topolog`."""
    run_app(app, "kubectl topolog")


def complete() -> None:
    """Run `kubectl_complete-topolog`: print a candidate a line, then the directive."""
    with suppress(CommandError):
        for candidate in candidates(sys.argv[1:]):
            say_verbatim(candidate)
    say_verbatim(NO_FILES)
