"""What a list shows beside a watch: whom no event told of, though the watch never broke.

A list or a watch that keeps an object back gives itself away by nothing; clients of Kubernetes wait
for the next list then, which may never come. So a list is made now and then while the watch goes
on, and compared only. What the watch told of meanwhile is the watch's: it may be newer than the
list. Must not know watches, the log or a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from services.scheduler.watch.kinds import identity
from shared.kube.port import Kind, Object

MOST_KEPT = 1000
"""Objects that one check keeps at most; the next one finds what is left."""


class Check:
    """One list beside the watch, page by page. `version` is the list's; `touched` is whom the watch
    told of since it began.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.version = ""
        self.present: set[str] = set()
        self.touched: set[str] = set()
        self._kept: list[Object] = []

    def compare(
        self, items: Sequence[Object], version: str, is_news: Callable[[Object], bool]
    ) -> None:
        """One page. What is news may only be on its way."""
        self.version = version
        for obj in items:
            self.present.add(name := identity(self.kind, obj))
            if name not in self.touched and len(self._kept) < MOST_KEPT and is_news(obj):
                self._kept.append(obj)

    def untold(self) -> list[Object]:
        """What was news on its page, and of what no event came since."""
        return [obj for obj in self._kept if identity(self.kind, obj) not in self.touched]
