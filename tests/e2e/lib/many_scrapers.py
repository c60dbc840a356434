"""many_scrapers.py URL COUNT STALLED: COUNT scrapers at once while STALLED others do not go on: half a request, or an answer that nobody reads."""
import selectors
import socket
import sys
import urllib.parse

url, count, stalled = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
where = urllib.parse.urlparse(url)
request = f"GET {where.path} HTTP/1.1\r\nHost: {where.netloc}\r\nConnection: close\r\n\r\n".encode()


def connect():
    one = socket.create_connection((where.hostname, where.port), timeout=120)
    return one


idle = [connect() for _ in range(stalled)]
for i, one in enumerate(idle):
    one.sendall(request if i % 2 else request[: len(request) // 2])
ready = selectors.DefaultSelector()
scrapers = {connect(): bytearray() for _ in range(count)}
for one in scrapers:  # all are connected before the first asks
    one.sendall(request)
    ready.register(one, selectors.EVENT_READ)
left = count
while left:
    events = ready.select(120)
    if not events:
        sys.exit(f"{left} scrapers have had no answer for two minutes")
    for key, _ in events:
        data = key.fileobj.recv(1 << 20)
        scrapers[key.fileobj] += data
        if not data:
            ready.unregister(key.fileobj)
            left -= 1
answered = sum(text.startswith(b"HTTP/1.1 200") and b"\nashlar_collector_up" in text for text in scrapers.values())
if answered != count:
    sys.exit(f"{answered} of {count} scrapers have their answer; one got: {bytes(next(t for t in scrapers.values() if b'collector_up' not in t)[:200])}")
