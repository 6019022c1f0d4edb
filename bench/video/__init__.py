"""The streaming video protocol under load: what a frame costs, and what prefill saves."""
