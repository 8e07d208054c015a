# The workers "gpu" and "try" with the trainer, its sandbox and torch. For the CPU build of torch pass the index address that PyTorch's
# own install page shows: --build-arg SPADEWORK_TORCH_INDEX=...
# Not built on the machine it was written on, which has no container engine: please report what needs mending.
FROM python:3.12-slim
ARG SPADEWORK_TORCH_INDEX=
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 SPADEWORK_HOME=/data OMP_WAIT_POLICY=passive
WORKDIR /app
COPY requirements/base.txt requirements/torch.txt requirements/
RUN pip install --no-cache-dir ${SPADEWORK_TORCH_INDEX:+--extra-index-url "$SPADEWORK_TORCH_INDEX"} \
    --requirement requirements/base.txt --requirement requirements/torch.txt
COPY . .
RUN useradd --create-home --uid 1000 spadework && mkdir --parents /data/runs /data/secrets && chown --recursive spadework /data
USER spadework
VOLUME /data
CMD ["python", "-m", "webapp.stack", "up", "--only", "gpu", "--only", "try"]
