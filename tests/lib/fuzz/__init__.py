"""Fuzzing: whatever comes in, nothing but our own errors comes out. `python -m fuzz --help`."""
