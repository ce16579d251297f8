# An image that serves the runs of models/; a token is needed, as it listens to other machines:
#   docker build -t funcattn . && docker run -e FUNCATTN_TOKEN=... -p 8000:8000 funcattn
FROM python:3.11-slim
WORKDIR /funcattn
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src src
COPY models models
# The wheels of PyTorch for processors alone: those of the default index bring two gigabytes for GPUs.
# The versions are those of constraints.txt.
# hadolint ignore=DL3013
RUN PIP_CONSTRAINT=/funcattn/constraints.txt pip install --no-cache-dir \
        --extra-index-url https://download.pytorch.org/whl/cpu '.[serve,mesh]' \
    && useradd --create-home --uid 1000 funcattn
# By number, as some hosts look for a user that is not root before they know the names of the image.
USER 1000
WORKDIR /home/funcattn
ENV OMP_NUM_THREADS=1
EXPOSE 8000
HEALTHCHECK --interval=30s --start-period=60s CMD ["python", "-c", \
    "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=5)"]
STOPSIGNAL SIGTERM
CMD ["funcattn", "serve", "--host", "0.0.0.0"]
