"""The mute state of a connection whose client is throttled, as Kafka's ChannelMuteState.

Owns: that it dispatches and reads nothing meanwhile, and its end where its client has closed it. Does not:
know for how long (`throttles.py`).
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from lockstep.protocol.frame_reader import FrameReader

SMALLEST_PRODUCE_BYTES: Final = 64
"""Fewer unread bytes of a client that has closed are no request with records: the end of a TLS session."""


class ChannelMute:
    """The part of a connection that `Throttles` uses; `Connection` has the attributes."""

    __slots__ = ("_is_muted", "_pauses")

    _closing: bool
    _queued_frames: deque[memoryview] | None
    _reader: FrameReader
    _transport: Any

    def __init__(self) -> None:
        self._pauses = 0
        """The reasons to dispatch nothing for now: a time slice is used up, the connection is muted."""
        self._is_muted = False

    def mute(self) -> None:
        """Dispatch and read nothing more before `unmute`, which the caller calls."""
        self._is_muted = True
        self._pauses += 1
        self._stop_dispatch()

    def unmute(self) -> None:
        """Dispatch and read again."""
        self._is_muted = False
        self._end_pause()

    @property
    def is_closing(self) -> bool:
        """True once nothing more is dispatched."""
        return self._closing

    def fileno(self) -> int:
        """The descriptor of its socket; -1 for none."""
        connected_socket = self._transport.get_extra_info("socket")
        return -1 if connected_socket is None else int(connected_socket.fileno())

    def on_disconnect_detected(self, unread_bytes: int | None) -> None:
        """The client has closed a muted connection, with so many bytes unread (None: by a reset): close it,
        unless requests are left to serve, as those without acknowledgement must not be lost."""
        if unread_bytes is None:
            self.abort()
            return
        unread_bytes += self._transport.get_extra_info("undecrypted_bytes") or 0
        is_request = unread_bytes >= SMALLEST_PRODUCE_BYTES or (unread_bytes and self._reader.buffered_bytes)
        if not self._queued_frames and not is_request:
            self.close()

    def close(self) -> None:
        """Close it once its client has taken the output."""
        raise NotImplementedError

    def abort(self) -> None:
        """Close it now."""
        raise NotImplementedError

    def _stop_dispatch(self) -> None:
        raise NotImplementedError

    def _end_pause(self) -> None:
        raise NotImplementedError
