"""Checkpoints of other projects: what a file holds, read without executing anything in it, and which family of models it is."""
