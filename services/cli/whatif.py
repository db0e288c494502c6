"""`topolog replay whatif`: a history decided again, by the same rules or by others. Options in,
tables out; played by `services.whatif`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import typer

from services.cli import window
from services.cli.log_source import LogSource
from services.cli.output import EXIT_FAILED, EXIT_USAGE, CommandError, console, json_line, table
from services.cli.progress import progress_bar
from services.cli.replay import NEGATIVE_POSITIONS, Database, DataDir, replay_app, run
from services.cli.window import From, To
from shared.eventlog.port import EventLog

if TYPE_CHECKING:
    from services.scheduler.settings import Choice
    from services.whatif.comparing import FirstDifference
    from services.whatif.playing import Side
    from services.whatif.recorded import Recorded
    from services.whatif.reproducing import Reproduced
    from services.whatif.world import Changes

WORLD = {"policy": "topology_policy", "scope": "topology_scope"}
REPORTS = ("change", "1", "10", "60")
Wanted = tuple[list[str] | None, list[str] | None]
"""Where to begin and where to end, as they were written."""


@replay_app.command("whatif", context_settings=NEGATIVE_POSITIONS)
def whatif_command(
    history: Annotated[
        str,
        typer.Option(help="A file of `topolog log export`, a folder of archived ones, or live."),
    ] = "live",
    from_: From = None,
    to: To = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="KEY=VALUE: a setting of the scheduler (cache, strategy, prediction, ...), or policy, scope.",
        ),
    ] = None,
    nodes: Annotated[
        str, typer.Option(help="+2: two more nodes, of the most frequent machine; -1: one fewer.")
    ] = "",
    reports: Annotated[
        str, typer.Option(help="Seconds between two reports of a simulated node, or change.")
    ] = "change",
    seed: Annotated[
        int, typer.Option(help="Of the delays that the history does not tell.", min=0)
    ] = 1,
    plot: Annotated[
        Path | None, typer.Option(help="Draw both sides over time into this SVG.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Processes: 2 plays both sides at once.", min=1, max=2)
    ] = 2,
    database_url: Database = "",
    data_dir: DataDir = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="JSON lines: each side, the first difference, and the sum at the end."
        ),
    ] = False,
) -> None:
    """Decide a recorded history again: under other rules, or under the same to see that it comes
    out the same.

    Without a change, every recorded decision is made again on the state that it was made on, and
    those that do not come out the same are counted by cause. With one, the recorded pods arrive
    again, with their lifetimes and delays, on simulated kubelets of the recorded machines, under
    the rules as they are here (TOPOLOG_*) and under the changed ones, side by side.
    """
    if reports not in REPORTS:
        raise CommandError(
            f"--reports is {reports}; there are {', '.join(REPORTS)}",
            "topolog replay whatif --help",
            EXIT_USAGE,
        )
    window.check(from_, to, "replay whatif")
    settings, world = _changes(changes or [], nodes)
    before, after = _choice(os.environ), _choice(os.environ | settings)
    if history != "live" and data_dir is not None:
        raise CommandError(
            "--history and --data-dir each name a log", "the one or the other", EXIT_USAGE
        )
    source = LogSource(database_url, data_dir) if history == "live" else LogSource(history, None)
    if not settings and not _changed(world):
        _reproduce(source, (from_, to), before, plot, as_json)
    else:
        name = " ".join([*(changes or []), *([f"nodes={nodes}"] if nodes else [])])
        _compare(
            source, (from_, to), (before, after), world, name, seed, reports, jobs, plot, as_json
        )


# -- options
# ---------------------------------------------------------------------------------------------------------


def _changes(changes: list[str], nodes: str) -> tuple[dict[str, str], Changes]:
    """The changed variables of the scheduler, and what is changed of the world. Raises
    CommandError.
    """
    from services.whatif.world import Changes
    from shared.domain.policies import POLICIES, SCOPES

    variables, world, known = dict[str, str](), dict[str, str](), _variables()
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not value:
            raise CommandError(
                f"--set {change!r} is no KEY=VALUE", "--set strategy=LeastNUMANodes", EXIT_USAGE
            )
        if key in world or known.get(key) in variables:
            raise CommandError(
                f"--set {key} is there twice",
                "each setting once; two runs for two values",
                EXIT_USAGE,
            )
        if key in WORLD:
            allowed = POLICIES if key == "policy" else SCOPES
            if value not in allowed:
                raise CommandError(
                    f"--set {key}: {value!r} is none of {', '.join(allowed)}",
                    f"--set {key}={allowed[-1]}",
                    EXIT_USAGE,
                )
            world[key] = value
        elif key in known:
            variables[known[key]] = value
        else:
            near = difflib.get_close_matches(key, [*known, *WORLD], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise CommandError(
                f"--set {key!r} is no setting{hint}",
                f"one of {', '.join(sorted([*known, *WORLD]))}",
                EXIT_USAGE,
            )
    return variables, Changes(_more(nodes), **world)


def _variables() -> dict[str, str]:
    """Key -> variable, for the settings that deciding depends on."""
    from services.scheduler.snapshot.config import CycleConfig

    cycle = {
        field.name: f"TOPOLOG_CYCLE_{field.name.upper()}"
        for field in msgspec.structs.fields(CycleConfig)
    }
    others = ("cache", "compat", "dirty_after_rejections", "plugin_config", "scheduler_name")
    return cycle | {name: f"TOPOLOG_{name.upper()}" for name in others}


def _more(nodes: str) -> int:
    try:
        more = int(nodes) if nodes else 0
        if nodes[:1] not in ("", "+", "-") or abs(more) > 10_000:
            raise ValueError
    except ValueError:
        raise CommandError(
            f"--nodes {nodes!r} is no number of nodes more or fewer", "--nodes +2", EXIT_USAGE
        ) from None
    return more


def _choice(environment: Mapping[str, str]) -> Choice:
    from services.cli.deciding_here import choice_here
    from shared.runtime.settings import SettingsInvalid

    try:
        return choice_here(environment)
    except SettingsInvalid as error:
        raise CommandError(
            "no scheduler would start: " + "; ".join(error.problems), "another --set", EXIT_USAGE
        ) from error


def _changed(world: Changes) -> bool:
    return bool(world.nodes or world.policy or world.scope)


# -- without a change
# ----------------------------------------------------------------------------------------------------


def _reproduce(
    source: LogSource, wanted: Wanted, choice: Choice, plot: Path | None, as_json: bool
) -> None:
    from services.whatif.reproducing import reproduce

    if choice.core.upstream is not None:
        raise CommandError(
            "an upstream cache decides here, by a clock that the history does not tell",
            "unset TOPOLOG_CACHE and TOPOLOG_COMPAT",
        )
    if plot is not None:
        raise CommandError(
            "--plot draws two sides, and without a change there is one",
            "--set strategy=...",
            EXIT_USAGE,
        )

    async def decide(log: EventLog) -> Reproduced:
        first, last = await window.with_events(log, *wanted)
        with progress_bar("deciding again", 2 * last) as advance:
            return await reproduce(log, choice.core, first, last, advance)

    found = run(source, decide, "whatif")
    if as_json:
        for each in found.told:
            json_line(each)
        json_line(msgspec.structs.replace(found, told=[]))
        return
    out = console()
    out.print(
        f"{found.decisions} decisions made again: {found.same} the same, {found.differs} not",
        markup=False,
    )
    for why, count in found.why.items():
        out.print(f"  {count} {why}", markup=False)
    if found.others:
        out.print(f"  {found.others} more were not Topolog's choice", markup=False)
    for each in found.told:
        out.print(
            f"{each.position:>9}  {each.pod}: {each.recorded}; here: {each.here}", markup=False
        )


# -- with one
# ------------------------------------------------------------------------------------------------------------


def _compare(
    source: LogSource,
    wanted: Wanted,
    choices: tuple[Choice, Choice],
    changes: Changes,
    name: str,
    seed: int,
    reports: str,
    jobs: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    from services.whatif import comparing, cut
    from services.whatif.recorded import recorded, scheduler_of
    from services.whatif.world import Changes, NothingToPlay, world

    if plot is not None:
        _require_writable(plot)

    async def read(log: EventLog) -> Recorded:
        first, last = await window.with_events(log, *wanted)
        with progress_bar("reading", last) as advance:
            return await recorded(log, first, last, advance)

    found = run(source, read, "whatif")
    try:
        worlds = [world(found, Changes()), world(found, changes)]
    except NothingToPlay as error:
        raise CommandError(
            str(error), "a history with reports and pods; see: topolog replay log", EXIT_USAGE
        ) from error
    one, other = (
        comparing.Player(
            each,
            played,
            _named(choice, scheduler_of(found, choice.core.scheduler_name)),
            seed,
            cast("Any", reports),
        )
        for each, played, choice in zip(("as here", name), worlds, choices, strict=True)
    )
    try:
        with progress_bar("playing", 1.0) as advance:
            sides = comparing.side_by_side(one, other, advance, jobs)
        keys = {uid: past.pod.key for uid, past in found.pods.items()}
        first = comparing.first_difference(one, other, sides, keys, jobs)
    except comparing.SideFailed as error:
        raise CommandError(
            str(error),
            "topolog replay whatif --jobs 1, or a shorter history (--from, --to)",
            EXIT_FAILED,
        ) from error
    every = comparing.as_recorded(found), *sides
    notes = [*cut.notes(found, worlds[1], every), *worlds[1].notes]
    _tell(every, first, comparing.count_differing(sides), notes, as_json)
    if plot is not None:
        _draw(plot, sides)


def _named(choice: Choice, scheduler: str) -> Choice:
    """The configuration under the name that the recorded pods asked for."""
    return msgspec.structs.replace(
        choice, core=msgspec.structs.replace(choice.core, scheduler_name=scheduler)
    )


def _require_writable(plot: Path) -> None:
    """Before minutes of playing. A file that is there stays as it is. Raises CommandError."""
    try:
        was_there = plot.exists()
        plot.open("a").close()
        if not was_there:
            plot.unlink()
    except OSError as error:
        raise _unwritable(plot, error) from error


def _unwritable(plot: Path, error: OSError) -> CommandError:
    return CommandError(f"{plot} cannot be written: {error.strerror}", "--plot FILE.svg")


def _draw(plot: Path, sides: tuple[Side, Side]) -> None:
    from services.whatif.picture import picture

    try:
        plot.write_text(picture(sides, "what if"))
    except OSError as error:
        raise _unwritable(plot, error) from error


def _tell(
    sides: tuple[Side, ...],
    first: FirstDifference | None,
    differs: int,
    notes: list[str],
    as_json: bool,
) -> None:
    if as_json:
        for side in sides:
            json_line(msgspec.structs.replace(side, samples=(), decisions=()))
        json_line({"first_difference": first})
        json_line(
            {
                "differs": differs,
                "decisions": [len(side.decisions) for side in sides[1:]],
                "notes": notes,
            }
        )
        return
    out = console()
    columns = (
        "",
        "#pods",
        "#ran",
        "#rejected",
        "#unplaced",
        "#mean wait s",
        "#p99 wait s",
        "#zones used",
        "#fragmentation",
    )
    out.print(table("", columns, [_row(side) for side in sides]))
    if first is None:
        out.print("\nevery decision is the same", markup=False)
    else:
        out.print(
            f"\ndecision {first.number}, after {first.at_s:g} s, is the first that differs: {first.pod}",
            markup=False,
        )
        for side, text, of_other in (
            (sides[1], first.before, first.before_of_other),
            (sides[2], first.after, first.after_of_other),
        ):
            out.print(f"  {side.name}: {text}", markup=False)
            for line in of_other:
                out.print(f"    {line}", markup=False)
        out.print(f"{differs} pods end up on another node, or on none", markup=False)
    for note in notes:
        out.print(f"note: {note}", markup=False)


def _row(side: Side) -> list[str]:
    told = bool(side.samples)
    return [
        side.name,
        *(
            str(each)
            for each in (
                side.pods,
                side.ran,
                side.rejected,
                side.unplaced,
                side.wait_mean_s,
                side.wait_p99_s,
            )
        ),
        f"{side.zones_used:.1f}" if told else "-",
        f"{100 * side.fragmentation:.1f} %" if told else "-",
    ]
