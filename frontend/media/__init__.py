"""Media policy: what a client may send, how large it may be, and whether it is what it claims to be.

Nothing is decoded here; the preprocess stage does that.
"""
