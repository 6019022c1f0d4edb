"""What both sides agree on: the front door and the stages inside Triton import the same definitions.

Standard library and numpy only, no input or output, no clock.
"""
