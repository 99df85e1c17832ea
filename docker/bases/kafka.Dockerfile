# Stands in for apache/kafka:4.4.0: the broker's jars under that image's paths, with the
# scripts that compose.yaml calls.
FROM eclipse-temurin:17-jre
RUN groupadd --gid 1000 appuser && useradd --uid 1000 --gid 1000 appuser \
 && mkdir -p /opt/kafka/bin /opt/kafka/logs /var/lib/kafka/data \
 && chown -R 1000:1000 /opt/kafka/logs /var/lib/kafka
COPY libs /opt/kafka/libs
COPY kafka-class /opt/kafka/bin/kafka-class
RUN cd /opt/kafka/bin && for script in kafka-server-start kafka-storage; \
    do ln -s kafka-class "$script.sh"; done
USER appuser
