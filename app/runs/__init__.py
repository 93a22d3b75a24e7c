"""Finished runs: writing, reading and exporting them."""
