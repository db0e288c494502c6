"""Four recipes of CONTRIBUTING, followed to the letter in a copy of the sources.

Only files that the recipe names are changed. The tests that it names pass if all steps are done,
and one of them fails if a step is left out.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "services",
    "shared",
    "plugins",
    "tests",
    "docs",
    "scripts",
    "pyproject.toml",
    "CONTRIBUTING.md",
)
LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", ".*", "data", "recordings.tar.gz", "vectors.tar.gz"
)


class Copy:
    """A copy of the sources, in which one recipe is followed."""

    def __init__(self, folder: Path, title: str) -> None:
        self.folder = folder
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=LEFT_OUT)
            else:
                shutil.copy(ROOT / name, folder / name)
        recipes = (ROOT / "CONTRIBUTING.md").read_text()
        self.recipe = re.split(r"\n\n\*\*|\n\n## ", recipes.split(f"**{title}.**")[1])[0].replace(
            "\n", " "
        )

    def named(self, path: str) -> str:
        """Return the path. The recipe names it, its folder, the file of its area, or the registry
        of its folder.
        """
        folder, _, file = path.rpartition("/")
        by_area = re.sub(r"\w+_events\.py$", "<area>_events.py", path)
        in_folder = f"`{folder}/`" in self.recipe and (
            file != "registry.py" or "`registry._ALL`" in self.recipe
        )
        assert in_folder or f"`{path}`" in self.recipe or f"`{by_area}`" in self.recipe, (
            f"the recipe does not name {path}"
        )
        return path

    def new(self, path: str, text: str) -> None:
        """Create a file that does not exist."""
        assert not (self.folder / path).exists()
        (self.folder / self.named(path)).write_text(text)

    def put(self, path: str, before: str, text: str) -> None:
        """Insert text before a text that the file has once."""
        file = self.folder / self.named(path)
        old = file.read_text()
        assert old.count(before) == 1, f"{path} has {before!r} {old.count(before)} times"
        file.write_text(old.replace(before, text + before))

    def run(self, command: str, *arguments: str) -> None:
        """Run a command that the recipe names."""
        assert f"`{command}`" in self.recipe
        assert self._python(*arguments).returncode == 0

    def test(self, *tests: str) -> str:
        """Return the names of the failed tests in these files, which the recipe names."""
        for test in tests:
            file = test.partition("::")[0]
            assert f"[{file}]" in self.recipe or f"`{file}`" in self.recipe, (
                f"the recipe does not name {file}"
            )
        ran = self._python("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests)
        assert ran.returncode in (0, 1, 2), ran.stdout + ran.stderr
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.M)
        assert bool(failed) == bool(ran.returncode), ran.stdout + ran.stderr
        return " ".join(failed)

    def output_of(self, command: str, *arguments: str) -> dict[str, Any]:
        """Return the JSON that a module prints, which the recipe names."""
        assert f"`python -m {command} " in self.recipe
        ran = self._python("-m", command, *arguments)
        assert not ran.returncode, ran.stderr
        output: dict[str, Any] = json.loads(ran.stdout)
        return output

    def _python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={"PYTHONPATH": str(self.folder), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )


Step = Callable[[Copy], None]

EVENT = '''class PodPraised(AboutPod, msgspec.Struct, frozen=True, tag=True):
    """The pod was praised. Stream `pod/<uid>`."""

    uid: str
    praise: str


'''
AN_EVENT: dict[str, Step] = {
    "struct": lambda at: at.put("shared/events/binding_events.py", "class EvictRefused(", EVENT),
    "union": lambda at: at.put(
        "shared/events/binding_events.py", "    | EvictIntended", "    | PodPraised\n"
    ),
    "catalog": lambda at: at.put(
        "shared/events/catalog.py", "        binding.BindIntended,", "        binding.PodPraised,\n"
    ),
    "ledger": lambda at: at.put(
        "shared/ledger/fold.py",
        "    binding.BindUncertain: ",
        '    binding.PodPraised: "praise holds nothing",\n',
    ),
    "sentence": lambda at: at.put(
        "services/replay/words.py",
        "    binding.BindUncertain: ",
        '    binding.PodPraised: lambda event, _: f"praised: {event.praise}",\n',
    ),
    "release before": lambda at: at.put(
        "tests/events/test_previous_release.py",
        '    "VolumeObserved.1"',
        '    "PodPraised.1": NEW,\n',
    ),
    "vector": lambda at: at.run(
        "python -m tests.events.make_vectors", "-m", "tests.events.make_vectors"
    ),
    "docs": lambda at: at.run("make docs", "scripts/generate_docs.py"),
}
EVENT_TESTS = (
    "tests/events/test_about.py",
    "tests/events/test_vectors.py",
    "tests/architecture/test_docs.py::test_a_page_says_what_the_code_says",
    "tests/replay/test_words.py",
    "tests/events/test_previous_release.py::test_every_event_of_ours_reads_the_same_there_or_is_refused_by_name",
)

STRATEGY = '''"""Indifferent: every node that fits is as good as another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from services.scheduler.score.strategies.strategy import Distances, ZoneView
from shared.domain.resources import Amounts


class Indifferent:
    """7 for all."""

    name = "Indifferent"
    combine: Literal["mean", "least"] = "mean"

    def score(
        self,
        request: Amounts,
        zones: Sequence[ZoneView],
        distances: Distances,
        weights: Mapping[str, int],
        max_zones: int,
    ) -> int:
        """0..100."""
        return 7
'''
SCORING = "services/scheduler/score/strategies/registry.py"
SETTINGS_TEST = "tests/scheduler/test_settings_are_documented.py"
STRATEGIES_TEST = "tests/scheduler/scoring/test_strategies.py"
A_STRATEGY: dict[str, Step] = {
    "file": lambda at: at.new("services/scheduler/score/strategies/indifferent.py", STRATEGY),
    "import": lambda at: at.put(
        SCORING,
        "from services.scheduler.score.strategies.keep",
        "from services.scheduler.score.strategies.indifferent import Indifferent\n",
    ),
    "line": lambda at: at.put(SCORING, "    KeepRoom(),\n", "    Indifferent(),\n"),
    "row": lambda at: at.put(
        STRATEGIES_TEST,
        '    ("LeastAllocated", ASK, EMPTY, 75),',
        '    ("Indifferent", ASK, EMPTY, 7),\n',
    ),
    "page": lambda at: at.put(
        "docs/settings.md", "|`LeastAllocated`|", "|`Indifferent`|nothing|nothing|\n"
    ),
}

CONSTRAINT = '''"""Tribe: a node runs pods of one `spec.tribe` only."""

from __future__ import annotations

from typing import Any

from services.scheduler.filter.constraints.constraint import (
    Check,
    ClusterView,
    Constraint,
    NotHandled,
    RefusalReason,
)
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.refusal import Refusal

OTHER_TRIBE = RefusalReason(
    name="other tribe",
    phrase="node(s) had pods of tribe %s",
    remedy="wait until the pods of the other tribe end",
)


class Tribe(Constraint):
    """Pods of two tribes share no node."""

    name = "tribe"
    handles = frozenset(("spec.tribe",))
    reasons = (OTHER_TRIBE,)

    def read(self, spec: Json, pod: Pod) -> Any:
        """Return the tribe."""
        if isinstance(spec.get("tribe"), list):
            raise NotHandled("several tribes")
        return spec.get("tribe")

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        """Return the check for nodes of another tribe."""
        tribes = view.placed_pods.keeping(self.name)
        taken = {node: tribe for tribe, nodes in tribes for node in nodes}

        def check(node_info: NodeInfo) -> Refusal | None:
            other = taken.get(node_info.name, kept)
            return None if other == kept else OTHER_TRIBE.refusal(node_info.name, other)

        return check if kept else None
'''
CONSTRAINT_TEST = """async def test_tribes_live_apart() -> None:
    story = await world("n1", "n2")
    red = await placed(story, seen("a", tribe="red"))
    assert await placed(story, seen("b", tribe="blue")) == ({"n1", "n2"} - {red}).pop()
    green = seen("c", tribe="green")
    message = await placed(story, green)
    assert "1 node(s) had pods of tribe red" in message
    refusal = story.cores[0].columns.verdict(green.pod, red)
    assert refusal.remedy == "wait until the pods of the other tribe end"
    documented = [reason.phrase for reason in registry.reasons()]
    assert "node(s) had pods of tribe %s" in documented
    assert await placed(story, seen("d", tribe=["red"])) == "unsupported constraint: spec.tribe"


"""
CONSTRAINTS = "services/scheduler/filter/constraints"
CONSTRAINTS_TEST = "tests/scheduler/default/test_constraints.py"
A_CONSTRAINT: dict[str, Step] = {
    "file": lambda at: at.new(f"{CONSTRAINTS}/tribe.py", CONSTRAINT),
    "import": lambda at: at.put(
        f"{CONSTRAINTS}/registry.py",
        "from services.scheduler.filter.constraints.volumes",
        "from services.scheduler.filter.constraints.tribe import Tribe\n",
    ),
    "line": lambda at: at.put(f"{CONSTRAINTS}/registry.py", "    HostPorts(),\n", "    Tribe(),\n"),
    "test": lambda at: at.put(
        CONSTRAINTS_TEST, "async def test_a_constraint_is_one_file_and_one_line(", CONSTRAINT_TEST
    ),
}

SEATS = (
    (ROOT / "tests/hints/licences.py")
    .read_text()
    .replace("licence", "seat")
    .replace("LICENCE", "SEAT")
    .replace("Licence", "Seat")
)
REGISTRY = "shared/hints/registry.py"
REGISTERED = "tests/hints/test_registered.py"
EVERY_PROVIDER = "tests/hints/test_every_provider.py"
A_PROVIDER: dict[str, Step] = {
    "file": lambda at: at.new("shared/hints/seats.py", SEATS),
    "import": lambda at: at.put(
        REGISTRY,
        "\n# The managers that the kubelet model",
        "from shared.hints.seats import Seats\n",
    ),
    "line": lambda at: at.put(REGISTRY, ")\n\n\ndef owner_of(", "    Seats(),\n"),
    "example": lambda at: at.put(
        "tests/hints/examples.py", '"devices": (GPU,)}', '"seats": ("example.com/seat",), '
    ),
}
PROPERTIES = (
    "test_states_are_values",
    "test_single_zones_are_those_of_the_hints",
    "test_an_end_returns_every_allocated_amount",
    "test_verdicts_are_those_of_brute_force",
)
PROVIDER_TESTS = (
    *(f"{EVERY_PROVIDER}::{name}[single-numa-node-container-seats3]" for name in PROPERTIES),
    REGISTERED,
    "tests/architecture/test_snapshot_keys.py::test_a_fold_runs_on_nothing_that_its_key_leaves_out",
    "tests/scheduler/test_provider_of_ones_own.py",
)

RECIPES: dict[str, tuple[dict[str, Step], tuple[str, ...]]] = {
    "Add an event": (AN_EVENT, EVENT_TESTS),
    "Add a scoring strategy": (A_STRATEGY, (STRATEGIES_TEST, SETTINGS_TEST)),
    "Add a constraint of Kubernetes": (A_CONSTRAINT, (CONSTRAINTS_TEST,)),
    "Add a hint provider": (A_PROVIDER, PROVIDER_TESTS),
}


def follow(folder: Path, title: str, forgotten: str = "") -> Copy:
    """Follow the recipe without the forgotten step."""
    copy = Copy(folder, title)
    for name, step in RECIPES[title][0].items():
        if name != forgotten:
            step(copy)
    return copy


@pytest.mark.parametrize("title", RECIPES)
def test_the_tests_pass_if_a_recipe_is_followed_to_the_letter(title: str, tmp_path: Path) -> None:
    assert follow(tmp_path, title).test(*RECIPES[title][1]) == ""


@pytest.mark.parametrize(
    ("title", "forgotten", "noticed_by"),
    [
        ("Add an event", "union", "tests/events/test_vectors.py"),
        ("Add an event", "vector", "tests/events/test_vectors.py"),
        ("Add an event", "docs", EVENT_TESTS[2]),
        ("Add an event", "ledger", "tests/events/test_about.py"),
        ("Add an event", "sentence", "tests/replay/test_words.py"),
        ("Add an event", "release before", EVENT_TESTS[4]),
        ("Add a scoring strategy", "line", STRATEGIES_TEST),
        ("Add a scoring strategy", "row", STRATEGIES_TEST),
        ("Add a scoring strategy", "page", SETTINGS_TEST),
        ("Add a constraint of Kubernetes", "line", CONSTRAINTS_TEST),
        ("Add a hint provider", "line", REGISTERED),
        ("Add a hint provider", "example", PROVIDER_TESTS[0]),
    ],
)
def test_a_test_fails_if_a_step_is_forgotten(
    title: str, forgotten: str, noticed_by: str, tmp_path: Path
) -> None:
    assert noticed_by in follow(tmp_path, title, forgotten).test(noticed_by)


def test_a_registered_provider_is_used_wherever_the_recipe_says(tmp_path: Path) -> None:
    """The provider gives seats in zone 1 only, although the report shows some in each zone."""
    copy = follow(tmp_path, "Add a hint provider", "line")
    unregistered = copy.output_of("tests.hints.effects", "example.com/seat")
    A_PROVIDER["line"](copy)
    registered = copy.output_of("tests.hints.effects", "example.com/seat")
    assert (unregistered["filter"], registered["filter"]) == (True, False), (
        "only zone 0 has CPUs enough"
    )
    assert (unregistered["charge"], registered["charge"]) == ({"c": [0, 1]}, {"c": [1]})
    assert (unregistered["reservation"], registered["reservation"]) == ([0, 1], [1])
    assert (unregistered["prediction"], registered["prediction"]) == ({"c": [0]}, {"c": [1]})
    assert (unregistered["preemption"], registered["preemption"]) == (["low0"], ["low1"])
    assert ("zone 0" in unregistered["explanation"], "zone 1" in registered["explanation"]) == (
        True,
        True,
    )
    assert unregistered["snapshots"] != registered["snapshots"]
    assert [word for word in registered if word not in copy.recipe] == []


def test_a_new_provider_among_the_kubelets_own_is_reported(tmp_path: Path) -> None:
    copy = follow(tmp_path, "Add a hint provider", "line")
    copy.put(REGISTRY, ")\n\nPROVIDERS: ", "    Seats(),\n")
    assert "test_the_kubelets_own_providers_are_the_kubelets" in copy.test(REGISTERED)
