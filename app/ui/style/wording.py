"""The page's words for what the engine names: knobs, their choices, and presets. What has none here keeps the engine's name.

The engine's name stands behind the word, in a menu in brackets and in the explanation of a knob: papers and the command line use it.
"""

from __future__ import annotations

from engine.core import Knob

KNOBS = {
    "init": "First guesses",
    "refresh": "Guesses not reached yet",
    "verify": "Checked for",
    "relax": "Tolerance",
    "reuse_ratio": "Keep a guess above",
    "added_mass": "Borrowed probability",
    "multiplied_mass": "Borrowed, times its own",
    "neighbour_share": "How many codes are similar",
    "distance": "Similarity of codes",
    "candidates": "Guesses a place",
    "half_width": "Neighbours on either side",
    "code_distance": "Farthest similar code",
    "accept": "Accept a guess",
    "accept_probability": "Accept above",
    "accept_top": "Accept among the best",
    "judge": "Probabilities of the rule",
    "drafts": "Guesses of the heads",
    "drafted": "Copied tokens",
    "matched": "Longest match",
    "children": "Branches of the tree",
    "controller": "Shape of the tree",
    "tree_init": "The next tree begins as",
    "least_mass": "Keep a draft above",
    "stale_kv": "Reuse the cache",
    "horizon": "Tokens ahead",
    "energy_tolerance": "Tolerated shortfall",
    "energy_smoothing": "Memory of the rule",
    "rule": "Rule",
    "adherence": "Keep to the points",
}
CHOICES = {
    "match seed": "the same result",
    "residual": "the same chances",
    "sample left": "drawn as on the left",
    "sample above": "drawn as above",
    "repeat left": "copied from the left",
    "repeat above": "copied from above",
    "up-sampled": "from a small picture",
    "redraw": "drawn anew",
    "reuse published": "the paper's rule",
    "reuse mixture": "kept fairly",
    "coupled maximal": "kept if possible",
    "coupled gumbel": "same luck again",
    "coupled": "few changes",
    "initialise": "like empty places",
    "carry": "kept",
    "additive": "by an amount",
    "multiplicative": "by a factor",
    "threshold": "likely enough",
    "top k": "among the best",
    "typical": "unsurprising",
    "sampled": "drawn",
    "deterministic": "the likeliest",
    "throughput": "fastest here",
    "adjacent": "the paper's",
    "flock": "mean of the trees nearby",
    "consistent": "exact at 0",
    "paper": "as printed",
}
FOREMOST = ("window", "depth", "nodes", "horizon")  # the number that sums up a method best; the first that it has
PRESETS = {
    "lantern": "LANTERN",
    "lantern_static": "LANTERN++",
    "adt_tree_lantern": "ADT-Tree with LANTERN",
    "mulo_jacobi": "MuLo-SD with SJD++",
}


def label(knob: Knob) -> str:
    """The name of a knob in words."""
    return KNOBS.get(knob.name) or knob.name.replace("_", " ").capitalize()


def choice(name: str) -> str:
    """A choice of a menu: words first, then the engine's name: "same luck again (coupled gumbel)"."""
    return f"{CHOICES[name]} ({name})" if name in CHOICES else name


def explanation(knob: Knob) -> str:
    """What a knob does, with its name on the command line where the page's label is another one."""
    return f"{knob.help} On the command line: {knob.name}." if knob.help and knob.name in KNOBS else knob.help
