"""Errors that a user can cause or fix. Each message says what happened and what to do. Any other exception is a bug."""


class ForetokenError(Exception):
    """The base of all errors with a message for the user; the command line exits with code 2."""


class BadPrompt(ForetokenError):
    """The prompt or its settings cannot be used."""


class BadKnob(ForetokenError):
    """A knob does not exist or its value is out of range."""


class NotSupported(ForetokenError):
    """The method, the backbone and the settings do not fit together."""


class MissingWeights(ForetokenError):
    """Weights are absent, damaged or belong to another model."""


class MissingFont(ForetokenError):
    """The emoji font that draws the training scenes is not installed."""


class BadOutput(ForetokenError):
    """A folder or file cannot be written."""


class BadFile(ForetokenError):
    """A file cannot be read, is damaged or contains nothing usable."""


class TooLittleMemory(ForetokenError):
    """A model needs more memory than the device has free."""


def first_line(error: Exception) -> str:
    """The first line of another library's message, as part of a sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:160]
