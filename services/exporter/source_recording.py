"""podresources from files: a folder with the answers of one moment, as protobuf bytes or JSON.

Reads `list.pb` or `list.json`, and `allocatable.pb`, `allocatable.json`, `get_allocatable.json` or
`get_allocatable_resources.json` (RTE's name). Must not know the meaning of the answers.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from services.exporter import wire
from services.exporter.answers import Allocatable, ListedPod
from services.exporter.podresources import podresources_pb2 as pb

LIST_FILES = ("list.pb", "list.json")
ALLOCATABLE_FILES = (
    "allocatable.pb",
    "allocatable.json",
    "get_allocatable.json",
    "get_allocatable_resources.json",
)
_Message = TypeVar("_Message", bound=Message)


class RecordingError(ValueError):
    """The folder is not a recording; names the folder or file and what was expected."""


def pods(folder: Path) -> tuple[ListedPod, ...]:
    """Return the recorded answer to List. Raises RecordingError."""
    return wire.pods(_read(folder, LIST_FILES, pb.ListPodResourcesResponse()))


def allocatable(folder: Path) -> Allocatable:
    """Return the recorded answer to GetAllocatableResources. Raises RecordingError."""
    return wire.allocatable(_read(folder, ALLOCATABLE_FILES, pb.AllocatableResourcesResponse()))


def _read(folder: Path, names: tuple[str, ...], message: _Message) -> _Message:
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise RecordingError(
            f"{folder}: has none of {', '.join(names)}; give a folder with recorded answers"
        )
    try:
        if path.suffix == ".pb":
            message.ParseFromString(path.read_bytes())
        else:
            json_format.Parse(path.read_bytes(), message, ignore_unknown_fields=True)
    except (DecodeError, json_format.ParseError, UnicodeDecodeError, OSError) as error:
        raise RecordingError(f"{path}: not a podresources answer: {error}") from error
    return message


class RecordedSource:
    """A folder in the place of a kubelet's socket (`fake:///FOLDER`), read at every call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def pods(self) -> tuple[ListedPod, ...]:
        """Return the recorded answer to List. Raises RecordingError."""
        return pods(self._folder)

    async def allocatable(self) -> Allocatable:
        """Return the recorded answer to GetAllocatableResources. Raises RecordingError."""
        return allocatable(self._folder)

    async def close(self) -> None:
        """Do nothing: no connection is open."""
