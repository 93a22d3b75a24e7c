"""The state of a run that a visitor's screen shows."""
