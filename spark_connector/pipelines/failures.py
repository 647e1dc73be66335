"""The error of a pipeline for its user."""

from __future__ import annotations


class PipelineFailed(Exception):
    """A pipeline cannot continue: one line that names the fault and the remedy."""
