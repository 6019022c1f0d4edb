"""The HTTP surface: one module per subject, each with its `router`."""
