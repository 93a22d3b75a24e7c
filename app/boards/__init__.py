"""What one visitor's screen shows of a run."""
