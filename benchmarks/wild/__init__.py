"""Data of strangers: tables of public packages through the command line, random problems through Python."""
