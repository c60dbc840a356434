# A server that asks another one (UPSTREAM) and answers in the forms of others, by the path before /v1:
#   ids      vLLM: token_ids and token_logprobs, with the end of an answer
#   tokens   vLLM before 0.10.2: "token_id:N" in the place of texts
#   content  llama.cpp: an object for each token
#   texts    texts alone        silent   no log-probabilities      wrong   ids of a larger vocabulary
#   other    the ids of another tokenizer                          flaky   503 when it is asked first
#   slow     never answers      html     what a proxy says         refuse  400 with a sentence
# Prints its port, then serves until it is killed.
import json, sys, threading, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

upstream, seen, lock = sys.argv[1], set(), threading.Lock()


def ask(path, body=None):
    request = urllib.request.Request(upstream + path, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def reshape(form, answer):
    choice = answer["choices"][0]
    ids, values = choice.pop("token_ids"), choice["logprobs"]["token_logprobs"]
    names = ["token_id:%d" % i for i in ids]
    if form == "ids":
        if choice["finish_reason"] == "stop":
            ids, values, names = ids + [choice["stop_reason"]], values + [-0.5], names + ["<end>"]
        choice["stop_reason"] = None
        choice["token_ids"] = ids
        choice["prompt_logprobs"] = None
    elif form == "content":
        del choice["stop_reason"]
        choice["logprobs"] = {"content": [{"id": i, "token": "", "bytes": [], "logprob": v, "top_logprobs": []}
                                          for i, v in zip(ids, values)]}
        return answer
    elif form == "texts":
        names = choice["logprobs"]["tokens"]
    elif form == "wrong":
        choice["token_ids"] = [i + 1000 for i in ids]
    choice["logprobs"] = {"text_offset": [0] * len(ids), "token_logprobs": values, "tokens": names, "top_logprobs": []}
    if form == "silent":
        choice["logprobs"] = None
    return answer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def send(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        self.send(200, json.dumps(ask("/v1/models")))

    def do_POST(self):
        form, path = self.path[1:].split("/", 1)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with lock:
            is_new = body not in seen
            seen.add(body)
        if path == "tokenize":
            answer = ask("/tokenize", body)
            if form == "other":
                answer["tokens"][0] += 1
            self.send(404 if form in ("content", "flaky") else 200, json.dumps(answer))
        elif form == "flaky" and is_new:
            self.send(503, "busy")
        elif form == "slow":
            threading.Event().wait()
        elif form == "html":
            self.send(200, "<html>404</html>")
        elif form == "refuse":
            self.send(400, json.dumps({"error": {"message": "prompts of ids are not for me", "type": "BadRequestError"}}))
        else:
            self.send(200, json.dumps(reshape(form, ask("/v1/completions", body))))


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
