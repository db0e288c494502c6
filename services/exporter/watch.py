"""Triggers: a kubelet wrote its state, the notify file changed, the bus came back.

Folders are watched, because kubelets replace their files. A folder that is missing, or was
replaced, is watched as soon as it exists. Without inotify the files are polled, which is logged
once. Must not know what changed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from services.exporter.folders import CHECKPOINTS, CONFIG_FILE
from shared.bus.port import Bus
from shared.file_signature import Signature, signature

if TYPE_CHECKING:
    from asyncinotify import Inotify

# Full reports come every few seconds anyway, and the outbox retries.
BUS_INTERVAL_S = 5.0
REARM_S = 1.0
# Pause between two reads of the queue: a kubelet writes several files for one pod, and each costs
# several events. Shorter than `settle_s`, so that one scan still sees them all.
GATHER_S = 0.02
ABSENT = (errno.ENOENT, errno.ENOTDIR)
# inotify(7): watch descriptor, mask, cookie and length of the name, which follows. These are read
# here, because a pod causes 20 to 30 events and asyncinotify's objects cost 30 us each.
_HEADER = struct.Struct("iIII")
_READ_BYTES = 64 * 1024
_Q_OVERFLOW, _IGNORED = 0x4000, 0x8000


class Place(msgspec.Struct, frozen=True):
    """Entries of one folder that concern a node; the empty name is the folder itself."""

    node: str
    folder: str
    names: frozenset[str]


def kubelet_places(node: str, kubelet_dir: str) -> list[Place]:
    """Return the places of the kubelet's checkpoints and configuration."""
    files: dict[str, set[str]] = {kubelet_dir: {"", CONFIG_FILE}}
    for name in CHECKPOINTS:
        folder, _, file = f"{kubelet_dir}/{name}".rpartition("/")
        files.setdefault(folder, set()).add(file)
    return [Place(node, folder, frozenset(names)) for folder, names in files.items()]


def file_place(node: str, path: str) -> Place:
    """Return the place of one file: creation, replacement, writes and touches count."""
    folder, _, name = path.rpartition("/")
    return Place(node, folder or ("/" if path.startswith("/") else "."), frozenset({name}))


async def watch_places(
    places: Iterable[Place],
    interval_s: float,
    changed: Callable[[str], None],
    fell_back: Callable[[str], None],
) -> None:
    """Call `changed(node)` whenever a place of the node changed. Ends by cancellation.

    Without inotify it calls `fell_back(reason)` and looks at the files every `interval_s`.
    """
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


def open_inotify() -> Inotify:
    """Return a queue of inotify events. Raises OSError if the system has none."""
    try:
        from asyncinotify import Inotify

        inotify = Inotify()
    except (ImportError, RuntimeError, AttributeError) as error:
        raise OSError(f"no inotify: {error}") from error
    os.set_blocking(inotify.fd, False)
    return inotify


class _Watches:
    """All places of one process on one inotify queue."""

    def __init__(self, places: list[Place], changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._of_folder: dict[str, dict[str, list[str]]] = {}
        for place in places:
            nodes_by_name = self._of_folder.setdefault(place.folder, {})
            for name in place.names:
                nodes_by_name.setdefault(name, []).append(place.node)
        self._nodes = sorted({place.node for place in places})
        self._inotify = open_inotify()
        # Watch descriptor -> folder.
        self._folders: dict[int, str] = {}
        self._lost = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pausing: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Watch until cancelled. Raises OSError if the kernel gives no more watches."""
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
            self._loop.remove_reader(self._inotify.fd)
        if self._pausing is not None:
            self._pausing.cancel()
        self._inotify.close()

    def _arm(self, first: bool) -> None:
        """Watch folders that exist and are not watched; a new one may have changes already."""
        from asyncinotify import Mask

        changes = Mask.ATTRIB | Mask.CLOSE_WRITE | Mask.MOVE | Mask.CREATE | Mask.DELETE
        for folder in self._of_folder.keys() - set(self._folders.values()):
            try:
                watch = self._inotify.add_watch(folder, changes | Mask.ONLYDIR)
            except OSError as error:
                if error.errno not in ABSENT:
                    raise
                continue
            self._folders[watch.wd] = folder
            if not first:
                nodes = [node for names in self._of_folder[folder].values() for node in names]
                self._call(nodes)

    def _call(self, nodes: Iterable[str]) -> None:
        for node in dict.fromkeys(nodes):
            self._changed(node)

    def _listen(self) -> None:
        assert self._loop is not None
        self._loop.add_reader(self._inotify.fd, self._begin)

    def _begin(self) -> None:
        """Act on the first events at once, and let further ones gather until none come."""
        assert self._loop is not None
        self._loop.remove_reader(self._inotify.fd)
        self._look()

    def _look(self) -> None:
        assert self._loop is not None
        self._pausing = self._loop.call_later(GATHER_S, self._look)
        events = list(_unread(self._inotify.fd))
        self._call(node for event in events for node in self._concerned(*event))
        if not events:
            self._pausing.cancel()
            self._listen()

    def _concerned(self, descriptor: int, mask: int, name: str) -> list[str]:
        if mask & _Q_OVERFLOW:
            return self._nodes
        if mask & _IGNORED:
            if self._folders.pop(descriptor, None) is not None:
                self._lost.set()
            return []
        return self._of_folder.get(self._folders.get(descriptor, ""), {}).get(name, [])


def _unread(fd: int) -> Iterator[tuple[int, int, str]]:
    """Yield the watch descriptor, mask and file name of each event in the queue."""
    while True:
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return
        start = 0
        while start < len(data):
            descriptor, mask, _, length = _HEADER.unpack_from(data, start)
            start += _HEADER.size + length
            yield descriptor, mask, os.fsdecode(data[start - length : start].rstrip(b"\0"))


async def _poll(places: list[Place], interval_s: float, changed: Callable[[str], None]) -> None:
    """Look at every file every `interval_s`; never if it is 0."""
    if interval_s <= 0:
        return
    signatures = [_signatures(place) for place in places]
    while True:
        await asyncio.sleep(interval_s)
        for number, place in enumerate(places):
            current = _signatures(place)
            if current != signatures[number]:
                signatures[number] = current
                changed(place.node)


def _signatures(place: Place) -> list[Signature]:
    return [signature(os.path.join(place.folder, name)) for name in sorted(place.names)]


async def watch_bus(bus: Bus, returned: Callable[[], None]) -> None:
    """Call `returned()` whenever the bus is connected again. Ends by cancellation."""
    connected = True
    while True:
        await asyncio.sleep(BUS_INTERVAL_S)
        was_connected, connected = connected, await bus.connected()
        if connected and not was_connected:
            returned()
