"""Recipes that train the shipped weights: each has one file and one line in RECIPES, and can be stopped and resumed at any time."""

RECIPES: dict[str, str] = {  # name on the command line: module with `main(options) -> None`
    "pictogram-tokenizer": "research.train.pictogram_tokenizer",
    "pictogram": "research.train.pictogram",
    "judge": "research.train.judge",
    "upright": "research.train.upright",
    "mesh-judge": "research.train.mesh_judge",
    "lowpoly": "research.train.lowpoly",
    "mesh-heads": "research.train.mesh_heads",
    "feature-draft": "research.train.feature_draft",
    "predictive-stream": "research.train.predictive_stream",
    "spatial-heads": "research.train.spatial_heads",
    "resampler": "research.train.resampler",
}
