"""`python -m bench.page RESULT.json ...`: print docs/benchmarks.md and the pages of docs/benchmarks/, one
after the other; with --directory write them and their pictures there. `make bench-page` does.

Named are results, at most one of a kind, directories of growth's steps and of the grid's rows, and the
history of `python -m bench micro` (.jsonl). Exit status: 0; 2 for what is no result.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import argument_types, kept
from bench.page.document import draw, pages, read


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the pages for the results named on the command line, or write them."""
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT")
    parser.add_argument(
        "--directory",
        type=argument_types.existing_directory,
        metavar="DIRECTORY",
        help="write the pages and their pictures there instead of printing them",
    )
    options = parser.parse_args(arguments)
    try:
        results = [read(path) for path in options.results]
        texts = pages(results, [path.name for path in options.results])
    except (OSError, ValueError) as error:
        parser.error(str(error))
    except (AttributeError, LookupError, TypeError) as error:
        parser.error(f"a result is not as its kind has it: {type(error).__name__}: {error}")
    if options.directory is None:
        print("\n".join(texts.values()), end="")
        return 0
    for name, text in texts.items():
        path = options.directory / name
        path.parent.mkdir(exist_ok=True)
        kept.write(path, text)
    draw(results, options.directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
