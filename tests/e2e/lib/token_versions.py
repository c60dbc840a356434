# token_versions.py ASHLAR RUN BASE STEPS: does each token of a run with rollout.chunk have the log-probability that the weights give
# it that its record names? The server says so, of the checkpoint of each version (RUN has all of them, BASE is version 0). Of other
# tokens of the same answers most must differ, or this would say nothing.
import json, re, subprocess, sys, urllib.request

ashlar, run, base, steps = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])


def ask(port, path, body):
    request = urllib.request.Request("http://127.0.0.1:%d%s" % (port, path), json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def start(folder):
    server = subprocess.Popen([ashlar, "serve", "--model", folder, "--port", "0"], stderr=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, text=True)
    port = None
    for line in server.stderr:
        found = re.search(r"listening on .* port (\d+)", line)
        port = int(found.group(1)) if found else port
        if "ready after" in line:
            return server, port
    sys.exit("no server for " + folder)


answers = [json.loads(line) for step in range(1, steps + 1) for line in open("%s/rollouts/step-%d.jsonl" % (run, step))]
own = own_differ = others_differ = 0
for version in sorted({v for answer in answers for v in answer["versions"]}):
    server, port = start("%s/checkpoints/step-%06d" % (run, version) if version else base)
    for answer in answers:
        if version not in answer["versions"]:
            continue
        prompt = ask(port, "/tokenize", {"prompt": answer["prompt"], "add_special_tokens": False})["tokens"]
        said = ask(port, "/v1/completions", {"prompt": prompt + answer["ids"], "max_tokens": 1, "prompt_logprobs": 0})
        said = said["choices"][0]["prompt_logprobs"][len(prompt):]
        for token, (drawn, logprob) in enumerate(zip(answer["ids"], answer["logprobs"])):
            differs = abs(said[token][str(drawn)]["logprob"] - logprob) > 1e-6 * max(1, abs(logprob))
            if answer["versions"][token] == version:
                own += 1
                own_differ += differs
            else:
                others_differ += differs
    server.terminate()
    server.wait()
print("%d tokens, %d differ from the weights that drew them; of others %d" % (own, own_differ, others_differ))
sys.exit(own == 0 or own_differ > 0 or others_differ == 0)
