"""Runs Triton and the front door on one machine: finds the server, starts, probes, supervises and stops both.

`python -m omni.launch serve` is what `make serve` runs; `EmbeddedTriton` is the same Triton for tests.
"""
