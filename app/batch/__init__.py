"""Batches: a file or folder of inputs to a folder of results, each made once; on one machine or through Ray."""
