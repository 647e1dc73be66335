"""Tests that mirror player/routing/."""
