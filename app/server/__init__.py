"""Interfaces for other programs on the studio's port: OpenAI's images API under /v1, and /metrics for Prometheus."""
