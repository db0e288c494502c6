"""Run declared children together: dependencies first, siblings in parallel, stopped in reverse
order.

Knows only the declarations of children.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from services.embedded.child import ChildSpec, OnEvent, ignore_event
from services.embedded.errors import ChildFailedError, EmbeddedError, PortInUseError
from services.embedded.ports import port_is_free
from services.embedded.process import ChildProcess


class Supervisor:
    """Starts children, restarts failed ones, reports changes through `on_event`, stops all.

    `start` may be called again with more children, which may depend on running ones. A later child
    is stopped before all children that were ready when it was added, unless they name it in
    `stop_before`.
    """

    def __init__(self, on_event: OnEvent = ignore_event) -> None:
        self._on_event = on_event
        self._children: dict[str, ChildProcess] = {}
        self._stop_before: dict[str, set[str]] = {}
        self._failures: asyncio.Queue[ChildFailedError] = asyncio.Queue()

    def child(self, name: str) -> ChildProcess:
        """Return the child of that name. Raises KeyError if it was never started."""
        return self._children[name]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all children, in the order of their declaration."""
        return tuple(self._children)

    async def start(self, specs: Sequence[ChildSpec]) -> None:
        """Start `specs` and return when all are ready; on a failure stop these again and raise it.

        Raises EmbeddedError (names, dependencies), PortInUseError, ChildFailedError.
        """
        check_declarations(specs, names=self._children)
        check_ports(specs)
        fresh = {spec.name: self._child_of(spec) for spec in specs}
        running = {name for name, child in self._children.items() if child.was_ready}
        for spec in specs:
            # A child that is to stop before this one does not stop after it.
            earlier = {name for name in running if spec.name not in self._stop_before[name]}
            self._stop_before[spec.name] = earlier.union(spec.depends_on, spec.stop_before)
        self._children.update(fresh)
        try:
            async with asyncio.TaskGroup() as group:
                for child in fresh.values():
                    group.create_task(self._start_after_dependencies(child))
        except BaseException as error:
            await self._stop_and_forget(fresh)
            if isinstance(error, BaseExceptionGroup):
                raise _first_cause(error) from None
            raise

    async def stop(self) -> None:
        """Stop every child, after all children that depend on it. Safe to call twice."""
        await self._stop_and_forget(dict(self._children))

    async def restart(self, name: str) -> None:
        """Stop one child gracefully and start it again from its declaration."""
        spec = self._children[name].spec
        await self._children[name].stop()
        self._children[name] = self._child_of(spec)
        await self._children[name].start()

    async def wait_for_failure(self) -> ChildFailedError:
        """Return the error of the next child that is given up after it was running."""
        return await self._failures.get()

    def _child_of(self, spec: ChildSpec) -> ChildProcess:
        child = ChildProcess(spec, self._on_event)
        child.failure.add_done_callback(lambda failure: self._note_failure(child, failure))
        return child

    def _note_failure(self, child: ChildProcess, failure: asyncio.Future[ChildFailedError]) -> None:
        if child.was_ready and not failure.cancelled():
            self._failures.put_nowait(failure.result())

    async def _start_after_dependencies(self, child: ChildProcess) -> None:
        for name in child.spec.depends_on:
            await self._children[name].wait_ready()
        await child.start()

    async def _stop_and_forget(self, children: dict[str, ChildProcess]) -> None:
        for layer in reversed(layers({name: self._stop_before[name] for name in children})):
            await asyncio.gather(*(children[name].stop() for name in layer))
        for name in children:
            self._children.pop(name, None)
            self._stop_before.pop(name, None)


def dependency_layers(specs: Sequence[ChildSpec]) -> list[list[str]]:
    """Return names in layers: a layer depends only on earlier ones (and on children outside
    `specs`).

    Raises EmbeddedError for a circle of dependencies.
    """
    return layers({spec.name: set(spec.depends_on) for spec in specs})


def layers(needs: Mapping[str, AbstractSet[str]]) -> list[list[str]]:
    """Return the names in layers; each needs only names of earlier layers, or unknown ones. Raises
    EmbeddedError for a circle.
    """
    remaining = dict(needs)
    result: list[list[str]] = []
    while remaining:
        layer = [name for name, needed in remaining.items() if not needed & remaining.keys()]
        if not layer:
            raise EmbeddedError(
                f"children depend on each other in a circle: {', '.join(sorted(remaining))}",
                "Break the circle",
            )
        result.append(layer)
        for name in layer:
            del remaining[name]
    return result


def check_declarations(specs: Sequence[ChildSpec], names: Iterable[str]) -> None:
    """Raise EmbeddedError for a duplicate name, an unknown dependency or a circle."""
    taken = set(names)
    for spec in specs:
        if spec.name in taken:
            raise EmbeddedError(
                f"two children are called {spec.name}", "Give each child a unique name"
            )
        taken.add(spec.name)
    for spec in specs:
        unknown = [name for name in spec.depends_on if name not in taken]
        if unknown:
            raise EmbeddedError(
                f"{spec.name} depends on {unknown[0]}, which is not declared",
                "Declare it, or drop it",
            )
    dependency_layers(specs)


def check_ports(specs: Sequence[ChildSpec], host: str = "127.0.0.1") -> None:
    """Raise PortInUseError with the child and the port if a port is in use."""
    for spec in specs:
        for port in spec.ports:
            if not port_is_free(host, port):
                raise PortInUseError(
                    f"port {port}, which {spec.name} needs, is in use on {host}",
                    f"Stop the program on it (ss -ltnp 'sport = :{port}'), or choose another port",
                )


def _first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_cause(first) if isinstance(first, BaseExceptionGroup) else first
