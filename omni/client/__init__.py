"""Small clients for trying a server out: `python -m omni.client --help`."""
