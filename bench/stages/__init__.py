"""What the stages of Qwen3-Omni do per second, beside `generate()` of `transformers` on the same machine."""
