"""The commands, one file each: `main(arguments)` parses them with its own parser and returns the exit code."""
