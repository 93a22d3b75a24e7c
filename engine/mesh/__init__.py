"""Shapes in and out: read a cloud or a mesh from a file, bring it into the model's frame, write a mesh back, measure and draw it."""
