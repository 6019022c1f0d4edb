"""Triton's own load tool against the ensembles; see README.md."""
