/* The page of `ashlar agent` and `ashlar dash`. Text from nodes is only ever set as text, so it cannot become HTML. */
const find = (id) => document.getElementById(id);
const make = (tag, text, name) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (name) e.className = name; return e; };
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const token = new URLSearchParams(location.hash.slice(1)).get("token");
const headers = token ? { Authorization: "Bearer " + token } : {};
let board = { nodes: [], ranks: [], runs: [], servers: [] }, at = 0, opened = null, heard = 0, isFrozen = false;

const kind = (status) => status === "healthy" ? "healthy" : status === "doubtful" ? "doubtful" : status === "to be checked" ? "tocheck" : status.startsWith("drain") ? "drain" : "gone";
const paint = { healthy: "good", doubtful: "doubt", tocheck: "check", drain: "out", gone: "quiet" };
const span = (s) => s < 90 ? Math.round(s) + " s" : s < 5400 ? Math.round(s / 60) + " min" : s < 172800 ? Math.round(s / 3600) + " h" : Math.round(s / 86400) + " d";
const ago = (s) => span(Math.max(0, Date.now() / 1000 - s)) + " ago";
const short = (v) => v === null || v === undefined ? "-" : Math.abs(v) >= 1e6 ? (v / 1e6).toFixed(2) + "M" : Math.abs(v) >= 1e4 ? (v / 1e3).toFixed(1) + "k" : Math.abs(v) >= 100 ? v.toFixed(0) : v.toPrecision(3);

/* A canvas as sharp as the screen. */
function fit(canvas, height) {
    const width = Math.max(1, canvas.parentElement.clientWidth), ratio = devicePixelRatio || 1;
    canvas.style.height = height + "px";
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
    }
    const g = canvas.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    return [g, width];
}

/* Nodes below their domains where a topology gives them, in one heap where not. */
let shownNodes = [], spots = [];
function drawNodes() {
    const canvas = find("nodes"), room = canvas.parentElement.clientWidth;
    shownNodes = board.nodes.some((n) => n.domain) ? [...board.nodes].sort((a, b) => !a.domain - !b.domain || byName(a.domain || "", b.domain || "") || byName(a.node, b.node)) : board.nodes;
    const cell = shownNodes.length > 4000 ? 6 : shownNodes.length > 600 ? 9 : shownNodes.length > 60 ? 14 : 22;
    const groups = groupBy(shownNodes, (n) => n.domain || (board.nodes.some((m) => m.domain) ? "no domain" : ""));
    const plan = layGroups(groups, room, cell);
    spots = plan.spots;
    const [g] = fit(canvas, plan.height);
    const colors = Object.fromEntries(Object.entries(paint).map(([k, v]) => [k, color(v)]));
    drawGroups(g, plan, (i) => colors[kind(shownNodes[i].status)], document.activeElement === canvas ? at : -1);
    const counts = {};
    for (const node of shownNodes) counts[node.status] = (counts[node.status] || 0) + 1;
    const bad = groups.filter((group) => group.name).map((group) => [group.name, group.items.filter((n) => kind(n.status) !== "healthy").length, group.items.length]).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
    find("legend").replaceChildren(...Object.entries(counts).flatMap(([status, n]) => [make("span", "", "key " + kind(status)), document.createTextNode(n + " " + status)]),
        ...(bad.length ? [make("span", ", not healthy: " + bad.slice(0, 6).map(([name, n, all]) => name + " " + n + " of " + all).join(", "), "domains")] : []));
}

function drawNode() {
    const node = board.nodes.find((n) => n.node === opened), box = find("node");
    if (!node) { box.replaceChildren(); return; }
    const list = make("dl");
    const row = (name, value) => list.append(make("dt", name), make("dd", value));
    row("node", node.node);
    if (node.domain) row("place", node.domain);
    row("status", node.status + (node.since ? ", for " + span(Date.now() / 1000 - node.since) : ""));
    if (node.kernel_log) row("kernel log", node.kernel_log);
    for (const f of node.findings || []) if (f.active) row(f.layer, f.key + ": " + f.means);
    box.replaceChildren(list, ...drawParts(node));
    if (!node.parts) askParts(node.node);
}

/* A node's parts: asked for every other second while it is open. Counters from boot are shown by what they grew by. */
const partKinds = ["GPU", "network", "RDMA", "drive", "mount", "rank"], kindNames = { GPU: "GPUs", network: "Network", RDMA: "EFA and InfiniBand", drive: "Drives", mount: "Mounts", rank: "Ranks" };
let parts = { node: null, list: [], at: 0, before: new Map(), beforeAt: 0, isAsked: false };
const unitOf = (v, unit) => unit === "MiB" ? [Math.round(v / 102.4) / 10, "GiB"] : unit === "" || unit === "s" || unit === "%" ? [v, unit] : unit.startsWith("B") ? [["", "k", "M", "G", "T"].reduce(([n, p], next) => Math.abs(n) >= 1000 && next ? [n / 1000, next] : [n, p], [v, ""])].map(([n, p]) => [n, p + unit])[0] : [v, unit];
const say = (v, unit) => { const [n, u] = unitOf(v, unit); return (unit === "s" && n < 0.1 ? (1000 * n).toFixed(2) + " m" : Number.isInteger(n) ? n + (u ? " " : "") : n.toPrecision(3).replace(/e.*/, "") + " ") + u; };
async function askParts(name) {
    if (parts.isAsked || isFrozen || (parts.node === name && Date.now() - parts.at < 1900)) return;
    parts.isAsked = true;
    try {
        const response = await fetch("v1/parts?node=" + encodeURIComponent(name), { headers, cache: "no-store" }), list = response.ok ? (await response.json()).parts : [];
        const old = parts.node === name ? parts : { list: [], at: 0 };
        parts = { node: name, list, at: Date.now(), beforeAt: old.at, before: new Map(old.list.flatMap((p) => p.counters.map((c) => [p.kind + p.name + c[0], c[1]]))), isAsked: false };
    } catch { parts.isAsked = false; return; }
    if (opened === name) drawNode();
}
function drawParts(node) {
    const list = node.parts || (parts.node === node.node ? parts.list : []), made = [];
    for (const one of partKinds) {
        const its = list.filter((p) => p.kind === one).sort((a, b) => byName(a.name, b.name)), names = [...new Set(its.flatMap((p) => p.counters.map((c) => c[0])))];
        if (!its.length) continue;
        const bad = its.filter((p) => p.status !== "healthy").length;
        const rows = its.map((p) => {
            const head = make("span");
            head.append(make("span", "", "key first " + p.status), document.createTextNode(p.name));
            const cells = [head, ...names.map((name) => {
                const c = p.counters.find((k) => k[0] === name), was = parts.before.get(p.kind + p.name + name), seconds = (parts.at - parts.beforeAt) / 1000;
                if (!c) return "";
                return !c[3] ? say(c[1], c[2]) : was === undefined || !parts.beforeAt || seconds <= 0 ? "\u2013" : say(Math.max(0, c[1] - was) / seconds, c[2] + "/s");
            })];
            cells.note = p.why;
            return cells;
        });
        made.push(make("h3", kindNames[one] + ": " + its.length + (bad ? ", not healthy: " + bad : "")), table([one, ...names], rows));
    }
    return made;
}

function drawAlerts() {
    const items = [];
    for (const node of board.nodes)
        for (const f of node.findings || []) {
            if (!f.active || (f.remedy === "watch" && node.status === "healthy")) continue;
            const item = make("li", undefined, ["reset", "reboot", "replace"].includes(f.remedy) ? "out" : "");
            item.append(make("strong", node.node + ": " + f.means), make("small", f.evidence), make("small", f.layer + ", " + f.source + ", " + (f.count === 1 ? "once" : f.count + " times") + ", since " + ago(f.since) + "; " + (f.remedy === "watch" ? "watch it" : f.remedy)));
            items.push([f.remedy === "watch" ? 1 : 0, item]);
        }
    items.sort((a, b) => a[0] - b[0]);
    find("alert-list").replaceChildren(...items.slice(0, 50).map((i) => i[1]));
    find("no-alerts").hidden = items.length > 0;
}

const median = (list) => { const s = [...list].sort((a, b) => a - b); return s.length ? s[(s.length - 1) >> 1] : 0; };
function drawRanks() {
    const ranks = board.ranks.filter((r) => r.steps.length), section = find("ranks");
    section.hidden = ranks.length === 0;
    if (!ranks.length) return;
    const last = Math.max(...ranks.map((r) => r.steps[r.steps.length - 1][0])), shown = 240, first = Math.max(1, last - shown + 1);
    const own = ranks.map((r) => new Map(r.steps.map((s) => [s[0], s[1] + s[2]])));
    const row = Math.max(1, Math.min(20, Math.floor(320 / ranks.length)));
    const [g, width] = fit(find("heat"), row * ranks.length), w = width / (last - first + 1);
    for (let step = first; step <= last; step++) {
        const middle = median(own.map((o) => o.get(step)).filter((v) => v !== undefined)) || 1;
        own.forEach((o, i) => {
            const v = o.get(step);
            if (v === undefined) return;
            const late = Math.min(1, Math.max(0, (v / middle - 1) * 2.5));
            g.globalAlpha = 0.15 + 0.85 * late;
            g.fillStyle = late > 0.2 ? color("out") : color("mark");
            g.fillRect((step - first) * w, i * row, Math.max(1, w - 0.3), Math.max(1, row - 1));
        });
    }
    g.globalAlpha = 1;
    const table = make("table"), head = make("tr");
    for (const t of ["rank", "step", "own ms", "data", "comm", "idle", "between", ""]) head.append(make("th", t));
    const top = make("thead");
    top.append(head);
    table.append(top);
    const body = make("tbody");
    /* of many, the slowest */
    const told = ranks.length <= 32 ? ranks : ranks.map((r) => [ownWork(r), r]).sort((a, b) => b[0] - a[0]).slice(0, 16).map(([, r]) => r);
    for (const r of told) {
        const recent = r.steps.slice(-20), mean = (i) => recent.reduce((sum, s) => sum + s[i], 0) / recent.length, line = make("tr");
        line.append(make("td", r.rank + (r.run ? " of " + r.run : "")), make("td", recent[recent.length - 1][0]));
        for (const i of [1, 2, 3, 4, 5]) line.append(make("td", mean(i).toFixed(1)));
        line.append(make("td", r.alive ? "" : "ended"));
        body.append(line);
    }
    table.append(body);
    const box = make("div", undefined, "scroll");
    box.append(table);
    find("rank-table").replaceChildren(...(told.length < ranks.length ? [make("p", "The " + told.length + " slowest of " + ranks.length + ":")] : []), box);
}

/* A line through points, at most one for each pixel: the least and the most of each column. */
function chart(points, label) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), path = document.createElementNS(svg.namespaceURI, "path"), box = make("figure");
    svg.setAttribute("class", "small");
    svg.setAttribute("viewBox", "0 0 600 130");
    svg.setAttribute("preserveAspectRatio", "none");
    const good = points.filter((p) => Number.isFinite(p[1]));
    box.append(make("figcaption", label + (good.length ? " " + short(good[good.length - 1][1]) : "")), svg);
    if (good.length < 2) return box;
    const x0 = good[0][0], x1 = good[good.length - 1][0], ys = good.map((p) => p[1]), low = ys.reduce((a, b) => Math.min(a, b)), high = ys.reduce((a, b) => Math.max(a, b));
    const parts = [];
    for (const [x, y] of good) parts.push(((x - x0) / (x1 - x0 || 1) * 600).toFixed(1) + " " + (126 - (y - low) / (high - low || 1) * 122).toFixed(1));
    path.setAttribute("d", "M" + parts.join("L"));
    svg.append(path);
    return box;
}

/* A bar of shares with its words below. */
function shareBar(box, parts, className, words) {
    const bar = make("div", undefined, className), sum = parts.reduce((a, [, v]) => a + v, 0);
    parts.forEach(([name, v], i) => { const p = make("span", undefined, "p" + i % 5); p.style.flex = String(v / sum); p.title = name + " " + (100 * v / sum).toFixed(0) + " %"; bar.append(p); });
    box.append(bar, words);
}

function makeRun(run) {
    const box = make("article"), head = make("header");
    head.append(make("h3", run.name));
    if (run.status) head.append(make("span", run.status, "pill " + run.status));
    if (run.summary) head.append(make("p", run.summary));
    if (run.written) { const when = make("p", "written " + new Date(run.written * 1000).toLocaleString()); when.id = "when"; head.append(when); }
    box.append(head);
    const names = ["compute", "data", "communication", "idle", "other"], sum = (run.parts || []).reduce((a, b) => a + b, 0);
    if (sum > 0) shareBar(box, run.parts.map((v, i) => [names[i], v]), "parts", make("p", run.parts.map((v, i) => names[i] + " " + (100 * v / sum).toFixed(0) + " %").join(", ")));
    const wall = (run.ledger || []).reduce((a, [, v]) => a + v, 0);
    if (wall > 0) shareBar(box, run.ledger, "parts ledger", make("p", "wall time " + span(wall) + ": " + run.ledger.map(([name, v]) => name + " " + (100 * v / wall).toFixed(1) + " %").join(", "), "goodput"));
    return { box, view: putRun(box, run) };
}

/* Runs that did not change, and those that somebody points into, stay as they are. */
const shownRuns = new Map();
function drawRuns() {
    find("runs").hidden = board.runs.length === 0;
    const boxes = board.runs.map((run, i) => {
        const key = run.name + "/" + i, mark = JSON.stringify([run.summary, run.status, run.ledger]), old = shownRuns.get(key);
        if (old && (old.mark === mark || old.view.isHovered)) return old.box;
        const made = { mark, ...makeRun(run) };
        shownRuns.set(key, made);
        return made.box;
    });
    const list = find("run-list");
    if (boxes.length !== list.children.length || boxes.some((box, i) => list.children[i] !== box)) list.replaceChildren(...boxes);
    for (const shown of shownRuns.values()) if (!shown.isDrawn) { drawView(shown.view); shown.isDrawn = true; }
}

function table(heads, rows) {
    const t = make("table"), head = make("tr"), top = make("thead"), body = make("tbody"), box = make("div", undefined, "scroll");
    for (const h of heads) head.append(make("th", h));
    top.append(head);
    for (const row of rows) { const line = make("tr"); for (const cell of row) { const box = make("td", cell instanceof Node ? undefined : cell); if (cell instanceof Node) box.append(cell); line.append(box); } body.append(line); if (row.note) { const said = make("tr"), cell = make("td", row.note, "note"); cell.colSpan = heads.length; said.append(cell); body.append(said); } }
    t.append(top, body);
    box.append(t);
    return box;
}

const count = (n) => n < 1e6 ? String(n) : short(n);
const ms = (s) => s === null || s === undefined ? "-" : s >= 10 ? s.toFixed(1) + " s" : s >= 0.1 ? (1000 * s).toFixed(0) + " ms" : (1000 * s).toFixed(2) + " ms";
const percent = (v) => v === null || v === undefined ? "-" : (100 * v).toFixed(0) + " %";
function drawServers() {
    const servers = board.servers || [];
    find("servers").hidden = servers.length === 0;
    find("server-list").replaceChildren(...servers.map((server) => {
        const box = make("article"), charts = make("div", undefined, "row"), now = server.now, idle = !server.alive;
        box.append(make("h3", server.name), make("p", (idle ? "ended; " : "") + (idle ? 0 : now.running) + " running, " + (idle ? 0 : now.waiting) + " waiting, " + count(server.requests) + " requests, cache " + percent(now.pages ? now.held / now.pages : null) + " held, " + percent(now.hit_share) + " of prompts found in it" + (now.preemptions ? ", " + count(now.preemptions) + " preemptions" : ""), "standing"));
        for (const [key, label] of [["answer_tokens_s", "answer tokens/s"], ["prompt_tokens_s", "prompt tokens/s"], ["running", "requests in a pass"], ["waiting", "requests waiting"], ["held", "share of the cache held"]])
            if (server[key].some((p) => p[1] > 0)) charts.append(chart(server[key], label + ":"));
        box.append(make("figcaption", "The last five minutes"), charts);
        box.append(table(["of the last requests", "p50", "p90", "p99"], [["first token", server.first], ["between tokens", server.inter], ["queue", server.queue]].map(([name, values]) => [name, ...values.map(ms)])));
        box.append(table(["request", "", "prompt", "cached", "answer", "queue", "first", "between", "came"], server.last.map((r) => [r.id || "-", r.outcome, count(r.prompt), count(r.cached), count(r.answer), ms(r.queue), ms(r.first), ms(r.inter), r.ago === null ? "-" : span(r.ago) + " ago"])));
        return box;
    }));
}

function draw() {
    const out = board.nodes.filter((n) => kind(n.status) === "drain").length, gone = board.nodes.filter((n) => kind(n.status) === "gone").length;
    find("summary").textContent = isFrozen ? "" : board.nodes.length + (board.nodes.length === 1 ? " node" : " nodes") + (out ? ", " + out + " to drain" : "") + (gone ? ", " + gone + " not answering" : "") + (board.ranks.length ? ", " + board.ranks.length + " ranks" : "") + ((board.servers || []).length ? ", " + board.servers.length + (board.servers.length === 1 ? " server" : " servers") : "");
    find("cluster").hidden = board.nodes.length === 0;
    if (opened === null && board.nodes.length === 1) opened = board.nodes[0].node;
    drawAlerts(); drawNodes(); drawNode(); drawMesh(board.ranks); drawRanks(); drawServers(); drawRuns();
    document.body.dataset.ready = "yes";
}

walkable(find("nodes"), () => [shownNodes.length, spots, at], (i) => { at = i; drawNodes(); }, (i) => { opened = shownNodes[i].node; drawNode(); });
walkable(find("places"), () => [meshSpots.length, meshSpots, meshAt], (i) => { meshAt = i; drawMesh(board.ranks); }, (i) => { meshOpened = i; drawMesh(board.ranks); });
addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

async function follow() {
    try {
        const response = await fetch("v1/board?recent=1", { headers, cache: "no-store" });
        if (!response.ok) throw new Error(response.status === 401 ? "a token is needed: add #token=... to the address" : "the server answered " + response.status);
        board = await response.json();
        heard = Date.now();
        find("age").textContent = "";
        draw();
    } catch (error) {
        find("age").textContent = (heard ? "last heard " + ago(heard / 1000) + ": " : "") + error.message;
    }
    setTimeout(follow, 500);
}
/* A report: one run, and nothing to ask. */
function freeze(text) {
    board = JSON.parse(text);
    const run = board.runs[0];
    isFrozen = true;
    find("alerts").hidden = find("runs-title").hidden = true;
    document.title = run.name + " \u2013 Ashlar";
    find("title").textContent = run.name;
    draw();
    if (run.running) setTimeout(() => location.reload(), 10000);
}
const frozen = find("frozen").textContent.trim();
if (frozen) freeze(frozen); else follow();
