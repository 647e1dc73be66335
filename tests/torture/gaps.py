"""How long nothing was acknowledged: the longest silence of the partitions a fault hit, fault by fault.

Owns: `Acknowledgements`, the times at which each partition's sends were acknowledged, and the search in
them. A silence counts from the fault's begin (or the last acknowledgement after it) to the next
acknowledgement, up to the next fault's begin. Pure: times are nanoseconds of the runs' own clock.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from tests.torture.history import History


class Acknowledgements:
    """Times of acknowledgements by partition, ascending."""

    def __init__(self, history: History) -> None:
        self._times: dict[str, list[int]] = {}
        for send in history.sends.values():
            if send.status == "ok":
                self._times.setdefault(send.partition, []).append(send.done_ns)
        for times in self._times.values():
            times.sort()

    def longest_silence_s(self, partitions: Iterable[str], begin_ns: int, end_ns: int) -> float:
        """The longest over these partitions between two moments; 0 when there are none of them."""
        return max((self._silence_ns(part, begin_ns, end_ns) for part in partitions), default=0) / 1e9

    def _silence_ns(self, part: str, begin_ns: int, end_ns: int) -> int:
        times = self._times.get(part, [])
        first, last = bisect.bisect_left(times, begin_ns), bisect.bisect_right(times, end_ns)
        longest, before = 0, begin_ns
        for at in [*times[first:last], end_ns]:
            longest = max(longest, at - before)
            before = at
        return longest
