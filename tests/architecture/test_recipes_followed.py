"""The recipes of CONTRIBUTING, followed to the letter in a copy of the sources: the tests that they
name are green then, and what they promise has come about.

What a recipe does not name is not touched; who forgets a step is told by a test that it names.
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
COPIED = ("services", "shared", "tests", "docs", "scripts", "pyproject.toml", "CONTRIBUTING.md")
LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", ".*", "data", "recordings.tar.gz", "vectors.tar.gz"
)


class Kitchen:
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
        """The path, which the recipe names: itself, its folder, the file of an area, or the
        registry of the folder.
        """
        folder, _, file = path.rpartition("/")
        by_area = re.sub(r"\w+_facts\.py$", "<area>_facts.py", path)
        in_folder = f"`{folder}/`" in self.recipe and (
            file != "registry.py" or "`registry._ALL`" in self.recipe
        )
        assert in_folder or f"`{path}`" in self.recipe or f"`{by_area}`" in self.recipe, (
            f"the recipe does not name {path}"
        )
        return path

    def new(self, path: str, text: str) -> None:
        """A file that is not there yet."""
        assert not (self.folder / path).exists()
        (self.folder / self.named(path)).write_text(text)

    def put(self, path: str, before: str, text: str) -> None:
        """Text in front of what stands in a file once."""
        file = self.folder / self.named(path)
        old = file.read_text()
        assert old.count(before) == 1, f"{path} has {before!r} {old.count(before)} times"
        file.write_text(old.replace(before, text + before))

    def say(self, command: str, *arguments: str) -> None:
        """A command that the recipe names."""
        assert f"`{command}`" in self.recipe
        assert self._python(*arguments).returncode == 0

    def test(self, *tests: str) -> str:
        """The names of what fails in these files, which the recipe names."""
        for each in tests:
            file = each.partition("::")[0]
            assert f"[{file}]" in self.recipe or f"`{file}`" in self.recipe, (
                f"the recipe does not name {file}"
            )
        ran = self._python("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests)
        assert ran.returncode in (0, 1, 2), ran.stdout + ran.stderr
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.M)
        assert bool(failed) == bool(ran.returncode), ran.stdout + ran.stderr
        return " ".join(failed)

    def told(self, command: str, *arguments: str) -> dict[str, Any]:
        """What a module that the recipe names prints, as JSON."""
        assert f"`python -m {command} " in self.recipe
        ran = self._python("-m", command, *arguments)
        assert not ran.returncode, ran.stderr
        found: dict[str, Any] = json.loads(ran.stdout)
        return found

    def _python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, env={"PYTHONPATH": str(self.folder), "PATH": "/usr/bin:/bin"},
            capture_output=True, text=True, timeout=170, check=False,
        )  # fmt: skip


Step = Callable[[Kitchen], None]

FACT = '''class PodPraised(msgspec.Struct, frozen=True, tag=True):
    """Somebody liked the pod. Stream `pod/<uid>`."""

    uid: str
    praise: str

    @property
    def about(self) -> About:
        return About(pod=self.uid)


'''
A_FACT: dict[str, Step] = {
    "struct": lambda at: at.put("shared/events/binding_events.py", "class EvictRefused(", FACT),
    "union": lambda at: at.put(
        "shared/events/binding_events.py", "BindIntended | PodBound", "PodPraised | "
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
        '    binding.PodPraised: lambda fact, _: f"praised: {fact.praise}",\n',
    ),
    "release before": lambda at: at.put(
        "tests/events/test_previous_release.py",
        '    "VolumeObserved.1"',
        '    "PodPraised.1": NEW,\n',
    ),
    "vector": lambda at: at.say(
        "python -m tests.events.make_vectors", "-m", "tests.events.make_vectors"
    ),
    "docs": lambda at: at.say("make docs", "scripts/generate_docs.py"),
}
FACT_TESTS = (
    "tests/events/test_about.py",
    "tests/events/test_vectors.py",
    "tests/architecture/test_docs.py::test_a_page_says_what_the_code_says",
    "tests/replay/test_words.py",
    "tests/events/test_previous_release.py::test_every_fact_of_ours_reads_the_same_there_or_is_refused_by_name",
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
        self, request: Amounts, zones: Sequence[ZoneView], distances: Distances, weights: Mapping[str, int], max_zones: int
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
        "docs/settings.md", "| `LeastAllocated` |", "| `Indifferent` | nothing | nothing |\n"
    ),
}

CONSTRAINT = '''"""Tribe: pods of one `spec.tribe` are never on a node with another's."""

from __future__ import annotations

from typing import Any

from services.scheduler.filter.constraints.constraint import Around, Check, NotHandled
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal


class Tribe:
    """Several tribes are not handled."""

    name = "tribe"
    handles = frozenset(("spec.tribe",))

    def read(self, spec: Json, pod: Pod) -> Any:
        """Its name."""
        if isinstance(spec.get("tribe"), list):
            raise NotHandled("several tribes")
        return spec.get("tribe")

    def check(self, pod: Pod, kept: Any, around: Around) -> Check | None:
        """Whose node it is."""
        taken = {node: held for held, nodes in around.neighbours.keeping(self.name) for node in nodes}

        def check(facts: NodeInfo) -> Refusal | None:
            other = taken.get(facts.name, kept)
            return None if other == kept else Refusal(facts.name, Reason.POD_ANTI_AFFINITY, f"tribe {other}")

        return check if kept else None
'''
CONSTRAINT_TEST = """async def test_tribes_live_apart() -> None:
    story = await world("n1", "n2")
    red = await placed(story, seen("a", tribe="red"))
    assert await placed(story, seen("b", tribe="blue")) == ({"n1", "n2"} - {red}).pop()
    assert "tribe" in await placed(story, seen("c", tribe="green"))
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
        REGISTRY, "\nKUBELETS_OWN: ", "from shared.hints.seats import Seats\n"
    ),
    "line": lambda at: at.put(REGISTRY, ")\n\n\ndef owner_of(", "    Seats(),\n"),
    "example": lambda at: at.put(
        "tests/hints/examples.py", '"devices": (GPU,)}', '"seats": ("example.com/seat",), '
    ),
}
PROPERTIES = (
    "test_states_are_values",
    "test_single_zones_are_those_of_the_hints",
    "test_what_is_allocated_is_given_back",
    "test_verdicts_are_those_of_brute_force",
)
PROVIDER_TESTS = (
    *(f"{EVERY_PROVIDER}::{each}[single-numa-node-container-seats3]" for each in PROPERTIES),
    REGISTERED,
    "tests/architecture/test_snapshot_keys.py::test_a_fold_runs_on_nothing_that_its_key_leaves_out",
    "tests/scheduler/test_provider_of_ones_own.py",
)

RECIPES: dict[str, tuple[dict[str, Step], tuple[str, ...]]] = {
    "Add a fact": (A_FACT, FACT_TESTS),
    "Add a scoring strategy": (A_STRATEGY, (STRATEGIES_TEST, SETTINGS_TEST)),
    "Add a constraint of Kubernetes": (A_CONSTRAINT, (CONSTRAINTS_TEST,)),
    "Add a hint provider": (A_PROVIDER, PROVIDER_TESTS),
}


def follow(folder: Path, title: str, forgotten: str = "") -> Kitchen:
    """The recipe, but for one step."""
    at = Kitchen(folder, title)
    for name, step in RECIPES[title][0].items():
        if name != forgotten:
            step(at)
    return at


@pytest.mark.parametrize("title", RECIPES)
def test_who_follows_a_recipe_to_the_letter_has_green_tests(title: str, tmp_path: Path) -> None:
    assert follow(tmp_path, title).test(*RECIPES[title][1]) == ""


VECTORS, ABOUT = "tests/events/test_vectors.py", "tests/events/test_about.py"


@pytest.mark.parametrize(
    ("title", "forgotten", "told"),
    [
        (
            "Add a fact",
            "union",
            f"{VECTORS}::test_what_is_read_by_the_name_of_its_row_is_what_its_own_tag_says",
        ),
        ("Add a fact", "vector", f"{VECTORS}::test_every_fact_type_and_schema_has_a_vector"),
        ("Add a fact", "docs", FACT_TESTS[2]),
        (
            "Add a fact",
            "ledger",
            f"{ABOUT}::test_every_fact_has_a_handler_of_the_ledger_or_a_reason_to_have_none",
        ),
        (
            "Add a fact",
            "sentence",
            "tests/replay/test_words.py::test_every_fact_has_a_sentence_in_plain_words",
        ),
        ("Add a fact", "release before", FACT_TESTS[4]),
        (
            "Add a scoring strategy",
            "line",
            f"{STRATEGIES_TEST}::test_a_strategy_file_that_was_not_registered_is_noticed",
        ),
        (
            "Add a scoring strategy",
            "row",
            f"{STRATEGIES_TEST}::test_the_table_speaks_of_every_registered_strategy",
        ),
        ("Add a scoring strategy", "page", f"{SETTINGS_TEST}::test_every_strategy_is_documented"),
        ("Add a constraint of Kubernetes", "line", f"{CONSTRAINTS_TEST}::test_tribes_live_apart"),
        (
            "Add a hint provider",
            "line",
            f"{REGISTERED}::test_a_provider_file_that_was_not_registered_is_noticed",
        ),
        ("Add a hint provider", "example", PROVIDER_TESTS[0]),
    ],
)
def test_who_forgets_a_step_is_told_by_a_test(
    title: str, forgotten: str, told: str, tmp_path: Path
) -> None:
    assert told in follow(tmp_path, title, forgotten).test(told)


def test_a_registered_provider_is_asked_by_all_that_the_recipe_names(tmp_path: Path) -> None:
    """Seats live in zone 1, although the report shows some in each; without the line of the
    registry nothing asks for them.
    """
    at = follow(tmp_path, "Add a hint provider", "line")
    before = at.told("tests.hints.effects", "example.com/seat")
    A_PROVIDER["line"](at)
    after = at.told("tests.hints.effects", "example.com/seat")
    assert (before["filter"], after["filter"]) == (True, False), "only zone 0 has CPUs enough"
    assert (before["charge"], after["charge"]) == ({"c": [0, 1]}, {"c": [1]})
    assert (before["reservation"], after["reservation"]) == ([0, 1], [1])
    assert (before["prediction"], after["prediction"]) == ({"c": [0]}, {"c": [1]})
    assert (before["preemption"], after["preemption"]) == (["low0"], ["low1"])
    assert ("zone 0" in before["explanation"], "zone 1" in after["explanation"]) == (True, True)
    assert before["snapshots"] != after["snapshots"]
    assert [word for word in after if word not in at.recipe] == []


def test_one_of_ones_own_among_the_kubelets_is_told(tmp_path: Path) -> None:
    at = follow(tmp_path, "Add a hint provider", "line")
    at.put(REGISTRY, ')\n"""The managers that', "    Seats(),\n")
    assert "test_what_is_taken_for_the_kubelets_own_is" in at.test(REGISTERED)
