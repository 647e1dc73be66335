"""A `with` block around what is started and closed: processes, clusters, workers."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Lifecycle:
    """Entering starts it, and closes it where that fails; leaving closes it."""

    def start(self) -> object:
        """Start it, and wait until it serves."""
        raise NotImplementedError

    def close(self) -> None:
        """End it and remove what was made for it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
