#!/usr/bin/env python3
"""A proxy that breaks things on the way to an S3 server: s3_faults.py PORT_FILE UPSTREAM_PORT SEED RATE KINDS [CERTIFICATE KEY]
With a certificate it speaks TLS.
Each request, with probability RATE, meets one of KINDS (comma-separated): 503, 500, reset (before or after the server has
done its work), cut (half of the body, then the end), flip (a bit of the body), flip-large (of a body of 64 KiB at least), slow (the answer comes late, by S3_FAULTS_DELAY seconds), expired (the
keys, says the server), skewed (the clock), region (the bucket is in eu-west-1), babble (an answer that is not HTTP). The first request always does, so that a test
that sees no fault fails. Writes its port (S3_FAULTS_PORT, else any) to PORT_FILE, and one line per fault to standard output."""
import os
import random
import socket
import ssl
import struct
import sys
import threading
import time

port_file, upstream, seed, rate, kinds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5].split(",")
rng, lock, requests = random.Random(seed), threading.Lock(), 0


def choose():
    global requests
    with lock:
        requests += 1
        return rng.choice(kinds) if kinds != [""] and (requests == 1 or rng.random() < rate) else None


def read_head(stream):
    lines = []
    while True:
        line = stream.readline(65536)
        if not line:
            return None, {}
        if line in (b"\r\n", b"\n"):
            break
        lines.append(line)
    names = {n.strip().lower(): v.strip() for n, _, v in (l.decode("latin1").partition(":") for l in lines[1:])}
    return b"".join(lines), names


def read_body(stream, names, has_body):
    """The body, and what frames it on the wire."""
    if not has_body:
        return b""
    if names.get("transfer-encoding", "").lower() == "chunked":
        raw = b""
        while True:
            line = stream.readline()
            raw += line
            size = int(line.split(b";")[0], 16)
            raw += stream.read(size + 2)
            if size == 0:
                return raw
    return stream.read(int(names.get("content-length", "0")))


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def refuse(connection, status):
    status, code, date = {
        "503": ("503", "SlowDown", ""),
        "500": ("500", "InternalError", ""),
        "expired": ("403", "ExpiredToken", ""),
        "skewed": ("403", "RequestTimeTooSkewed", time.strftime("Date: %a, %d %b %Y %H:%M:%S GMT\r\n", time.gmtime(time.time() + 3000))),
        "region": ("400", "AuthorizationHeaderMalformed", ""),
    }[status]
    region = "<Region>eu-west-1</Region>" if code == "AuthorizationHeaderMalformed" else ""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>made up</Message>{region}</Error>".encode()
    connection.sendall(f"HTTP/1.1 {status} no\r\n{date}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    connection.close()


def serve(connection):
    stream = connection.makefile("rb")
    server = socket.create_connection(("127.0.0.1", upstream))
    answers = server.makefile("rb")
    while True:
        head, names = read_head(stream)
        if head is None:
            break
        body = read_body(stream, names, True)
        fault, method = choose(), head.split(b" ")[0].decode()
        if fault:
            print(fault, method, flush=True)
        if fault in ("503", "500", "expired", "skewed", "region"):
            return refuse(connection, fault)
        if fault == "babble":
            connection.sendall(b"220 mail.example ready\r\n")
            return connection.close()
        if fault == "slow":
            time.sleep(float(os.environ.get("S3_FAULTS_DELAY", "0.2")))
        if fault == "reset" and rng.random() < 0.5:
            return reset(connection)
        server.sendall(head + b"\r\n" + body)
        answer, facts = read_head(answers)
        if answer is None:
            return reset(connection)
        status = int(answer.split(b" ")[1])
        content = read_body(answers, facts, method != "HEAD" and status not in (204, 304))
        if fault == "reset":
            return reset(connection)
        if fault == "cut" and len(content) > 1:
            connection.sendall(answer + b"\r\n" + content[: len(content) // 2])
            return connection.close()
        least = {"flip": 1, "flip-large": 65536}.get(fault, float("inf"))
        if method == "GET" and status == 206 and len(content) >= least:
            at = rng.randrange(len(content))
            content = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        connection.sendall(answer + b"\r\n" + content)


def guard(connection):
    try:
        if context:
            connection = context.wrap_socket(connection, server_side=True)
        serve(connection)
    except (OSError, ValueError):
        connection.close()


context = None
if len(sys.argv) > 6:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[6], sys.argv[7])
listener = socket.create_server(("127.0.0.1", int(os.environ.get("S3_FAULTS_PORT", "0"))), backlog=64)
with open(port_file + ".new", "w") as f:
    f.write(str(listener.getsockname()[1]))
os.rename(port_file + ".new", port_file)
while True:
    threading.Thread(target=guard, args=(listener.accept()[0],), daemon=True).start()
