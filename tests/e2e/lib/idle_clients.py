#!/usr/bin/env python3
"""Open COUNT connections to 127.0.0.1:PORT that send nothing, close them, and GET PATH: exit code 0 if it is answered."""
import http.client
import resource
import socket
import sys
import time

port, path, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most if most < count + 64 else count + 64, most))


def get():
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status


idle = []
for _ in range(count):
    idle.append(socket.create_connection(("127.0.0.1", port), timeout=20))
during = get()
for connection in idle:
    connection.close()
after = get()
print(f"{count} idle connections: {path} answers {during}, and {after} after they closed")
sys.exit(during != 200 or after != 200)
