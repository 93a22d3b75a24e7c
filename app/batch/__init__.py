"""Batches: turn a file or folder of inputs into a folder of results, each made once; on one machine or through Ray."""
