"""The commands, one file each: `main(arguments)` reads them with a parser of its own and returns the exit code."""
