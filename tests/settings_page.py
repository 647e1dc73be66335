"""docs/settings.md, made from the settings' own declarations: `python -m tests.settings_page` writes it.

Owns: the page's words and tables. Does not: know any setting; `test_settings_page.py` compares the committed
page with what this makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from lockstep.broker.settings.config import PROPERTIES
from lockstep.broker.settings.dynamic_config import CHANGEABLE
from lockstep.broker.settings.properties import Kind, Property
from lockstep.broker.settings.topic_config import TOPIC_PROPERTIES

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
OWN: Final = ("lockstep.", "log.flush")
HEAD: Final = """# Settings

Made by `python -m tests.settings_page` from the settings' declarations; a test holds it.
How to set them: [configuration.md](configuration.md). A dash means none. *Running*: may be changed while the
broker runs, with `lockstep configs alter broker NAME=VALUE`. Kafka's other names have no effect; a warning
says so.
"""


def page() -> str:
    """The whole page."""
    broker = [declared for _, declared in PROPERTIES.values()]
    own = [each for each in broker if is_own(each.name)]
    kafka = [each for each in broker if not is_own(each.name)]
    topics = [declared for _, declared in TOPIC_PROPERTIES.values()]
    parts = [
        HEAD,
        "## Settings of a broker that Kafka has\n",
        *table(kafka, CHANGEABLE),
        "\n## Settings of a broker that only Lockstep has\n",
        *table(own, CHANGEABLE),
        "\n## Settings of a topic\n",
        "`lockstep topics create NAME -c SETTING=VALUE`, `lockstep configs alter topic NAME SETTING=VALUE`.",
        "",
        *table(topics, None),
    ]
    return "\n".join(parts) + "\n"


def is_own(name: str) -> bool:
    """True for a setting that Kafka does not know."""
    return name.startswith(OWN[0]) or name == OWN[1]


def table(settings: Iterable[Property], changeable: frozenset[str] | None) -> Sequence[str]:
    """A Markdown table, sorted by name; without `changeable` all of them may be changed at any time."""
    columns = [
        "setting",
        "default",
        "unit",
        "values",
        *(["running"] if changeable is not None else []),
        "meaning",
    ]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for each in sorted(settings, key=lambda each: each.name):
        default = each.show(each.default)
        shown = f"`{default}`" if default not in (None, "") else "-"
        cells = [f"`{each.name}`", shown, each.unit_name or "-", values(each)]
        if changeable is not None:
            cells.append("yes" if each.name in changeable else "")
        cells.append(each.doc)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def values(declared: Property) -> str:
    """What a value may be."""
    if declared.choices:
        return ", ".join(f"`{choice}`" for choice in declared.choices)
    if declared.kind is Kind.BOOLEAN:
        return "`true`, `false`"
    kind = declared.kind.name.lower()
    bounds = [
        f"{word} {bound:,}" if isinstance(bound, int) else f"{word} {bound}"
        for word, bound in (("from", declared.minimum), ("to", declared.maximum))
        if bound is not None
    ]
    return " ".join([kind, *bounds])


if __name__ == "__main__":
    PAGE.write_text(page())
