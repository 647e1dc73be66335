"""`python -m bench.page RESULT.json ...`: print docs/benchmarks.md; `make bench-page` writes it.

Named are results, at most one of a kind, directories of growth's steps and of the grid's rows, and the
history of `python -m bench micro` (.jsonl). Exit status: 0; 2 for what is no result.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import argument_types
from bench.page.document import draw, page, read


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the page for the results named on the command line, and draw its pictures."""
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT")
    parser.add_argument(
        "--pictures", type=argument_types.existing, metavar="DIRECTORY", help="draw the page's pictures there"
    )
    options = parser.parse_args(arguments)
    try:
        results = [read(path) for path in options.results]
        text = page(results, [path.name for path in options.results])
    except (OSError, ValueError) as error:
        parser.error(str(error))
    except (AttributeError, LookupError, TypeError) as error:
        parser.error(f"a result is not as its kind has it: {type(error).__name__}: {error}")
    print(text, end="")
    if options.pictures:
        draw(results, options.pictures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
