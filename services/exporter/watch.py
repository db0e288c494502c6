"""Notices what happens elsewhere: that a kubelet wrote its state, that somebody touched the notify
file, that the bus came back.

Folders are watched, since kubelets replace their files; one that is not there yet, or was replaced,
is watched as soon as it is there. Where inotify is not to be had, files are looked at in turns, and
that is said once. Must not know what changed.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterable

import msgspec

from services.exporter.folders import CHECKPOINTS, CONFIG_FILE
from services.exporter.inotify import IGNORED, OVERFLOW, Event, Inotify
from shared.bus.port import Bus
from shared.file_signature import Signature, signature

BUS_INTERVAL_S = 5.0
"""Reports in full come every few seconds anyway, and one that the bus did not take is sent when it is back."""
REARM_S = 1.0
GATHER_S = 0.02
"""After a look at the queue the next waits so long: a kubelet writes several files for one pod, and each costs several events.
Less than the time that a scan waits for what follows (`settle_s`), so that one scan still sees them all."""
ABSENT = (errno.ENOENT, errno.ENOTDIR)


class Place(msgspec.Struct, frozen=True):
    """Entries of one folder whose change concerns a node; the empty name is the folder itself."""

    node: str
    folder: str
    names: frozenset[str]


def kubelet_places(node: str, kubelet_dir: str) -> list[Place]:
    """Where a kubelet keeps what an exporter reads."""
    files: dict[str, set[str]] = {kubelet_dir: {"", CONFIG_FILE}}
    for name in CHECKPOINTS:
        folder, _, file = f"{kubelet_dir}/{name}".rpartition("/")
        files.setdefault(folder, set()).add(file)
    return [Place(node, folder, frozenset(names)) for folder, names in files.items()]


def file_place(node: str, path: str) -> Place:
    """One file, watched through its folder: created, replaced, written and touched all count."""
    folder, _, name = path.rpartition("/")
    return Place(node, folder or ("/" if path.startswith("/") else "."), frozenset({name}))


async def watch_places(
    places: Iterable[Place],
    interval_s: float,
    changed: Callable[[str], None],
    fell_back: Callable[[str], None],
) -> None:
    """Call `changed(node)` whenever a place of the node changed. Ends by cancellation.

    `interval_s` is the time between two looks at each file where there is no inotify;
    `fell_back(reason)` is called then."""
    listed = list(places)
    try:
        watches = _Watches(listed, changed)
    except OSError as error:
        fell_back(str(error))
        await _poll(listed, interval_s, changed)
        return
    try:
        await watches.run()
    except OSError as error:
        fell_back(str(error))
    finally:
        watches.close()
    await _poll(listed, interval_s, changed)


class _Watches:
    """All places of one process on one inotify queue."""

    def __init__(self, places: list[Place], changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._of_folder: dict[str, dict[bytes, list[str]]] = {}
        for place in places:
            concerned = self._of_folder.setdefault(place.folder, {})
            for name in place.names:
                concerned.setdefault(os.fsencode(name), []).append(place.node)
        self._nodes = sorted({place.node for place in places})
        self._folders: dict[int, str] = {}
        self._inotify = Inotify()
        self._lost = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pausing: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Watch until cancelled. Raises OSError when the kernel gives no more watches."""
        self._arm(first=True)
        self._loop = asyncio.get_running_loop()
        self._listen()
        while True:
            if len(self._folders) == len(self._of_folder):
                await self._lost.wait()
            await asyncio.sleep(REARM_S)
            self._lost.clear()
            self._arm(first=False)

    def close(self) -> None:
        """Stop watching."""
        if self._loop is not None:
            self._loop.remove_reader(self._inotify.descriptor)
        if self._pausing is not None:
            self._pausing.cancel()
        self._inotify.close()

    def _arm(self, first: bool) -> None:
        """Watch the folders that are there and not yet watched; one that appeared may hold news."""
        for folder in self._of_folder.keys() - set(self._folders.values()):
            try:
                watch = self._inotify.add(folder)
            except OSError as error:
                if error.errno not in ABSENT:
                    raise
                continue
            self._folders[watch] = folder
            if not first:
                for node in dict.fromkeys(
                    node for nodes in self._of_folder[folder].values() for node in nodes
                ):
                    self._changed(node)

    def _listen(self) -> None:
        assert self._loop is not None
        self._loop.add_reader(self._inotify.descriptor, self._begin)

    def _begin(self) -> None:
        """What has happened is told at once; what follows is let gather until nothing does."""
        assert self._loop is not None
        self._loop.remove_reader(self._inotify.descriptor)
        self._look()

    def _look(self) -> None:
        assert self._loop is not None
        self._pausing = self._loop.call_later(GATHER_S, self._look)
        if not self._told():
            self._pausing.cancel()
            self._listen()

    def _told(self) -> bool:
        """Tell whom something concerns; False when nothing happened."""
        events = dict.fromkeys(self._inotify.read())
        for node in dict.fromkeys(node for event in events for node in self._concerned(event)):
            self._changed(node)
        return bool(events)

    def _concerned(self, event: Event) -> list[str]:
        if event.mask & OVERFLOW:
            return self._nodes
        if event.mask & IGNORED:
            self._folders.pop(event.watch, None)
            self._lost.set()
            return []
        return self._of_folder.get(self._folders.get(event.watch, ""), {}).get(event.name, [])


async def _poll(places: list[Place], interval_s: float, changed: Callable[[str], None]) -> None:
    """Look at every file in turns; without an interval never."""
    if interval_s <= 0:
        return
    seen = [_signatures(place) for place in places]
    while True:
        await asyncio.sleep(interval_s)
        for number, place in enumerate(places):
            found = _signatures(place)
            if found != seen[number]:
                seen[number] = found
                changed(place.node)


def _signatures(place: Place) -> list[Signature]:
    return [signature(os.path.join(place.folder, name)) for name in sorted(place.names)]


async def watch_bus(bus: Bus, returned: Callable[[], None]) -> None:
    """Call `returned()` whenever the bus is there again after having been away. Ends by
    cancellation.
    """
    there = True
    while True:
        await asyncio.sleep(BUS_INTERVAL_S)
        before, there = there, await bus.connected()
        if there and not before:
            returned()
