"""The code2wav stage as a Triton model."""

from omni.runtime.host import triton_model

TritonPythonModel = triton_model("code2wav")
