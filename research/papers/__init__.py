"""Experiments of the five papers, one file per paper: `launch.py papers` lists them and runs the ones that can run here."""

from __future__ import annotations

from engine.errors import NotSupported
from research.papers import adt_tree, cross_regression, mulo_sd, sjdpp, xspecmesh
from research.papers.declaration import Experiment, Paper

PAPERS: dict[str, Paper] = {each.PAPER.name: each.PAPER for each in (sjdpp, adt_tree, mulo_sd, xspecmesh, cross_regression)}


def paper_of(name: str) -> Paper:
    """Returns a paper; raises NotSupported for an unknown name."""
    if name not in PAPERS:
        raise NotSupported(f"There is no paper '{name}'. Choose one of: {', '.join(PAPERS)}.")
    return PAPERS[name]


def experiment_of(paper: Paper, key: str) -> Experiment:
    """Returns an experiment that runs here; raises NotSupported, with the reason, if it is unknown or does not run."""
    experiment = paper.find(key)
    if experiment is None:
        note = f"It shows {paper.illustrations[key]}, and measures nothing. " if key in paper.illustrations else ""
        known = ", ".join(each.key for each in paper.experiments if each.runs)
        raise NotSupported(f"'{key}' is not an experiment of {paper.name}. {note}These run: {known}.")
    if experiment.runs is None:
        raise NotSupported(f"{paper.name} {key} does not run here: {experiment.reason}. {experiment.nearest}".strip())
    return experiment


def runnable(paper: Paper | None = None) -> list[tuple[Paper, Experiment]]:
    """Returns the experiments that run here, of all papers or of one, fewest runs per input first."""
    papers = [*PAPERS.values()] if paper is None else [paper]
    pairs = [(paper_of_pair, each) for paper_of_pair in papers for each in paper_of_pair.experiments if each.runs]
    return sorted(pairs, key=lambda pair: pair[1].generations / (pair[1].runs.count if pair[1].runs else 1))
