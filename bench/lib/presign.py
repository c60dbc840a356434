#!/usr/bin/env python3
"""Presigned addresses (SigV4) of parts of an upload, and the requests around them: presign.py bucket|create|parts|complete|get
ENDPOINT BUCKET KEY [UPLOAD COUNT]. Keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Own code: nothing is imported."""
import datetime
import hashlib
import hmac
import os
import re
import sys
import urllib.parse
import urllib.request

what, endpoint, bucket, key = sys.argv[1:5]
access, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]


def presign(method, query):
    now = datetime.datetime.utcnow().strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    query = dict(query, **{"X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": f"{access}/{scope}", "X-Amz-Date": now,
                           "X-Amz-Expires": "3600", "X-Amz-SignedHeaders": "host"})
    text = "&".join(f"{urllib.parse.quote(k, safe='')}={urllib.parse.quote(v, safe='')}" for k, v in sorted(query.items()))
    path, host = f"/{bucket}/{key}", urllib.parse.urlparse(endpoint).netloc
    canonical = f"{method}\n{path}\n{text}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
    to_sign = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signing = f"AWS4{secret}".encode()
    for part in (now[:8], "us-east-1", "s3", "aws4_request"):
        signing = hmac.new(signing, part.encode(), hashlib.sha256).digest()
    return f"{endpoint}{path}?{text}&X-Amz-Signature={hmac.new(signing, to_sign.encode(), hashlib.sha256).hexdigest()}"


def send(method, query, body=b""):
    request = urllib.request.Request(presign(method, query), data=body, method=method)
    return urllib.request.urlopen(request).read().decode()


if what == "bucket":
    send("PUT", {})
elif what == "get":
    print(presign("GET", {}))
elif what == "create":
    print(re.search("<UploadId>(.*?)</UploadId>", send("POST", {"uploads": ""})).group(1))
elif what == "parts":
    for number in range(1, int(sys.argv[6]) + 1):
        print(presign("PUT", {"partNumber": str(number), "uploadId": sys.argv[5]}))
elif what == "complete":
    listed = send("GET", {"uploadId": sys.argv[5]})
    parts = zip(re.findall("<PartNumber>(.*?)</PartNumber>", listed), re.findall("<ETag>(.*?)</ETag>", listed))
    body = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{e}</ETag></Part>" for n, e in parts)
    send("POST", {"uploadId": sys.argv[5]}, f"<CompleteMultipartUpload>{body}</CompleteMultipartUpload>".encode())
