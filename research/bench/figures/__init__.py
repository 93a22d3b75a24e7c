"""Figures and contact sheets of the benchmarks."""
