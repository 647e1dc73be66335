"""Makes `player/generated` from `player/player.proto` again (`python -m tests.player.generate`).

Needs grpcio-tools, which is a development dependency. A test compares with what is checked in.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NAMES = ("player_pb2.py", "player_pb2.pyi")


def generate(into: Path) -> None:
    """Write `player/generated/player_pb2.*` below a folder. Raises RuntimeError where protoc refuses."""
    from grpc_tools import protoc  # type: ignore[import-untyped]

    # The path on the left is what the generated module believes to be its own.
    folders = [f"-Iplayer/generated={ROOT / 'player'}", f"--python_out={into}", f"--pyi_out={into}"]
    status = protoc.main(["protoc", *folders, str(ROOT / "player" / "player.proto")])
    if status != 0:
        raise RuntimeError(f"protoc ended with {status}")


def main() -> int:
    generate(ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
