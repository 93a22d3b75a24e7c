"""Many inputs to a folder of results: read, made once each, listed; on one machine or through Ray."""
