"""Reads clouds and meshes from files, transforms them to the model's frame, writes meshes, and measures and draws shapes."""
