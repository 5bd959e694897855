# syntax=docker/dockerfile:1
#
#   docker build -t ctx-tracer-collector .
#   docker run -p 4318:4318 -v ctx-tracer:/data -e CTX_COLLECTOR_TOKEN=... ctx-tracer-collector
#
#   docker build -t ctx-tracer-trainer --target trainer .
#   docker run --gpus all ctx-tracer-trainer ctx-tracer run -- python -m paddle.distributed.launch train.py

# What training runs on: any image with Python 3.10 or later and pip. Paddle's GPU packages bring the CUDA libraries.
ARG TRAINER_BASE=python:3.12-slim-bookworm

# --- the dashboard -------------------------------------------------------------------------------------------------
FROM node:22-bookworm-slim AS web
WORKDIR /src/dashboards/web
COPY dashboards/web/package.json dashboards/web/package-lock.json dashboards/web/.npmrc ./
RUN npm ci
COPY dashboards/web ./
# Vite writes to /src/server/ctx_collector/static.
RUN npm run build

# --- the wheel -----------------------------------------------------------------------------------------------------
FROM python:3.12-slim-bookworm AS wheel
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY dashboards/*.py dashboards/
COPY ctx_tracer ctx_tracer
COPY server server
COPY --from=web /src/server/ctx_collector/static server/ctx_collector/static
# The page is there already: the build hook has nothing to do.
RUN CTX_TRACER_SKIP_DASHBOARD=1 pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

# --- training: Paddle for GPUs, and the tracer without the collector -------------------------------------------------
FROM ${TRAINER_BASE} AS trainer
# Both empty where the base image has a Paddle of its own.
ARG PADDLE_PACKAGE="paddlepaddle-gpu==3.3.1"
# Paddle's own index for a version of CUDA; the newer GPU packages are there only.
ARG PADDLE_INDEX="https://www.paddlepaddle.org.cn/packages/stable/cu126/"
COPY --from=wheel /wheels /wheels
COPY requirements/paddle-*.txt /tmp/requirements/
# Slim images lack the OpenMP library that Paddle loads.
# hadolint ignore=DL3008
RUN if command -v apt-get >/dev/null; then \
        apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*; \
    fi
# Paddle does not say which protobuf it works with, so the constraints of its version do. It imports setuptools.
# hadolint ignore=DL3013
RUN set -eu; \
    set -- "$(ls /wheels/ctx_tracer-*.whl)" 'setuptools>=65'; \
    if [ -n "${PADDLE_PACKAGE}" ]; then set -- "$@" "${PADDLE_PACKAGE}"; fi; \
    if [ -n "${PADDLE_INDEX}" ]; then set -- "$@" --extra-index-url "${PADDLE_INDEX}"; fi; \
    version=${PADDLE_PACKAGE##*==}; constraints="/tmp/requirements/paddle-${version%.*}.txt"; \
    if [ -f "$constraints" ]; then set -- "$@" -c "$constraints"; fi; \
    python3 -m pip install --no-cache-dir "$@"; \
    rm -r /wheels /tmp/requirements
# Where the ranks' records lie until the daemon has read them: inside the container, never on a network file system.
WORKDIR /workspace
CMD ["ctx-tracer", "--help"]

# --- the collector: no Paddle ----------------------------------------------------------------------------------------
FROM python:3.12-slim-bookworm AS collector
COPY requirements/collector.txt /tmp/requirements.txt
RUN pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt && rm /tmp/requirements.txt
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl \
    && rm -r /wheels \
    && useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin collector \
    && install -d -o collector -g collector /data
USER 10001:10001
# Reachable from outside the container, which the collector allows with a token only: CTX_COLLECTOR_TOKEN.
ENV CTX_COLLECTOR_HOST=0.0.0.0 \
    CTX_COLLECTOR_DATA_DIR=/data \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
VOLUME /data
EXPOSE 4318
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:4318/healthz', timeout=2)"]
ENTRYPOINT ["ctx-tracer"]
CMD ["serve"]
