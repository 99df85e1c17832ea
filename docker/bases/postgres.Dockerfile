# Stands in for postgres:15-bookworm: Debian's server with that image's user, paths and
# the part of its entry point that compose.yaml uses.
FROM tallyweir-stand-in/debian:bookworm
RUN groupadd --gid 999 postgres \
 && useradd --uid 999 --gid 999 --home-dir /var/lib/postgresql --shell /bin/bash postgres \
 && apt-get update \
 && mkdir -p /etc/postgresql-common \
 && echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf \
 && apt-get install -y --no-install-recommends postgresql-15 \
 && rm -rf /var/lib/apt/lists/* \
 && install -d -o postgres -g postgres -m 1777 /var/lib/postgresql/data \
 && install -d -o postgres -g postgres -m 3777 /var/run/postgresql \
 && mkdir /docker-entrypoint-initdb.d
ENV PATH=/usr/lib/postgresql/15/bin:/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin \
    PGDATA=/var/lib/postgresql/data \
    LANG=C.UTF-8
COPY postgres-entrypoint /usr/local/bin/docker-entrypoint.sh
VOLUME /var/lib/postgresql/data
ENTRYPOINT ["docker-entrypoint.sh"]
STOPSIGNAL SIGINT
EXPOSE 5432
CMD ["postgres"]
