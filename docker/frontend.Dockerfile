# The front door: no torch, no weights, no GPU. Runs as nobody in particular, on a read-only root.
#
#   docker build -f docker/frontend.Dockerfile -t omni-frontend .
#
# PYTHON_DIGEST pins the base to one build, as `sha256:...`.
ARG PYTHON_IMAGE=python
ARG PYTHON_TAG=3.11.14-slim-bookworm
ARG PYTHON_DIGEST=

FROM ${PYTHON_IMAGE}:${PYTHON_TAG}${PYTHON_DIGEST:+@${PYTHON_DIGEST}}

ARG EXTRAS=frontend,tracing

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
RUN python -m pip install --editable ".[${EXTRAS}]" \
 && python -m compileall -q omni frontend

RUN useradd --system --uid 10001 --no-create-home --home-dir /tmp omni
USER 10001

ENV OMNI_HOST=0.0.0.0 \
    OMNI_PORT=8000
EXPOSE 8000
# Healthy is: a generation of text, image, sound and speech has passed through every stage.
HEALTHCHECK --interval=10s --timeout=5s --start-period=15m --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "-m", "frontend"]
