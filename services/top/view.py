"""What the user is looking at, and what each key changes. Pure: a view and a key in, a view out.
Must not know terminals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

Page = Literal["nodes", "queue", "node", "pod", "help"]
SORTS = ("worst", "name", "pods")
PAGE_ROWS = 10
HELP = (
    ("up, down, page up, page down, home, end", "move"),
    ("enter", "the page of the node, or of the pod"),
    ("tab", "from the nodes to the queue and back"),
    ("r, R", "the next resource, the one before"),
    ("s", "sort: worst first, by name, by number of pods"),
    ("/", "search a node or a pod; esc ends the search"),
    ("space, p", "pause and go on"),
    ("esc, backspace", "back"),
    ("q, ctrl-c", "end"),
)


class View(msgspec.Struct, frozen=True):
    """`cursor` is the row under it, `subject` the node or pod of a page, `typing` whether keys go
    into `search`.
    """

    page: Page = "nodes"
    resource: int = 0
    sort: int = 0
    cursor: int = 0
    search: str = ""
    typing: bool = False
    paused: bool = False
    subject: str = ""
    back: Page = "nodes"
    over: bool = False


def pressed(view: View, key: str, under: str, rows: int) -> View:
    """The view after a key. `under` is the name under the cursor ("" for none), `rows` how many
    there are.
    """
    if view.typing:
        return _typed(view, key)
    moved = _moved(view, key, rows)
    if moved is not None:
        return msgspec.structs.replace(view, cursor=moved)
    command: Callable[[View, str], View] = _COMMANDS.get(key, _unknown)
    return command(view, under)


def _typed(view: View, key: str) -> View:
    change = msgspec.structs.replace
    if key == "esc":
        return change(view, typing=False, search="", cursor=0)
    if key in ("enter", "tab"):
        return change(view, typing=False)
    if key == "backspace":
        return change(view, search=view.search[:-1], cursor=0)
    if len(key) == 1 and key.isprintable():
        return change(view, search=(view.search + key)[:60], cursor=0)
    return view


def _moved(view: View, key: str, rows: int) -> int | None:
    last = max(0, rows - 1)
    steps = {
        "up": -1,
        "k": -1,
        "down": 1,
        "j": 1,
        "pageup": -PAGE_ROWS,
        "pagedown": PAGE_ROWS,
        "home": -rows,
        "end": rows,
    }
    return min(last, max(0, view.cursor + steps[key])) if key in steps else None


def _opened(view: View, under: str) -> View:
    if view.page not in ("nodes", "queue") or not under:
        return view
    page: Page = "node" if view.page == "nodes" else "pod"
    return msgspec.structs.replace(view, page=page, subject=under, back=view.page, cursor=0)


def _returned(view: View, _under: str) -> View:
    if view.page in ("nodes", "queue"):
        return msgspec.structs.replace(view, search="", cursor=0)
    return msgspec.structs.replace(view, page=view.back, subject="", cursor=0)


def _other_list(view: View, _under: str) -> View:
    page: Page = "queue" if view.page == "nodes" else "nodes"
    return msgspec.structs.replace(view, page=page, subject="", cursor=0)


def _helped(view: View, _under: str) -> View:
    back: Page = view.page if view.page in ("nodes", "queue") else view.back
    return msgspec.structs.replace(view, page="help", back=back, cursor=0)


def _unknown(view: View, _under: str) -> View:
    return view


_COMMANDS = {
    "q": lambda view, _: msgspec.structs.replace(view, over=True),
    "r": lambda view, _: msgspec.structs.replace(view, resource=view.resource + 1),
    "R": lambda view, _: msgspec.structs.replace(view, resource=view.resource - 1),
    "s": lambda view, _: msgspec.structs.replace(view, sort=(view.sort + 1) % len(SORTS), cursor=0),
    "p": lambda view, _: msgspec.structs.replace(view, paused=not view.paused),
    " ": lambda view, _: msgspec.structs.replace(view, paused=not view.paused),
    "/": lambda view, _: msgspec.structs.replace(view, typing=True, search="", cursor=0),
    "?": _helped,
    "h": _helped,
    "enter": _opened,
    "tab": _other_list,
    "esc": _returned,
    "backspace": _returned,
}
