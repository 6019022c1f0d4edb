"""What can go wrong on the way up, told to the operator."""

from __future__ import annotations


class LaunchError(Exception):
    """Something that the operator has to change; the message says what, in words meant for a terminal."""
