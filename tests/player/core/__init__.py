"""Tests that mirror player/core/."""
