// A stand-in of the kubelet: one node of a real API server. It runs the pods that are bound to it as processes in namespaces of their own
// (mounts, names, process ids), reports how they do, stops them when they are deleted, and serves their output. All nodes are this machine,
// so that names of pods lead to the loopback address.
// usage: kubelet.mjs API TOKEN NODE FOLDER KEY CERTIFICATE      ends all its pods with it
import { spawn } from "node:child_process";
import { createWriteStream, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import https from "node:https";
import { join } from "node:path";

const [api, token, node, folder, key, certificate] = process.argv.slice(2);
const agent = new https.Agent({ keepAlive: true, rejectUnauthorized: false });
const headers = { authorization: `Bearer ${token}` };

const call = (method, path, body, type = "application/json") => new Promise((resolve, reject) => {
    const sent = body ? JSON.stringify(body) : "";
    const length = body ? { "content-type": type, "content-length": Buffer.byteLength(sent) } : {};
    const request = https.request(api + path, { method, agent, headers: { ...headers, ...length } }, (response) => {
        let text = "";
        response.on("data", (piece) => { text += piece; });
        response.on("end", () => resolve({ code: response.statusCode, body: /^application\/json/.test(response.headers["content-type"]) ? JSON.parse(text) : text }));
    });
    request.on("error", reject);
    request.end(sent);
});
const merge = "application/merge-patch+json";
const now = () => new Date().toISOString().replace(/\.\d+/, "");
const pods = new Map(); // uid -> { pod, child, log, is_stopping }
const pathOf = (pod) => `/api/v1/namespaces/${pod.metadata.namespace}/pods/${pod.metadata.name}`;

const report = (pod, phase, state) => call("PATCH", `${pathOf(pod)}/status`, {
    metadata: { uid: pod.metadata.uid },
    status: { phase, hostIP: "127.0.0.1", podIP: "127.0.0.1", startTime: now(),
        conditions: [...(pod.status.conditions ?? []).filter((c) => c.type !== "Ready"), { type: "Ready", status: phase === "Running" ? "True" : "False", lastTransitionTime: now() }],
        containerStatuses: pod.spec.containers.map(({ name, image }) => ({ name, image, imageID: image, ready: phase === "Running", restartCount: 0, state })) },
}, merge);

// The words of a container, with $(NAME) of its environment; $$ is a dollar.
const expand = (text, env) => text.replace(/\$\$|\$\(([A-Za-z_][\w.-]*)\)/g, (whole, name) => whole === "$$" ? "$" : env[name] ?? whole);
const fieldOf = (pod, path) => {
    const quoted = /^metadata\.(labels|annotations)\['(.*)'\]$/.exec(path);
    return quoted ? pod.metadata[quoted[1]]?.[quoted[2]] ?? "" : path.split(".").reduce((value, name) => value?.[name], pod) ?? "";
};
// What a container sees: "SOURCE TARGET" lines of bind mounts.
const mountsOf = async (pod, own) => {
    const lines = [];
    for (const { name, mountPath } of pod.spec.containers[0].volumeMounts ?? []) {
        const volume = pod.spec.volumes.find((v) => v.name === name);
        if (volume.projected || volume.emptyDir) continue; // nobody here asks the API; all nodes are one machine, and so is shared memory
        if (volume.hostPath) { lines.push(`${volume.hostPath.path} ${mountPath}`); continue; }
        const { body } = await call("GET", `/api/v1/namespaces/${pod.metadata.namespace}/configmaps/${volume.configMap.name}`);
        const at = join(own, name);
        mkdirSync(at, { recursive: true });
        for (const [file, text] of Object.entries(body.data)) writeFileSync(join(at, file), text);
        lines.push(`${at} ${mountPath}`);
    }
    return lines;
};
const script = `mount --make-rprivate / && while read -r from to; do mkdir -p "$to" && mount --bind "$from" "$to" || exit 125; done < "$1/mounts" &&
    mount --bind "$1/hosts" /etc/hosts && mount -t proc proc /proc && hostname "$2" && shift 2 && exec "$@"`;

const run = async (pod) => {
    const entry = { pod };
    pods.set(pod.metadata.uid, entry); // before anything is waited for: events come while it starts
    const own = join(folder, pod.metadata.name), container = pod.spec.containers[0], env = {};
    mkdirSync(own, { recursive: true });
    for (const { name, value, valueFrom } of container.env ?? []) env[name] = valueFrom ? fieldOf(pod, valueFrom.fieldRef.fieldPath) : expand(value ?? "", env);
    writeFileSync(join(own, "mounts"), (await mountsOf(pod, own)).map((line) => `${line}\n`).join(""));
    const names = Array.from({ length: 8 }, (_, i) => `${pod.spec.hostname?.replace(/\d+$/, i) ?? "pod"}.${pod.spec.subdomain}`);
    writeFileSync(join(own, "hosts"), `127.0.0.1 localhost ${names.join(" ")} ${pod.spec.hostname ?? ""}\n`);
    entry.log = join(own, "log");
    const words = [...container.command, ...(container.args ?? [])].map((word) => expand(word, env));
    entry.child = spawn("unshare", ["--mount", "--uts", "--pid", "--fork", "--kill-child", "bash", "-c", script, "bash", own, pod.spec.hostname ?? pod.metadata.name, ...words],
        { env: { PATH: process.env.PATH, ASAN_OPTIONS: process.env.ASAN_OPTIONS ?? "", ...env }, stdio: ["ignore", "pipe", "pipe"] });
    const out = createWriteStream(entry.log);
    entry.child.stdout.pipe(out, { end: false });
    entry.child.stderr.pipe(out, { end: false });
    const startedAt = now();
    const ended = new Promise((resolve) => entry.child.on("exit", (code, signal) => resolve(code ?? (signal === "SIGKILL" ? 137 : 143))));
    await report(pod, "Running", { running: { startedAt } });
    const exitCode = await ended;
    await report(entry.pod, exitCode === 0 ? "Succeeded" : "Failed", { terminated: { exitCode, startedAt, finishedAt: now(), reason: exitCode === 0 ? "Completed" : "Error" } });
    entry.hasEnded = true;
    if (entry.pod.metadata.deletionTimestamp) await forget(entry.pod);
};
const forget = (pod) => call("DELETE", `${pathOf(pod)}?gracePeriodSeconds=0`, { preconditions: { uid: pod.metadata.uid } });
// The first process of the pod is the supervisor: the only child of unshare.
const firstProcess = (entry) => {
    try { return Number(readFileSync(`/proc/${entry.child.pid}/task/${entry.child.pid}/children`, "utf8").split(" ")[0]); } catch { return 0; }
};
const stop = (entry) => {
    if (entry.is_stopping || !entry.child) return;
    entry.is_stopping = true;
    const first = firstProcess(entry);
    if (first) process.kill(first, "SIGTERM");
    setTimeout(() => { if (!entry.hasEnded) entry.child.kill("SIGKILL"); }, 1000 * (entry.pod.metadata.deletionGracePeriodSeconds ?? 30)).unref();
};
const see = (type, pod) => {
    const entry = pods.get(pod.metadata.uid);
    if (type === "DELETED") return;
    if (!entry) {
        if (!pod.metadata.deletionTimestamp && (pod.status.phase ?? "Pending") === "Pending") run(pod).catch((error) => console.log(`${pod.metadata.name}: ${error}`));
        else if (pod.metadata.deletionTimestamp) forget(pod);
        return;
    }
    entry.pod = pod;
    if (!pod.metadata.deletionTimestamp) return;
    if (entry.hasEnded) forget(pod);
    else stop(entry);
};
const selector = `fieldSelector=spec.nodeName%3D${node}`;
const watch = async () => {
    const { body } = await call("GET", `/api/v1/pods?${selector}`);
    body.items.forEach((pod) => see("ADDED", pod));
    const request = https.get(`${api}/api/v1/pods?${selector}&watch=true&resourceVersion=${body.metadata.resourceVersion}`, { agent, headers }, (response) => {
        let text = "";
        response.on("data", (piece) => {
            const lines = (text + piece).split("\n");
            text = lines.pop();
            for (const line of lines) { const event = JSON.parse(line); if (event.object.kind === "Pod") see(event.type, event.object); }
        });
        response.on("close", watch);
    });
    request.on("error", () => setTimeout(watch, 200));
};
// Output of containers: the API server asks for it.
const server = https.createServer({ key: readFileSync(key), cert: readFileSync(certificate) }, (request, response) => {
    const [, , , name] = request.url.split("?")[0].split("/");
    const entry = [...pods.values()].find(({ pod }) => pod.metadata.name === name);
    if (!request.url.startsWith("/containerLogs/") || !entry?.log) { response.writeHead(404); return response.end(); }
    response.end(readFileSync(entry.log));
});
server.listen(0, "127.0.0.1", async () => {
    const room = { cpu: "4", memory: "8Gi", pods: "10" };
    await call("POST", "/api/v1/nodes", { apiVersion: "v1", kind: "Node", metadata: { name: node, labels: { "kubernetes.io/hostname": node } } });
    await call("PATCH", `/api/v1/nodes/${node}/status`, { status: { capacity: room, allocatable: room, addresses: [{ type: "InternalIP", address: "127.0.0.1" }],
        daemonEndpoints: { kubeletEndpoint: { Port: server.address().port } },
        conditions: [{ type: "Ready", status: "True", reason: "KubeletReady", lastHeartbeatTime: now(), lastTransitionTime: now() }] } }, merge);
    const lease = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: { name: node, namespace: "kube-node-lease" }, spec: { holderIdentity: node, leaseDurationSeconds: 40 } };
    const renew = () => call("PATCH", `/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/${node}`, { spec: { renewTime: new Date().toISOString().replace("Z", "000Z") } }, merge);
    await call("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease);
    await renew();
    setInterval(() => renew().catch(() => {}), 5000);
    watch().catch((error) => { console.log(`${node}: ${error}`); process.exit(1); });
    console.log(`${node} is ready`);
});
