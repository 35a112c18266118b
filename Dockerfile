# The two commands of the README in a container, and what an editor needs to open the tree in one.
#
#   docker build -t wse-sim .
#   docker run --rm wse-sim               make run: train the digits on two modelled wafers
#   docker run --rm wse-sim make test     the test suite
FROM python:3.13-slim AS tools
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc git libc6-dev make \
    && rm -rf /var/lib/apt/lists/*

FROM tools
WORKDIR /opt/wse-sim
COPY . .
RUN make build
CMD ["make", "run"]
