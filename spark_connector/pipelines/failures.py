"""What a pipeline tells its user."""

from __future__ import annotations


class PipelineFailed(Exception):
    """It cannot go on: one line that names what is wrong, and what to do."""
