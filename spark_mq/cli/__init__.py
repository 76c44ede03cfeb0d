"""The command line: arguments in, one call, a report out."""
