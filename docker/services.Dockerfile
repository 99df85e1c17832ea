# tallyweir/services: the command line and the services that need no Spark.
# Built by `./tallyweir images`, which fetches the wheels first; the build itself has
# no network. In a place without a registry PYTHON_BASE is a stand-in (docker/bases).
ARG PYTHON_BASE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

FROM ${PYTHON_BASE} AS builder
COPY .tallyweir/images/services /wheels
COPY requirements-services.lock /
RUN python3 -m venv /opt/tallyweir/venv \
 && /opt/tallyweir/venv/bin/pip install --no-cache-dir --no-index --find-links /wheels \
        --require-hashes -r /requirements-services.lock
COPY .tallyweir/images/package /package
RUN /opt/tallyweir/venv/bin/pip install --no-cache-dir --no-index --no-deps \
        --target /opt/tallyweir/app /package/*.whl \
 && /opt/tallyweir/venv/bin/pip uninstall --yes pip setuptools
COPY .tallyweir/images/datasets /opt/tallyweir/app/tallyweir/services/local/datasets

FROM ${PYTHON_BASE}
# The environment by itself: it changes with a lock only, the code with every commit.
COPY --from=builder /opt/tallyweir/venv /opt/tallyweir/venv
COPY --from=builder /opt/tallyweir/app /opt/tallyweir/app
COPY docker/entrypoints/tallyweir /usr/local/bin/tallyweir
# Nothing that installs is left; everything runs from the environment above.
RUN rm -rf /usr/local/lib/python3*/site-packages/pip* /usr/local/bin/pip* \
 && echo 'tallyweir:x:65532:' >> /etc/group \
 && echo 'tallyweir:x:65532:65532:Tallyweir:/tmp:/usr/sbin/nologin' >> /etc/passwd
ENV PATH=/opt/tallyweir/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/opt/tallyweir/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    TALLYWEIR_STATE_DIR=/tmp/tallyweir
ARG VERSION
ARG REVISION
ARG CREATED
LABEL org.opencontainers.image.title="Tallyweir services" \
      org.opencontainers.image.description="Ingest, relay, resolver and the command line of Tallyweir" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="docker.io/library/python:3.11-slim-bookworm"
WORKDIR /tmp
USER 65532:65532
ENTRYPOINT ["tallyweir"]
CMD ["--help"]
