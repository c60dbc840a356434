// A stand-in of the Kubernetes API, as much as a client of jobs needs: objects are kept by path; jobs can be watched; /_set changes what happens
// next; /_seen tells of the watches that are open, and of all that were asked for. Prints its address.
import http from "node:http";

const objects = new Map();
let fault = "", left = 0, active = 0, done = false;
const status = (code, message) => [code, { kind: "Status", message }];
let version = 100, refusals = 0, only = ""; // only: the one API whose objects this user may see
const streams = new Set(), asked = []; // asked: "list" or the version that a watch continues from
const withStatus = (object) => ({ ...object, metadata: { ...object.metadata, resourceVersion: `${version}` }, status: { active, readyReplicas: active, conditions: done ? [{ type: "Complete", status: "True" }] : [] } });
const pod = { metadata: { name: "asked-0-x" }, status: { phase: "Pending", conditions: [{ type: "PodScheduled", status: "False", message: "0/4 nodes are available: insufficient nvidia.com/gpu" }] } };

const answer = (method, path, query, body) => {
    const list = !/\/namespaces\/[^/]+\/[a-z]+\/[^/]+/.test(path);
    if (path.endsWith("/log")) return [200, "step 1\n"];
    if (method === "POST") {
        const key = `${path}/${body.metadata.name}`;
        if (objects.has(key)) return status(409, "already exists");
        objects.set(key, { ...body, metadata: { ...body.metadata, creationTimestamp: new Date().toISOString().replace(/\.\d+/, "") } });
        return [201, body];
    }
    if (only !== "" && method === "GET" && path.startsWith("/apis/") && !path.startsWith(`/apis/${only}/`)) return status(403, "is forbidden");
    if (path.endsWith("/pods")) return [200, { items: [pod] }];
    if (path.endsWith("/events")) return [200, { items: [] }];
    if (list && /^\/apis\/(batch|apps)\/v1\/namespaces\/[^/]+\/[a-z]+$/.test(path)) { // the kinds that this cluster knows
        if (query.has("fieldSelector")) asked.push("list");
        const name = query.get("fieldSelector")?.replace("metadata.name=", "");
        const items = [...objects].filter(([key]) => key.startsWith(`${path}/`) && (!name || key.endsWith(`/${name}`))).map(([, object]) => withStatus(object));
        return [200, { metadata: { resourceVersion: `${version}` }, items }];
    }
    if (!objects.has(path)) return status(404, "not found");
    if (method === "DELETE") { objects.delete(path); return [200, {}]; }
    if (method === "PATCH") { const object = objects.get(path); Object.assign(object.spec, body.spec); return [200, object]; }
    return [200, withStatus(objects.get(path))];
};
// All that watch are told; a job's object is sent as it is now.
const tell = (type) => {
    version++;
    for (const { response, path, name } of streams) {
        const object = objects.get(`${path}/${name}`);
        const sent = type === "BOOKMARK" ? { kind: "Job", metadata: { resourceVersion: `${version}` } } : type === "ERROR" ? { kind: "Status", code: 410, message: "too old resource version" } : object && withStatus(object);
        if (sent) response.write(`${JSON.stringify({ type, object: sent })}\n`);
    }
};
const watch = (url, response) => {
    const from = url.searchParams.get("resourceVersion"), stream = { response, path: url.pathname, name: url.searchParams.get("fieldSelector").replace("metadata.name=", "") };
    asked.push(from);
    if (refusals > 0 && refusals--) {
        response.writeHead(410, { "content-type": "application/json" });
        return response.end(JSON.stringify(status(410, "too old resource version")[1]));
    }
    response.writeHead(200, { "content-type": "application/json" });
    response.flushHeaders();
    streams.add(stream);
    response.on("close", () => streams.delete(stream));
    if (done) tell("MODIFIED");
};
// What happens to watches: half a line and a cut, a bookmark, an error or a refusal that says 410, a stream that ends as it should, a job that is deleted.
const happen = { cut: () => { for (const { response } of streams) response.write('{"type":"MODI', () => response.destroy()); }, bookmark: () => tell("BOOKMARK"), expire: () => tell("ERROR"),
    end: () => { for (const { response } of streams) response.end(); }, refuse: () => { refusals = 1; happen.end(); },
    delete: () => { tell("DELETED"); objects.clear(); } };
const server = http.createServer((request, response) => {
    const url = new URL(request.url, "http://x");
    let text = "";
    request.on("data", (piece) => { text += piece; });
    request.on("end", () => {
        if (url.pathname === "/_set") {
            if (url.searchParams.has("fault")) [fault, left] = [url.searchParams.get("fault"), 2];
            if (url.searchParams.has("active")) active = 1;
            if (url.searchParams.has("only")) only = url.searchParams.get("only");
            if (url.searchParams.has("done")) done = url.searchParams.get("done") === "1";
            if (url.searchParams.has("done")) tell("MODIFIED");
            if (url.searchParams.has("watch")) happen[url.searchParams.get("watch")]();
            response.end();
            return;
        }
        if (url.pathname === "/_seen") return response.end(`${streams.size} ${asked.join(" ")}\n`);
        if (left > 0 && left--) {
            if (fault === "reset") return request.socket.destroy();
            const [code, body] = status(fault === "busy" ? 429 : 500, `the server is ${fault}`);
            response.writeHead(code, { "content-type": "application/json" });
            return response.end(JSON.stringify(body));
        }
        if (url.searchParams.has("watch") && request.headers.authorization === "Bearer secret") return watch(url, response);
        const [code, body] = request.headers.authorization === "Bearer secret" ? answer(request.method, url.pathname, url.searchParams, text && JSON.parse(text)) : status(401, "Unauthorized");
        response.writeHead(code, { "content-type": "application/json" });
        response.end(typeof body === "string" ? body : JSON.stringify(body));
    });
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
