# tallyweir/spark: a pipeline's driver, and the master and workers of a standalone
# cluster; all three need the same Spark, Python and code.
# Built by `./tallyweir images`, which fetches wheels and jars first; the build itself
# has no network. In a place without a registry both bases are stand-ins (docker/bases).
ARG PYTHON_BASE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
ARG JAVA_BASE=eclipse-temurin:17-jre@sha256:13cc28a6cc72a38ce1f00c906be3580c1a3e604b8984d694f369a96742abc93b

FROM ${JAVA_BASE} AS java

FROM ${PYTHON_BASE} AS builder
COPY .tallyweir/images/spark /wheels
COPY requirements-build.lock requirements-spark.lock /
RUN python3 -m venv /opt/tallyweir/venv \
 && pip="/opt/tallyweir/venv/bin/pip --no-cache-dir" \
 && install="$pip install --no-index --find-links /wheels --require-hashes" \
 && $install -r /requirements-build.lock \
 && $install --no-build-isolation --use-pep517 -r /requirements-spark.lock \
 && rm -rf /wheels
# Spark finds these without being told, on drivers and executors alike.
COPY .tallyweir/images/jars /opt/tallyweir/venv/lib/python3.11/site-packages/pyspark/jars/
COPY .tallyweir/images/package /package
RUN pip="/opt/tallyweir/venv/bin/pip --no-cache-dir" \
 && $pip install --no-index --no-deps --target /opt/tallyweir/app /package/*.whl \
 && $pip uninstall --yes wheel setuptools pip

FROM ${PYTHON_BASE}
COPY --from=java /opt/java/openjdk /opt/java/openjdk
# The environment by itself: it changes with a lock only, the code with every commit.
COPY --from=builder /opt/tallyweir/venv /opt/tallyweir/venv
COPY --from=builder /opt/tallyweir/app /opt/tallyweir/app
RUN rm -rf /usr/local/lib/python3*/site-packages/pip* /usr/local/bin/pip* \
 && echo 'tallyweir:x:65532:' >> /etc/group \
 && echo 'tallyweir:x:65532:65532:Tallyweir:/tmp:/usr/sbin/nologin' >> /etc/passwd
ENV JAVA_HOME=/opt/java/openjdk \
    SPARK_HOME=/opt/tallyweir/venv/lib/python3.11/site-packages/pyspark \
    PATH=/opt/tallyweir/venv/bin:/opt/java/openjdk/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/opt/tallyweir/app \
    PYSPARK_PYTHON=/opt/tallyweir/venv/bin/python \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    TALLYWEIR_STATE_DIR=/tmp/tallyweir \
    TALLYWEIR_CLASS_ARCHIVE=/opt/tallyweir/classes.jsa
# The JVM's classes as it has loaded them: drivers start seconds faster. Without a network
# this host's name stands for no address, so Spark is told one.
RUN SPARK_LOCAL_IP=127.0.0.1 python -P -m tallyweir.spark_jobs.engine.class_archive "$TALLYWEIR_CLASS_ARCHIVE" \
 && rm -rf /tmp/* && chmod 0444 "$TALLYWEIR_CLASS_ARCHIVE"
ARG VERSION
ARG REVISION
ARG CREATED
LABEL org.opencontainers.image.title="Tallyweir on Spark" \
      org.opencontainers.image.description="Drivers of Tallyweir pipelines, and the Spark cluster that they run on" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="docker.io/library/python:3.11-slim-bookworm"
WORKDIR /tmp
USER 65532:65532
ENTRYPOINT []
CMD ["python", "-P", "-m", "tallyweir.spark_jobs", "--help"]
