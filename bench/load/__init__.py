"""A load client for all protocols: `python -m bench.load --help`."""
