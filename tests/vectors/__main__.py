"""`python -m tests.vectors [--scheduler] PATH...`: replay vector files against our models and print
what differs.

A line `<file>: <passed>/<total>` each, the first differences under it, and `N passed, M failed` at
the end. The peers' cases have a line each. Cases that differ by a quirk that Topolog does not copy
are counted as `deliberate`, under the name of the quirk. Exits 1 on any failure and on any file
that no kind recognises.
`--scheduler` looks at admission sequences only, through the scheduler's eyes (`scheduler_eyes`),
prints a JSON line a file, and exits 1 on a verdict that is unsound or refuses needlessly.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.vectors.kinds import admission_sequences, peers
from tests.vectors.registry import (
    ENDINGS,
    Case,
    Kind,
    UnreadableError,
    all_kinds,
    deliberate_names,
    kind_of,
    load,
    results,
)
from tests.vectors.scheduler_eyes import tally

USAGE = (
    "usage: python -m tests.vectors [--scheduler] PATH... (vector files or folders, "
    ".json, .jsonl or either as .gz)"
)
SHOWN_CASES = 3
SHOWN_DIFFERENCES = 4
SHOWN_CHARS = 400


def main(arguments: list[str]) -> int:
    """Check all paths. Return the exit code."""
    paths = [argument for argument in arguments if argument != "--scheduler"]
    if not paths:
        print(USAGE, file=sys.stderr)
        return 2
    return (
        _through_the_schedulers_eyes(paths)
        if len(paths) < len(arguments)
        else _through_the_models(paths)
    )


def _through_the_schedulers_eyes(paths: list[str]) -> int:
    """Only sequences are looked at; without any, nothing was checked, and the exit code is 1."""
    wrong = looked_at = 0
    for path in _files(paths):
        try:
            doc = load(path)
        except UnreadableError as error:
            print(f"{path}: {error}", file=sys.stderr)
            wrong += 1
            continue
        if admission_sequences.recognises(doc):
            tallied = tally(doc)
            looked_at, wrong = (
                looked_at + 1,
                wrong + len(tallied.unsound) + len(tallied.refused_needlessly),
            )
            print(
                msgspec.json.encode(
                    {"file": path.name, **msgspec.structs.asdict(tallied)}
                ).decode(),
                flush=True,
            )
    if not looked_at:
        print("no admission sequences in these files", file=sys.stderr)
    return 0 if looked_at and not wrong else 1


def _through_the_models(paths: list[str]) -> int:
    counts: Counter[str] = Counter()
    for path in _files(paths):
        counts += _run(path)
    shown = [f"{counts['passed']} passed", f"{counts['failed']} failed"]
    shown += [f"{counts[name]} {name}" for name in ("deliberate",) if counts[name]]
    print(", ".join(shown))
    return 1 if counts["failed"] or counts["unreadable"] else 0


def _files(arguments: list[str]) -> Iterator[Path]:
    for argument in arguments:
        path = Path(argument)
        inside = sorted(inside for inside in path.rglob("*") if inside.name.endswith(ENDINGS))
        # A folder without any is told as what it is: nothing was checked there.
        yield from inside if path.is_dir() and inside else [path]


def _run(path: Path) -> Counter[str]:
    """Return how many cases passed, failed and are deliberate; `unreadable` is 1 if the
    file cannot be read.
    """
    unreadable = Counter(unreadable=1)
    try:
        doc = load(path)
    except UnreadableError as error:
        print(f"{path}: {error}")
        return unreadable
    kind = kind_of(doc)
    if kind is None:
        kinds = ", ".join(known.KIND for known in all_kinds())
        print(f"{path}: of no known kind (known: {kinds})")
        return unreadable
    if kind is peers:
        return _run_peers(path, doc["cases"])
    try:
        outcomes = list(results(kind, doc))
    except Exception as error:  # one strange file must not hide the others
        print(
            f"{path}: looks like {kind.KIND}, but its cases cannot be listed "
            f"({type(error).__name__}: {error})"
        )
        return unreadable
    return _counted(path, kind, doc, outcomes)


def _counted(
    path: Path, kind: Kind, doc: dict[str, Any], outcomes: list[tuple[str, list[str]]]
) -> Counter[str]:
    """Print the file's line, its first failures and its deliberate differences."""
    names = deliberate_names(kind, doc)
    differing = [(name, differences) for name, differences in outcomes if differences]
    wrong = [(name, differences) for name, differences in differing if name not in names]
    passed = len(outcomes) - len(differing)
    print(f"{path}: {passed}/{len(outcomes)}")
    for name, differences in wrong[:SHOWN_CASES]:
        for difference in differences[:SHOWN_DIFFERENCES]:
            print(f"    {name}: {difference[:SHOWN_CHARS]}")
    quirks = Counter(names[name] for name, _ in differing if name in names)
    for quirk, number in sorted(quirks.items()):
        print(f"    deliberate, {quirk}: {number}")
    return Counter(passed=passed, failed=len(wrong), deliberate=len(differing) - len(wrong))


def _run_peers(path: Path, cases: list[Case]) -> Counter[str]:
    """Print a line for each case."""
    counts: Counter[str] = Counter()
    remarks: Counter[str] = Counter()
    for case in cases:
        try:
            judgement = peers.judge(case)
        except Exception as error:  # one strange case must not hide the others
            judgement = peers.Judgement([f"raised {type(error).__name__}: {error}"])
        outcome = "failed" if judgement.differences else "passed"
        counts[outcome] += 1
        remarks.update(judgement.remarks if outcome == "passed" else ())
        shown = "; ".join(judgement.differences or judgement.remarks)[:SHOWN_CHARS]
        print(f"{case.get('id')}: {outcome}" + (f" ({shown})" if shown else ""))
    print(f"{path}: {counts['passed']}/{len(cases)}")
    for remark, number in sorted(remarks.items()):
        print(f"    {remark}: {number}")
    return counts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
