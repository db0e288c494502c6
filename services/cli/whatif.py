"""`topolog replay whatif`: decide a recorded history again, by the same rules or by others. Options
in, tables out; `services.whatif` plays the history.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
import typer

from services.cli import window
from services.cli.in_cells import Cell, one_cell
from services.cli.log_source import LogSource
from services.cli.output import EXIT_FAILED, EXIT_USAGE, CommandError, json_line, say, say_table
from services.cli.paths import path_option
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
# The values of --from and --to.
Range = tuple[list[str] | None, list[str] | None]


@replay_app.command("whatif", context_settings=NEGATIVE_POSITIONS)
def whatif_command(
    history: Annotated[
        str,
        typer.Option(help="File of `topolog log export`, folder of archived files, or live."),
    ] = "live",
    from_: From = None,
    to: To = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="KEY=VALUE, repeatable: a scheduler setting (cache, strategy, prediction, ...), "
            "policy or scope.",
        ),
    ] = None,
    nodes: Annotated[
        str, typer.Option(help="+2 adds two nodes of the most frequent machine, -1 removes one.")
    ] = "",
    reports: Annotated[
        str, typer.Option(help="Seconds between two reports of a simulated node, or change.")
    ] = "change",
    seed: Annotated[
        int, typer.Option(help="Seed of the delays that the history does not record.", min=0)
    ] = 1,
    plot: Annotated[
        Path | None, path_option(help="Draw both sides over time into this SVG file.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Processes; 2 plays both sides at once.", min=1, max=2)
    ] = 2,
    database_url: Database = "",
    data_dir: DataDir = None,
    cell: Cell = "",
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print JSON lines: both sides, the first difference, the totals."
        ),
    ] = False,
) -> None:
    """Decide a recorded history again, under the same or under changed rules.

    Without a change, every recorded decision is made again on its recorded state, and decisions
    that differ are counted by cause. With a change, the recorded pods arrive again, with their
    lifetimes and delays, on simulated kubelets of the recorded machines: once under the settings
    in the data folder and this shell (TOPOLOG_*), once under the changed ones.
    """
    if reports not in REPORTS:
        problem = f"--reports must be one of {', '.join(REPORTS)} (found {reports!r})"
        raise CommandError(problem, "topolog replay whatif --help", EXIT_USAGE)
    window.check(from_, to, "replay whatif")
    settings, world = _changes(changes or [], nodes)
    source = _source(history, database_url, data_dir, cell)
    recorded = source.settings(os.environ)
    choices = _choice(recorded), _choice(recorded | settings)
    if not settings and not (world.nodes or world.policy or world.scope):
        _reproduce(source, (from_, to), choices[0], plot, as_json)
    else:
        name = " ".join([*(changes or []), *([f"nodes={nodes}"] if nodes else [])])
        _compare(source, (from_, to), choices, world, name, seed, reports, jobs, plot, as_json)


def _source(history: str, database_url: str, data_dir: Path | None, cell: str) -> LogSource:
    if history == "live":
        return one_cell(LogSource(database_url, data_dir, cell=cell))
    if data_dir is not None:
        raise CommandError(
            "--history and --data-dir both name a log", "give one of them", EXIT_USAGE
        )
    return LogSource(history, None)


def _changes(changes: list[str], nodes: str) -> tuple[dict[str, str], Changes]:
    """Return the changed scheduler variables and the changes of the cluster."""
    from services.whatif.world import Changes
    from shared.domain.policies import POLICIES, SCOPES

    variables, world, settings = dict[str, str](), dict[str, str](), _variables()
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not value:
            raise CommandError(
                f"--set {change!r} is no KEY=VALUE", "--set strategy=LeastNUMANodes", EXIT_USAGE
            )
        if key in world or settings.get(key) in variables:
            raise CommandError(f"--set {key} is given twice", "one run for each value", EXIT_USAGE)
        if key in WORLD:
            allowed = POLICIES if key == "policy" else SCOPES
            if value not in allowed:
                raise CommandError(
                    f"--set {key} must be one of {', '.join(allowed)} (found {value!r})",
                    f"--set {key}={allowed[-1]}",
                    EXIT_USAGE,
                )
            world[key] = value
        elif key in settings:
            variables[settings[key]] = value
        else:
            near = difflib.get_close_matches(key, [*settings, *WORLD], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise CommandError(
                f"--set {key!r} is no setting{hint}",
                f"one of {', '.join(sorted([*settings, *WORLD]))}",
                EXIT_USAGE,
            )
    return variables, Changes(_node_change(nodes), **world)


def _variables() -> dict[str, str]:
    """Return key -> variable of the settings that decisions depend on."""
    from services.scheduler.snapshot.config import CycleConfig

    cycle = {
        field.name: f"TOPOLOG_CYCLE_{field.name.upper()}"
        for field in msgspec.structs.fields(CycleConfig)
    }
    others = ("cache", "compat", "dirty_after_rejections", "plugin_config", "scheduler_name")
    return cycle | {name: f"TOPOLOG_{name.upper()}" for name in others}


def _node_change(nodes: str) -> int:
    try:
        change = int(nodes) if nodes else 0
        if nodes[:1] not in ("", "+", "-") or abs(change) > 10_000:
            raise ValueError
    except ValueError:
        raise CommandError(
            f"--nodes must be a signed number of nodes (found {nodes!r})", "--nodes +2", EXIT_USAGE
        ) from None
    return change


def _choice(environment: Mapping[str, str]) -> Choice:
    from services.cli.deciding_here import choice_here
    from shared.runtime.settings import SettingsInvalid

    try:
        return choice_here(environment)
    except SettingsInvalid as error:
        raise CommandError(
            "no scheduler would start: " + "; ".join(error.problems), "another --set", EXIT_USAGE
        ) from error


def _reproduce(
    source: LogSource, window_range: Range, choice: Choice, plot: Path | None, as_json: bool
) -> None:
    from services.whatif.reproducing import reproduce

    if choice.core.upstream is not None:
        raise CommandError(
            "the upstream cache is configured, which decides by a clock that is not in the history",
            "unset TOPOLOG_CACHE and TOPOLOG_COMPAT",
        )
    if plot is not None:
        raise CommandError(
            "--plot draws two sides, and without a change there is only one",
            "--set strategy=...",
            EXIT_USAGE,
        )

    async def decide(log: EventLog) -> Reproduced:
        first, last = await window.with_events(log, *window_range)
        return await reproduce(log, choice.core, first, last)

    result = run(source, decide, "whatif")
    if as_json:
        for decision in result.differing:
            json_line(decision)
        json_line(msgspec.structs.replace(result, differing=[]))
        return
    say(
        f"{result.decisions} decisions repeated: {result.same} the same, {result.differs} different"
    )
    for reason, count in result.why.items():
        say(f"  {count} {reason}")
    if result.others:
        say(f"  {result.others} more were not Topolog's choice")
    for decision in result.differing:
        say(
            f"{decision.position:>9}  {decision.pod}: recorded {decision.recorded}; "
            f"now {decision.here}"
        )


def _compare(
    source: LogSource,
    window_range: Range,
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
        first, last = await window.with_events(log, *window_range)
        return await recorded(log, first, last)

    history = run(source, read, "whatif")
    try:
        worlds = [world(history, Changes()), world(history, changes)]
    except NothingToPlay as error:
        raise CommandError(
            str(error), "a history with reports and pods; see: topolog replay log", EXIT_USAGE
        ) from error
    baseline, changed = (
        comparing.Player(
            label,
            cluster,
            _named(choice, scheduler_of(history, choice.core.scheduler_name)),
            seed,
            cast("Any", reports),
        )
        for label, cluster, choice in zip(("as here", name), worlds, choices, strict=True)
    )
    try:
        with progress_bar("playing", 1.0) as advance:
            sides = comparing.side_by_side(baseline, changed, advance, jobs)
        keys = {uid: past.pod.key for uid, past in history.pods.items()}
        first = comparing.first_difference(baseline, changed, sides, keys, jobs)
    except comparing.SideFailed as error:
        raise CommandError(
            str(error),
            "topolog replay whatif --jobs 1, or a shorter history (--from, --to)",
            EXIT_FAILED,
        ) from error
    all_sides = comparing.as_recorded(history), *sides
    notes = [*cut.notes(history, worlds[1], all_sides), *worlds[1].notes]
    _print(all_sides, first, comparing.count_differing(sides), notes, as_json)
    if plot is not None:
        _draw(plot, sides)


def _named(choice: Choice, scheduler: str) -> Choice:
    """Return the configuration with the scheduler name of the recorded pods."""
    return msgspec.structs.replace(
        choice, core=msgspec.structs.replace(choice.core, scheduler_name=scheduler)
    )


def _require_writable(plot: Path) -> None:
    """Check this before minutes of playing. An existing file stays as it is."""
    try:
        existed = plot.exists()
        plot.open("a").close()
        if not existed:
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


def _print(
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
    columns = (
        "",
        "#pods",
        "#ran",
        "#rejected",
        "#unplaced",
        "#mean wait s",
        "#p99 wait s",
        "#zones per pod",
        "#zones used",
        "#fragmentation",
    )
    say_table(columns, [_row(side) for side in sides])
    say()
    if first is None:
        say("every decision is the same")
    else:
        say(f"the first different decision is {first.number}, after {first.at_s:g} s: {first.pod}")
        for side, text, details in (
            (sides[1], first.before, first.before_of_other),
            (sides[2], first.after, first.after_of_other),
        ):
            say(f"  {side.name}: {text}")
            for line in details:
                say(f"    {line}")
        say(f"{differs} pods end on another node, or on none")
    for note in notes:
        say(f"note: {note}")


def _row(side: Side) -> list[str]:
    counts = (side.pods, side.ran, side.rejected, side.unplaced, side.wait_mean_s, side.wait_p99_s)
    has_samples = bool(side.samples)
    return [
        side.name,
        *map(str, counts),
        f"{side.zones_per_pod:.2f}" if has_samples else "-",
        f"{side.zones_used:.1f}" if has_samples else "-",
        f"{100 * side.fragmentation:.1f} %" if has_samples else "-",
    ]
