// A stand-in of the Kubernetes API, as much as marking nodes needs: four nodes with taints and conditions of others, merge patches that name a
// version, and one writer in between who makes the first patch stale. GET /_node tells what a node is; prints its address.
import http from "node:http";

const nodes = new Map(["n1", "n2", "n3", "n4"].map((name) => [name, { metadata: { name, resourceVersion: "1", labels: { zone: "a" } },
    spec: { taints: [{ key: "nvidia.com/gpu", effect: "NoSchedule" }] }, status: { conditions: [{ type: "Ready", status: "True" }] } }]));
let stale = 1;
const merge = (object, patch) => { for (const [key, value] of Object.entries(patch)) object[key] = value && typeof value === "object" && !Array.isArray(value) ? merge(object[key] ?? {}, value) : value; return object; };
const answer = (method, url, body) => {
    const [, name, below] = url.pathname.match(/^\/api\/v1\/nodes(?:\/([^/]+))?(\/status)?$/) ?? [];
    if (url.pathname.startsWith("/_node/")) return [200, nodes.get(url.pathname.slice(7))];
    if (url.pathname === "/api/v1/nodes") { // two pages
        const from = url.searchParams.get("continue") ? 2 : 0;
        return [200, { metadata: from ? {} : { continue: "more" }, items: [...nodes.values()].slice(from, from + 2) }];
    }
    const node = nodes.get(name);
    if (!node) return [404, { kind: "Status", message: `nodes "${name}" not found` }];
    if (method !== "PATCH") return [200, node];
    if (stale > 0 && stale--) node.metadata.resourceVersion = "2";
    if (body.metadata?.resourceVersion !== node.metadata.resourceVersion) return [409, { kind: "Status", message: "the object has been modified" }];
    merge(node, below ? { status: body.status } : { metadata: body.metadata, spec: body.spec });
    node.metadata.resourceVersion = `${Number(node.metadata.resourceVersion) + 1}`;
    return [200, node];
};
http.createServer((request, response) => {
    let text = "";
    request.on("data", (piece) => { text += piece; });
    request.on("end", () => {
        const [code, body] = answer(request.method, new URL(request.url, "http://x"), text ? JSON.parse(text) : null);
        response.writeHead(code, { "content-type": "application/json" });
        response.end(JSON.stringify(body));
    });
}).listen(0, "127.0.0.1", function () { console.log(`http://127.0.0.1:${this.address().port}`); });
