"""Recipes that train what the project ships: one file each, one line in RECIPES each, all of them resumable at any second."""

RECIPES: dict[str, str] = {  # name on the command line: module with `main(options) -> None`
    "pictogram-tokenizer": "engine.train.pictogram_tokenizer",
    "pictogram": "engine.train.pictogram",
    "lowpoly": "engine.train.lowpoly",
    "mesh-heads": "engine.train.mesh_heads",
}
