"""Stages without any model: what they say and sound like follows from what they received, and can be checked.

preprocess decodes for real; the thinker describes what it received, part by part; the talker and code2wav turn the
text into tones that carry its bytes, so that a listener can prove that nothing was lost, repeated or moved.
"""
