"""Display state of runs."""
