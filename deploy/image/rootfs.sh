#!/usr/bin/env bash
# The root file system of the image, from scratch: the program, the libraries that it is linked with and loads, certificates, and nothing else:
# no shell, no package manager.   usage: rootfs.sh PROGRAM FOLDER [IMAGE.tar]
# With IMAGE.tar also an image that `docker load`, `podman load` and `ctr image import` read, without a daemon.
set -euo pipefail
program=$1 root=$2 image=${3:-}
mkdir -p "$root"/{usr/bin,usr/lib,etc/ssl/certs,tmp,dev/shm,proc,sys,var/lib/ashlar,work}
chmod 1777 "$root/tmp"
install -m 755 "$program" "$root/usr/bin/ashlar"
strip --strip-unneeded "$root/usr/bin/ashlar"

# Loaded when they are needed: libfabric between machines, libcurl for S3 and the Kubernetes API. Those of GPUs come with the driver.
known=$(ldconfig -p)
path_of() { awk -v name="$1" '$1 == name && !seen++ { print $NF }' <<< "$known"; }
loaded=()
for name in libfabric.so.1 libcurl.so.4; do
    path=$(path_of "$name")
    [ -z "$path" ] || loaded+=("$path")
done
libraries=$({
    printf '%s\n' "${loaded[@]}"
    ldd "$program" "${loaded[@]}" | awk '/=> \// { print $3 } /^\t\/.*ld-/ { print $1 }'
} | sort -u)
for path in $libraries; do
    case $path in
    */ld-linux-*) install -D -m 755 "$path" "$root$path" ;; # at the path that programs name
    *) install -m 644 "$path" "$root/usr/lib/$(basename "$path")" && strip --strip-unneeded "$root/usr/lib/$(basename "$path")" ;;
    esac
done
# Names of hosts; the C library loads these by itself.
for name in libnss_files.so.2 libnss_dns.so.2 libresolv.so.2; do
    path=$(path_of "$name")
    [ -z "$path" ] || install -m 644 "$path" "$root/usr/lib/"
done
printf '/usr/lib\n' > "$root/etc/ld.so.conf"
ldconfig -r "$root"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
printf 'root:x:0:0::/:/none\nashlar:x:65532:65532::/:/none\n' > "$root/etc/passwd"
printf 'root:x:0:\nashlar:x:65532:\n' > "$root/etc/group"
printf 'hosts: files dns\n' > "$root/etc/nsswitch.conf"
[ -n "$image" ] || exit 0

# An image: one layer, its description, a list of both. Times and owners are fixed, so the same program gives the same image.
pack=$(mktemp -d)
trap 'rm -rf "$pack"' EXIT
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$root" -cf "$pack/layer.tar" .
layer=$(sha256sum "$pack/layer.tar" | cut -d ' ' -f 1)
case $(uname -m) in aarch64) machine=arm64 ;; x86_64) machine=amd64 ;; *) machine=$(uname -m) ;; esac
cat > "$pack/config.json" << JSON
{"architecture": "$machine", "os": "linux", "config": {"Entrypoint": ["/usr/bin/ashlar"], "WorkingDir": "/work",
 "Env": ["PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "CURL_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$layer"]}}
JSON
echo '[{"Config": "config.json", "RepoTags": ["ashlar:latest"], "Layers": ["layer.tar"]}]' > "$pack/manifest.json"
tar --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$pack" -cf "$image" manifest.json config.json layer.tar
