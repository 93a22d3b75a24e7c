"""Benchmarks: tables of speed, fidelity and quality."""
