# Ashlar in a small image: docker build -t ashlar . && docker run --rm -v "$PWD:/work" ashlar model info MODEL
FROM debian:bookworm-slim AS build
COPY . /src
RUN /src/scripts/deps.sh build \
    && cmake -S /src -B /build -G Ninja && cmake --build /build --target installable \
    && DESTDIR=/image cmake --install /build --prefix /usr/local --strip

# What the program is linked with, and what it loads: libfabric where there are several machines, libcurl for S3.
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
        libjansson4 libyaml-0-2 libpcre2-8-0 libxxhash0 libmicrohttpd12 libutf8proc2 zlib1g \
        libzstd1 libsnappy1v5 liblz4-1 libbrotli1 libedit2 libfabric1 libcurl4 libssl3 libexpat1 liburing2 \
        ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /image /
RUN ldconfig
WORKDIR /work
ENTRYPOINT ["ashlar"]
