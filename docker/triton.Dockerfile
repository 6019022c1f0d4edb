# Triton with the stages, without weights: mount those where the profile looks for them.
#
#   docker build -f docker/triton.Dockerfile -t omni-triton .
#
# TRITON_DIGEST pins the base to one build, as `sha256:...`; `docker buildx imagetools inspect IMAGE:TAG` tells it.
ARG TRITON_IMAGE=nvcr.io/nvidia/tritonserver
ARG TRITON_TAG=26.07-py3
ARG TRITON_DIGEST=

FROM ${TRITON_IMAGE}:${TRITON_TAG}${TRITON_DIGEST:+@${TRITON_DIGEST}}

# qwen brings torch and transformers; `frontend` has the gRPC client that asks Triton for life.
ARG EXTRAS=frontend,qwen

ENV VIRTUAL_ENV=/opt/omni/venv \
    PATH=/opt/omni/venv/bin:$PATH \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

WORKDIR /opt/omni
# The Python of the image is the one that Triton's stub was built for; its first place in PATH is how the stub finds it.
RUN python3 -m venv /opt/omni/venv
COPY pyproject.toml README.md ./
COPY omni ./omni
COPY frontend ./frontend
COPY build/profiles ./build/profiles
COPY model_repository ./model_repository
RUN python -m pip install --editable ".[${EXTRAS}]" \
 && python -m compileall -q omni frontend
COPY --chmod=755 docker/triton.sh ./triton.sh

RUN useradd --system --uid 10001 --no-create-home --home-dir /tmp omni \
 && install -d -o omni -g omni /var/lib/omni
USER 10001

ENV OMNI_TRITONSERVER=/opt/tritonserver/bin/tritonserver \
    OMNI_HOME=/var/lib/omni \
    OMNI_EXIT_TIMEOUT=30
VOLUME /var/lib/omni
EXPOSE 8001 8002 8003
# The launcher restarts Triton by itself; this says so to whoever watches the container.
HEALTHCHECK --interval=15s --timeout=12s --start-period=15m --retries=4 \
    CMD ["python", "-m", "omni.launch.probe", "--deadline", "10"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/omni/triton.sh"]
