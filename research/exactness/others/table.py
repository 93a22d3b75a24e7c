"""The table of `verify --others`: a row for each rule and for each path, measured, skipped with a reason, or with what it raised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path as Folder
from typing import Any

from research.exactness.comparison import Comparison
from research.exactness.others.generating import DRAWS, PATHS, draw_sequences
from research.exactness.others.rules import RULES, OtherRule, toy_target
from research.exactness.others.sources import Missing, find
from research.exactness.rule_check import check_sampler

DRAFTER_SEED = 3


@dataclass(frozen=True)
class Row:
    """A row of the table. comparison : None if it was skipped or raised; note : the reason, or the comparison's sentence"""

    project: str
    version: str
    path: str
    drafts: str
    claim: str
    verdict: str
    note: str
    comparison: Comparison | None = None
    reproduction: str = ""

    @property
    def is_false(self) -> bool:
        """True if the claim "exact" does not hold."""
        return self.claim == "exact" and self.verdict in ("not exact", "raises")

    def as_json(self) -> dict[str, Any]:
        """The row as a dictionary."""
        return asdict(self)

    def text(self) -> str:
        """The row as a line of a Markdown table."""
        numbers = ["-"] * 4
        if self.comparison is not None:
            each = self.comparison
            numbers = [f"{each.draws:,}", f"{each.chi_square:,.1f}", str(each.freedom), f"{each.distance:.4f}"]
        named = f"{self.path}: {self.drafts}"
        return f"| {self.project} {self.version} | {named} | {self.claim} | {' | '.join(numbers)} | {self.verdict} | {self.note} |"


HEADER = """| project | path: drafts | claimed | draws | chi-square | degrees of freedom | total variation | verdict | what was measured |
|---|---|---|--:|--:|--:|--:|---|---|"""


def measure_all(folder: Folder | None, most: int) -> Iterator[Row]:
    """Yields every row. folder : of wheels, or None: what is installed; most : draws of a row at most"""
    for rule in RULES:
        yield _measure(rule, folder, most)
    try:
        version = find("transformers", None).version
    except Missing as reason:
        yield Row("transformers", "", "generate", "", "exact", "skipped", f"{reason}.")
        return
    for path in PATHS:
        try:
            comparison = draw_sequences(path, min(most, DRAWS))
        except (ImportError, ValueError) as reason:  # the installed version has no such path, or refuses it
            yield Row("transformers", version, path.path, path.drafts, path.claim, "skipped", f"{reason}")
        else:
            yield Row("transformers", version, path.path, path.drafts, path.claim, comparison.verdict, comparison.sentence, comparison)


def _measure(rule: OtherRule, folder: Folder | None, most: int) -> Row:
    version, named = "", (rule.path, rule.drafts, rule.claim)
    try:
        source = find(rule.project, folder)
        version, target = source.version, toy_target(**rule.toy)
        comparison = check_sampler(rule.sampler(source, target, toy_target(DRAFTER_SEED)), target, min(most, rule.draws))
    except Missing as reason:
        return Row(rule.project, version, *named, "skipped", f"{reason}.")
    except RuntimeError as error:  # what PyTorch raises inside the rule
        return Row(rule.project, version, *named, "raises", f"{type(error).__name__}: {error}", None, rule.reproduction)
    return Row(rule.project, version, *named, comparison.verdict, comparison.sentence, comparison, rule.reproduction)
