"""Tests that mirror lockstep/playing/."""
