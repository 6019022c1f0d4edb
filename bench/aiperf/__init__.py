"""NVIDIA's load tool for chat APIs against ours; see ../perf_analyzer/README.md."""
