"""Tests that mirror player/playing/."""
