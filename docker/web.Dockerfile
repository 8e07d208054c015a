# The web server and the "default" worker. CPU only, no torch.
# Not built on the machine it was written on, which has no container engine: please report what needs mending.
FROM python:3.12-slim
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 SPADEWORK_HOME=/data SPADEWORK_BIND=0.0.0.0
WORKDIR /app
COPY requirements/base.txt requirements/base.txt
RUN pip install --no-cache-dir --requirement requirements/base.txt
COPY . .
RUN useradd --create-home --uid 1000 spadework && mkdir --parents /data/runs /data/secrets && chown --recursive spadework /data
USER spadework
VOLUME /data
EXPOSE 8400
CMD ["python", "-m", "webapp.stack", "up", "--only", "web", "--only", "default"]
