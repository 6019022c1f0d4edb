#!/bin/sh
# Triton under its launcher, with NVIDIA's Multi-Process Service before it when CUDA_MPS=1: the stages are processes of
# their own, and MPS lets their kernels run side by side on one GPU.
set -eu
if [ "${CUDA_MPS:-0}" = 1 ]; then
    export CUDA_MPS_PIPE_DIRECTORY="${CUDA_MPS_PIPE_DIRECTORY:-/tmp/nvidia-mps}"
    export CUDA_MPS_LOG_DIRECTORY="${CUDA_MPS_LOG_DIRECTORY:-/tmp/nvidia-mps-log}"
    mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
    nvidia-cuda-mps-control -d
fi
exec python -m omni.launch triton "$@"
