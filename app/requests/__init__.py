"""Requests, checked once for every client: the tabs, the images API, the endpoints, batch and the commands."""
