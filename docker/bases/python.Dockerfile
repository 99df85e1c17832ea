# Stands in for python:3.11-slim-bookworm: Debian's own 3.11 where that image has its.
FROM tallyweir-stand-in/debian:bookworm
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv libexpat1 \
 && rm -rf /var/lib/apt/lists/* \
 && ln -s /usr/bin/python3 /usr/local/bin/python3 \
 && ln -s /usr/bin/python3 /usr/local/bin/python
CMD ["python3"]
