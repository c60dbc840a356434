#!/usr/bin/env python3
"""Hands out keys as a container's endpoint (/creds, with "Authorization: sesame") and as an instance's metadata service
(IMDSv2). usage: keys_server.py PORT_FILE"""
import http.server
import json
import os
import sys

KEYS = json.dumps({"AccessKeyId": "TESTKEY", "SecretAccessKey": "testsecret", "Expiration": "2100-01-01T00:00:00Z"})
ROLES = "/latest/meta-data/iam/security-credentials/"


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, text):
        self.send_response(200 if text else 403)
        self.send_header("Content-Length", str(len(text or "")))
        self.end_headers()
        self.wfile.write((text or "").encode())

    def do_PUT(self):
        self.answer("token" if self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"] else "")

    def do_GET(self):
        if self.path == "/creds":
            return self.answer(KEYS if self.headers["Authorization"] == "sesame" else "")
        if self.headers["X-aws-ec2-metadata-token"] != "token":
            return self.answer("")
        self.answer({ROLES: "role", ROLES + "role": KEYS}.get(self.path))

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(sys.argv[1] + ".new", "w") as f:
    f.write(str(server.server_port))
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
