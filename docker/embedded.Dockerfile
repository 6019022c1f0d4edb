# Everything in one container without a GPU and without NGC: the front door and the Triton of the nvidia-pytriton wheel.
#
#   docker build -f docker/embedded.Dockerfile -t omni-embedded .
#
# x86-64 only. PYTHON_DIGEST pins the base to one build, as `sha256:...`.
ARG PYTHON_IMAGE=python
ARG PYTHON_TAG=3.11.14-slim-bookworm
ARG PYTHON_DIGEST=

FROM ${PYTHON_IMAGE}:${PYTHON_TAG}${PYTHON_DIGEST:+@${PYTHON_DIGEST}}

ARG EXTRAS=frontend,embedded,tracing

ENV VIRTUAL_ENV=/opt/omni/venv \
    PATH=/opt/omni/venv/bin:$PATH \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

WORKDIR /opt/omni
RUN python3 -m venv /opt/omni/venv
COPY pyproject.toml README.md ./
COPY omni ./omni
COPY frontend ./frontend
COPY build/profiles ./build/profiles
COPY model_repository ./model_repository
RUN python -m pip install --editable ".[${EXTRAS}]" \
 && python -m pip install --no-deps --requirement omni/launch/triton.txt \
 && python -m compileall -q omni frontend

RUN useradd --system --uid 10001 --no-create-home --home-dir /tmp omni \
 && install -d -o omni -g omni /var/lib/omni
USER 10001

ENV OMNI_HOST=0.0.0.0 \
    OMNI_PORT=8000 \
    OMNI_PROFILE=dummy \
    OMNI_HOME=/var/lib/omni
VOLUME /var/lib/omni
EXPOSE 8000 8002
HEALTHCHECK --interval=10s --timeout=5s --start-period=5m --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "-m", "omni.launch", "serve"]
