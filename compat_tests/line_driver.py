"""A client in another language, in a process of its own: one JSON object per line in, one per line out.

A question is `{"do": NAME, "settings": {...}, ...}`; an answer is `{"ok": ...}` or
`{"error": {"code": N, "class": ..., "text": ...}}`, where N is Kafka's error number and -1 stands for
anything else. Settings have the Java client's property names in every language; a driver reads what it knows.
Owns: the process and its pipes. Invariant: one question, one answer, in order.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compat_tests.clients.face import Refused
from compat_tests.waiting import readable

ANSWER_TIMEOUT_S = 120.0


class DriverFailed(RuntimeError):
    """The process ended, answered nothing in time, or met something that is not a broker's error.

    `causes`: class and message of each exception, outermost first, where the driver tells them.
    """

    def __init__(self, text: str, causes: Sequence[Sequence[str]] = ()) -> None:
        super().__init__(text)
        self.causes = [(kind, message) for kind, message in causes]


class LineDriver:
    """One driver process, started from `command`; close it at the end."""

    def __init__(
        self,
        command: Sequence[str],
        directory: Path | None = None,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self.answer_timeout_s = answer_timeout_s
        self._name = Path(command[0]).name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close())
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=directory,
            start_new_session=True,
        )
        self._pending = bytearray()
        self._owed = 0
        """Answers to come; more than one where a case that took too long left before its own."""

    def ask(self, what: str, settings: Mapping[str, str], **fields: Any) -> Any:
        """One question; its answer. Refused, DriverFailed."""
        question = {"do": what, "settings": dict(settings), **fields}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as broken:
            raise DriverFailed(f"{self._name} ended: {self._said()}") from broken
        self._owed += 1
        while self._owed:
            answer = json.loads(self._line())
            self._owed -= 1
        error = answer.get("error")
        if error is None:
            return answer["ok"]
        if error["code"] == -1:
            raise DriverFailed(f"{error['class']}: {error['text']}", error.get("causes", ()))
        raise Refused(error["code"], error["text"])

    def close(self) -> None:
        """End of input ends the driver; one that stays is killed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while (end := self._pending.find(b"\n")) < 0:
            if not readable([descriptor], self.answer_timeout_s):
                raise DriverFailed(f"no answer in {self.answer_timeout_s} s: {self._said()}")
            part = os.read(descriptor, 1 << 20)
            if not part:
                raise DriverFailed(f"{self._name} ended: {self._said()}")
            self._pending += part
        line = bytes(self._pending[:end])
        del self._pending[: end + 1]
        return line

    def printed_bytes(self) -> int:
        """How much the driver has printed on its error output until now."""
        return self._errors.seek(0, os.SEEK_END)

    def printed_since(self, position: int) -> str:
        """What it has printed there behind a position."""
        self._errors.seek(position)
        return self._errors.read().decode(errors="replace")

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-3000:]
