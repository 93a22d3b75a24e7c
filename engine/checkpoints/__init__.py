"""Reads checkpoints of other projects without executing anything in them, and recognises their family of models."""
