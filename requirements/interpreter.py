"""How this Python was built, in a line; with `--preferred`, exit 0 where `make setup` should take it.

A build guided by a profile serves a request with less CPU (decision 59). Uses nothing but the
standard library: `make_venv.sh` runs it with interpreters that have nothing else.
"""

from __future__ import annotations

import os
import platform
import sys
import sysconfig

PROFILE_GUIDED = "profile-guided"
PLAIN = "not profile-guided"


def build() -> str:
    """`PROFILE_GUIDED` or `PLAIN`.

    CPython's own build leaves its options in `sysconfig`. Debian's and Ubuntu's packages are built with a
    profile by rules of their own, of which `sysconfig` keeps nothing: their Python is known by its prefix.
    """
    variables = sysconfig.get_config_vars()
    options = " ".join(str(variables.get(name)) for name in ("CONFIG_ARGS", "PY_CORE_CFLAGS", "CFLAGS"))
    recorded = "--enable-optimizations" in options or "-fprofile-use" in options
    packaged = sys.base_prefix == "/usr" and os.path.exists("/etc/debian_version")
    return PROFILE_GUIDED if recorded or packaged else PLAIN


def preferred() -> bool:
    """Whether it is profile-guided and has the headers without which the C extension cannot be built."""
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    return build() == PROFILE_GUIDED and os.path.exists(header)


if __name__ == "__main__":
    if "--preferred" in sys.argv[1:]:
        sys.exit(not preferred())
    print(f"{platform.python_version()}, {build()}")
