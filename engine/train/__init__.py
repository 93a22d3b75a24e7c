"""Recipes that train the shipped weights: each has one file and one line in RECIPES, and can be stopped and resumed at any time."""

RECIPES: dict[str, str] = {  # name on the command line: module with `main(options) -> None`
    "pictogram-tokenizer": "engine.train.pictogram_tokenizer",
    "pictogram": "engine.train.pictogram",
    "judge": "engine.train.judge",
    "upright": "engine.train.upright",
    "mesh-judge": "engine.train.mesh_judge",
    "mesh-fit": "engine.train.mesh_fit",
    "lowpoly": "engine.train.lowpoly",
    "mesh-heads": "engine.train.mesh_heads",
    "feature-draft": "engine.train.feature_draft",
    "predictive-stream": "engine.train.predictive_stream",
    "spatial-heads": "engine.train.spatial_heads",
    "resampler": "engine.train.resampler",
    "queue": "engine.train.queue",  # all of these, one after another
    "status": "engine.train.status",
    "keep": "engine.train.keep",
}
