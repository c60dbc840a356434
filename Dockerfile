# Ashlar in an image from scratch: docker build -t ashlar . && docker run --rm -v "$PWD:/work" ashlar model info MODEL
FROM debian:bookworm-slim AS build
COPY . /src
# What the program is linked with, and what it loads: libfabric where there are several machines, libcurl for S3.
RUN apt-get update && apt-get install -y --no-install-recommends \
        libjansson4 libyaml-0-2 libpcre2-8-0 libxxhash0 libmicrohttpd12 libutf8proc2 zlib1g libseccomp2 \
        libzstd1 libsnappy1v5 liblz4-1 libbrotli1 libedit2 libfabric1 libcurl4 libssl3 libexpat1 liburing2 \
        ca-certificates binutils \
    && rm -rf /var/lib/apt/lists/*
RUN /src/scripts/deps.sh build \
    && cmake -S /src -B /build -G Ninja && cmake --build /build --target installable \
    && /src/deploy/image/rootfs.sh /build/ashlar /image

FROM scratch
COPY --from=build /image /
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt CURL_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
WORKDIR /work
ENTRYPOINT ["/usr/bin/ashlar"]
