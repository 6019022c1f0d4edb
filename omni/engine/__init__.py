"""Serving autoregressive models, whichever: keys and values in blocks, batched forwards, sampling, text from tokens.

Works on any device and dtype, on the decoders of `transformers` as they are.
"""
