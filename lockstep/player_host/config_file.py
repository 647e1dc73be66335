"""A player's configuration from its file, whether the keys that it names can be used, and where a function
that it names is looked for."""

from __future__ import annotations

import sys
from pathlib import Path

from lockstep.failures import CommandFailed, WrongUsage
from lockstep.player_host.config import (
    ByFunction,
    PlayerConfig,
    PlayerConfigError,
    UnreadableConfigFile,
    parse,
)


def check_tls(config: PlayerConfig) -> None:
    """Raises PlayerConfigError where the files of TLS cannot be used."""
    if config.tls is None:
        return
    try:
        config.tls.channel_credentials()
    except OSError as error:
        problem = (error.strerror or "").lower()
        raise UnreadableConfigFile("tls", f"cannot read {error.filename}: {problem}") from error
    except ValueError as error:
        raise PlayerConfigError("tls", str(error)) from None


def command_error(file: str, error: PlayerConfigError) -> CommandFailed:
    """The error of a command for a configuration that cannot be used: only a file that cannot be read now
    may be there later."""
    return (CommandFailed if isinstance(error, UnreadableConfigFile) else WrongUsage)(f"{file}: {error}")


def read(file: str, bootstrap: str = PlayerConfig.bootstrap) -> PlayerConfig:
    """Raises WrongUsage: its content cannot be used; OSError. A routing function may stand beside the file.

    Args:
        bootstrap: the default for a file without one.
    """
    try:
        config = parse(Path(file).read_text(encoding="utf-8"), bootstrap)
    except PlayerConfigError as error:
        raise command_error(file, error) from error
    except UnicodeDecodeError as error:
        raise WrongUsage(f"{file} is not a text file in UTF-8: {error}") from error
    if isinstance(config.route, ByFunction):
        sys.path.insert(0, str(Path(file).resolve().parent))
    return config
