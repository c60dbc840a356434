# Ashlar in a small image: docker build -t ashlar . && docker run --rm -v "$PWD:/work" ashlar model info MODEL
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
        build-essential cmake ninja-build pkg-config libjansson-dev libyaml-dev libpcre2-dev libxxhash-dev \
        libmicrohttpd-dev libutf8proc-dev libfabric-dev \
    && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN cmake -S /src -B /build -G Ninja && cmake --build /build --target installable \
    && DESTDIR=/image cmake --install /build --prefix /usr/local --strip

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
        libjansson4 libyaml-0-2 libpcre2-8-0 libxxhash0 libmicrohttpd12 libutf8proc2 libfabric1 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /image /
RUN ldconfig
WORKDIR /work
ENTRYPOINT ["ashlar"]
