"""Tests of exactness on the toy: every claim must hold, and every mutant must break it."""
