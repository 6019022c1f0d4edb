"""From encoded bytes to pixels and samples, for every implementation of preprocess.

What a client sends is never trusted: sizes are checked before memory is spent on them, only named formats are opened,
and whatever a decoder says about a broken file stays here.
"""
