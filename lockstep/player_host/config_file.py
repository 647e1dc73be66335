"""A player's configuration from its file, whether the keys that it names can be used, and where a function
that it names is looked for."""

from __future__ import annotations

import sys
from pathlib import Path

from lockstep.failures import CommandFailed
from lockstep.player_host.config import ByFunction, PlayerConfig, PlayerConfigError, parse


def check_tls(config: PlayerConfig) -> None:
    """Raises PlayerConfigError where the files of TLS cannot be used."""
    if config.tls is None:
        return
    try:
        config.tls.channel_credentials()
    except OSError as error:
        problem = (error.strerror or "").lower()
        raise PlayerConfigError("tls", f"cannot read {error.filename}: {problem}") from error
    except ValueError as error:
        raise PlayerConfigError("tls", str(error)) from None


def read(file: str, bootstrap: str = PlayerConfig.bootstrap) -> PlayerConfig:
    """Raises CommandFailed: it cannot be read, or used. A routing function may stand beside the file.

    Args:
        bootstrap: the default for a file without one.
    """
    try:
        config = parse(Path(file).read_text(encoding="utf-8"), bootstrap)
    except PlayerConfigError as error:
        raise CommandFailed(f"{file}: {error}") from error
    except OSError as error:
        raise CommandFailed(f"cannot read {error.filename}: {(error.strerror or '').lower()}") from error
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{file} is not a text file in UTF-8: {error}") from error
    if isinstance(config.route, ByFunction):
        sys.path.insert(0, str(Path(file).resolve().parent))
    return config
