# The studio and the commands, for the processor. docs/batch.md says how it is used and what was not tried.
FROM python:3.11-slim

# Meshes are drawn off screen by EGL; passes on the processor are compiled on first use.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev libegl1 libgl1 libgl1-mesa-dri \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY pyproject.toml setup.py constraints.txt README.md LICENSE ./
COPY app app
COPY engine engine
COPY research research
COPY assets assets
COPY docs/bench docs/bench
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt . && rm -rf build

# Runs, measurements and compiled passes lie in /data. It belongs to a user without rights.
RUN useradd --create-home --uid 1000 foretoken && install -d -o foretoken -g foretoken /data
USER foretoken
WORKDIR /data
ENV FORETOKEN_HOME=/data XDG_CACHE_HOME=/data/cache PYTHONUNBUFFERED=1
VOLUME /data
EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:7860/metrics', timeout=4)"]
ENTRYPOINT ["foretoken"]
CMD ["studio", "--host", "0.0.0.0", "--port", "7860", "--no-browser"]
