"""The view of the user, and how each key changes it. Pure: a view and a key in, a view out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

Page = Literal["nodes", "queue", "pods", "node", "pod", "help"]
LISTS: tuple[Page, ...] = ("nodes", "queue", "pods")
SORTS = ("worst", "name", "pods")
PAGE_ROWS = 10
HELP = (
    ("up, down, page up, page down, home, end", "move; the mouse wheel does, too"),
    ("enter", "open the page of the node, or of the pod"),
    ("tab", "next list: nodes, queue, pods"),
    ("/", "find: a node, or a pod and its node, by a part of the name; esc ends it"),
    ("r, R", "next resource, previous resource"),
    ("s", "sort nodes: worst first, by name, by number of pods"),
    ("space, p", "pause, resume"),
    ("esc, backspace", "back"),
    ("?, h", "show and hide this help"),
    ("q", "close the picture; in topolog up it asks first, because that stops the cluster"),
)


class View(msgspec.Struct, frozen=True):
    """`cursor` is the selected row, `subject` the node or pod of a page. While `typing`, keys go
    into `search`. `owns_cluster`: closing the picture stops the cluster, so `q` asks first.
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
    owns_cluster: bool = False
    asking: bool = False


def pressed(view: View, key: str, selected: str, rows: int) -> View:
    """Return the view after a key. `selected` is the name of the selected row, "" for none; `rows`
    is the number of rows.
    """
    if view.asking:
        return msgspec.structs.replace(view, asking=False, over=key in ("y", "Y"))
    if view.typing:
        return _typed(view, key)
    cursor = _moved(view, key, rows)
    if cursor is not None:
        return msgspec.structs.replace(view, cursor=cursor)
    command: Callable[[View, str], View] = _COMMANDS.get(key, _unknown)
    return command(view, selected)


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


def _open(view: View, selected: str) -> View:
    if view.page not in LISTS or not selected:
        return view
    page: Page = "node" if view.page == "nodes" else "pod"
    return msgspec.structs.replace(view, page=page, subject=selected, back=view.page, cursor=0)


def _return(view: View, _selected: str) -> View:
    if view.page in LISTS:
        return msgspec.structs.replace(view, search="", cursor=0)
    return msgspec.structs.replace(view, page=view.back, subject="", cursor=0)


def _next_list(view: View, _selected: str) -> View:
    index = LISTS.index(view.page) + 1 if view.page in LISTS else 0
    page = LISTS[index % len(LISTS)]
    return msgspec.structs.replace(view, page=page, subject="", cursor=0)


def _toggle_help(view: View, selected: str) -> View:
    if view.page == "help":
        return _return(view, selected)
    back: Page = view.page if view.page in LISTS else view.back
    return msgspec.structs.replace(view, page="help", back=back, cursor=0)


def _quit(view: View, _selected: str) -> View:
    if view.owns_cluster:
        return msgspec.structs.replace(view, asking=True)
    return msgspec.structs.replace(view, over=True)


def _unknown(view: View, _selected: str) -> View:
    return view


_COMMANDS: dict[str, Callable[[View, str], View]] = {
    "q": _quit,
    "r": lambda view, _: msgspec.structs.replace(view, resource=view.resource + 1),
    "R": lambda view, _: msgspec.structs.replace(view, resource=view.resource - 1),
    "s": lambda view, _: msgspec.structs.replace(view, sort=(view.sort + 1) % len(SORTS), cursor=0),
    "p": lambda view, _: msgspec.structs.replace(view, paused=not view.paused),
    " ": lambda view, _: msgspec.structs.replace(view, paused=not view.paused),
    "/": lambda view, _: msgspec.structs.replace(view, typing=True, search="", cursor=0),
    "?": _toggle_help,
    "h": _toggle_help,
    "enter": _open,
    "tab": _next_list,
    "esc": _return,
    "backspace": _return,
}
