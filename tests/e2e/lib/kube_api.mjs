// A stand-in of the Kubernetes API, as much as a client of jobs needs: objects are kept by path; /_set changes what happens next. Prints its address.
import http from "node:http";

const objects = new Map();
let fault = "", left = 0, active = 0, done = false;
const status = (code, message) => [code, { kind: "Status", message }];
const withStatus = (object) => ({ ...object, status: { active, conditions: done ? [{ type: "Complete", status: "True" }] : [] } });
const pod = { metadata: { name: "asked-0-x" }, status: { phase: "Pending", conditions: [{ type: "PodScheduled", status: "False", message: "0/4 nodes are available: insufficient nvidia.com/gpu" }] } };

const answer = (method, path, body) => {
    const list = !/\/(jobs|services|configmaps|pods)\/[^/]+/.test(path);
    if (path.endsWith("/log")) return [200, "step 1\n"];
    if (method === "POST") {
        const key = `${path}/${body.metadata.name}`;
        if (objects.has(key)) return status(409, "already exists");
        objects.set(key, { ...body, metadata: { ...body.metadata, creationTimestamp: new Date().toISOString().replace(/\.\d+/, "") } });
        return [201, body];
    }
    if (path.endsWith("/pods")) return [200, { items: [pod] }];
    if (path.endsWith("/events")) return [200, { items: [] }];
    if (list && /^\/apis\/batch\/v1\/namespaces\/[^/]+\/jobs$/.test(path)) return [200, { items: [...objects].filter(([key]) => key.startsWith(`${path}/`)).map(([, object]) => withStatus(object)) }];
    if (!objects.has(path)) return status(404, "not found");
    if (method === "DELETE") { objects.delete(path); return [200, {}]; }
    if (method === "PATCH") { const object = objects.get(path); Object.assign(object.spec, body.spec); return [200, object]; }
    return [200, withStatus(objects.get(path))];
};
const server = http.createServer((request, response) => {
    const url = new URL(request.url, "http://x");
    let text = "";
    request.on("data", (piece) => { text += piece; });
    request.on("end", () => {
        if (url.pathname === "/_set") {
            if (url.searchParams.has("fault")) [fault, left] = [url.searchParams.get("fault"), 2];
            if (url.searchParams.has("active")) active = 1;
            if (url.searchParams.has("done")) done = true;
            response.end();
            return;
        }
        if (left > 0 && left--) {
            if (fault === "reset") return request.socket.destroy();
            const [code, body] = status(fault === "busy" ? 429 : 500, `the server is ${fault}`);
            response.writeHead(code, { "content-type": "application/json" });
            return response.end(JSON.stringify(body));
        }
        const [code, body] = request.headers.authorization === "Bearer secret" ? answer(request.method, url.pathname, text && JSON.parse(text)) : status(401, "Unauthorized");
        response.writeHead(code, { "content-type": "application/json" });
        response.end(typeof body === "string" ? body : JSON.stringify(body));
    });
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
