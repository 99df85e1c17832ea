# Stands in for eclipse-temurin:17-jre: Debian's Java, without links, where that image
# has its.
FROM tallyweir-stand-in/debian:bookworm
RUN apt-get update \
 && mkdir -p /usr/share/man/man1 \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir -p /opt/java \
 && cp -rL /usr/lib/jvm/java-17-openjdk-amd64 /opt/java/openjdk \
 && rm -rf /usr/lib/jvm
ENV JAVA_HOME=/opt/java/openjdk
ENV PATH=/opt/java/openjdk/bin:/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin
