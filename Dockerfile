# The manager, from wheels only and without a network:
#   python3.12 -m pip wheel --wheel-dir wheels '.[fast]'
#   docker build --tag kueuelib:0.1.0 .
# With wheels of another Python: docker build --build-arg PYTHON=3.13 ...
# On a machine of another kind than the image: pip download --platform ... --only-binary :all:
ARG PYTHON=3.12
FROM python:${PYTHON}-slim
RUN --mount=type=bind,source=wheels,target=/wheels \
    pip install --no-index --find-links /wheels --only-binary :all: --no-cache-dir --compile \
    'kueuelib[fast]'
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["kueuelib"]
