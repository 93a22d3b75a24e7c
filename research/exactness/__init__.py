"""The tests of exactness: claims of the methods and their mutants, and `check` for a rule of another project."""

from research.exactness.rule_check import check

__all__ = ["check"]
