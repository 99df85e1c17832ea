# Stands in for prom/prometheus:v3.5.0: the programs of Debian's package, without what it
# depends on for its pages, under that image's user and paths. Debian's version is older
# and takes the same configuration.
FROM tallyweir-stand-in/debian:bookworm
RUN cd /tmp \
 && apt-get update \
 && apt-get download prometheus \
 && dpkg-deb --fsys-tarfile prometheus_*.deb \
    | tar -C / -x ./usr/bin/prometheus ./usr/bin/promtool \
 && rm -rf prometheus_*.deb /var/lib/apt/lists/* /var/cache/apt/*.bin \
 && install -d -o nobody -g nogroup /prometheus
USER nobody
WORKDIR /prometheus
VOLUME /prometheus
ENTRYPOINT ["prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
