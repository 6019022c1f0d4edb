"""What runs around a stage inside Triton."""
