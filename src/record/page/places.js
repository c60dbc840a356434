/* Where things stand: nodes below their switches, ranks in their mesh. Both are squares in named groups on one canvas, with one stop of
 * the Tab key, arrow keys between squares, and Enter to open one. */
const byName = (a, b) => a.localeCompare(b, "en", { numeric: true });
/* Items by a name, in the order in which names come. */
function groupBy(items, nameOf) {
    const groups = new Map();
    for (const item of items) { const name = nameOf(item); if (!groups.has(name)) groups.set(name, []); groups.get(name).push(item); }
    return [...groups].map(([name, list]) => ({ name, items: list }));
}

/* Groups side by side, as wide as there is room. Names stand above their squares where there are few of them. width: squares in a row. */
function layGroups(groups, room, cell, width) {
    const named = groups.length <= 80 && groups.some((group) => group.name), spots = [], names = [], single = groups.length <= 1 && !width;
    const across = Math.max(1, Math.floor(room / cell)), high = named ? 15 : 0, gap = single ? 0 : Math.max(4, cell / 2);
    let x = 0, y = 0, tallest = 0;
    for (const group of groups) {
        const columns = Math.min(across, width || (single ? across : Math.ceil(Math.sqrt(group.items.length)))), rows = Math.ceil(group.items.length / columns);
        const wide = Math.min(room, Math.max(columns * cell, named ? 7 * Math.min(14, group.name.length) : 0));
        if (x > 0 && x + wide > room) { x = 0; y += tallest + gap; tallest = 0; }
        if (named) names.push([group.name.length > 14 ? group.name.slice(0, 6) + "\u2026" + group.name.slice(-7) : group.name, x, y + 11]);
        group.items.forEach((item, i) => spots.push([x + (i % columns) * cell, y + high + Math.floor(i / columns) * cell]));
        tallest = Math.max(tallest, high + rows * cell);
        x += wide + gap;
    }
    return { spots, names, cell, height: Math.max(cell, y + tallest) };
}

function drawGroups(g, plan, colorOf, chosen) {
    const side = plan.cell - (plan.cell > 8 ? 2 : 1);
    g.font = "11px system-ui, sans-serif";
    g.fillStyle = color("quiet");
    for (const [name, x, y] of plan.names) g.fillText(name, x, y);
    plan.spots.forEach(([x, y], i) => { g.fillStyle = colorOf(i); g.fillRect(x, y, side, side); });
    if (chosen < 0 || !plan.spots[chosen]) return;
    g.strokeStyle = color("ink");
    g.lineWidth = 2;
    g.strokeRect(plan.spots[chosen][0] + 1, plan.spots[chosen][1] + 1, side - 2, side - 2);
}

/* The square next to one, straight up or down. */
function nearest(spots, from, down) {
    let best = from, least = Infinity;
    const [x0, y0] = spots[from];
    spots.forEach(([x, y], i) => {
        const dy = (y - y0) * (down ? 1 : -1), far = dy * 4 + Math.abs(x - x0);
        if (dy > 0 && far < least) { least = far; best = i; }
    });
    return best;
}

/* state: how many squares, where, which is chosen. */
function walkable(canvas, state, choose, open) {
    canvas.addEventListener("keydown", (e) => {
        const [count, spots, now] = state();
        if (!count) return;
        if (e.key === "Enter" || e.key === " ") open(Math.min(now, count - 1));
        else {
            const next = { ArrowLeft: () => now - 1, ArrowRight: () => now + 1, ArrowUp: () => nearest(spots, now, false), ArrowDown: () => nearest(spots, now, true), Home: () => 0, End: () => count - 1 }[e.key];
            if (!next) return;
            choose(Math.min(count - 1, Math.max(0, next())));
        }
        e.preventDefault();
    });
    canvas.addEventListener("click", (e) => {
        const [, spots] = state(), i = spots.findIndex(([x, y]) => e.offsetX >= x && e.offsetY >= y && e.offsetX < x + lastCell(spots) && e.offsetY < y + lastCell(spots));
        if (i >= 0) { choose(i); open(i); }
    });
    canvas.addEventListener("focus", () => choose(Math.min(state()[2], Math.max(0, state()[0] - 1))));
    canvas.addEventListener("blur", () => choose(state()[2]));
}
/* The distance of neighbours: the squares of a group are a cell apart. */
const lastCell = (spots) => spots.length > 1 && spots[1][1] === spots[0][1] ? spots[1][0] - spots[0][0] : 22;

/* ---- the mesh: neighbours along tp, cp and ep in a row, fsdp and dp below each other, a group for each stage of a pipeline ---- */
const axes = ["tp", "cp", "ep", "fsdp", "dp", "pp"];
let meshSpots = [], meshRanks = [], meshAt = 0, meshOpened = -1;
const middleOf = (list) => { const s = [...list].sort((a, b) => a - b); return s.length ? s[(s.length - 1) >> 1] : 0; };
/* Own work of a rank: the median of its last steps, in milliseconds. */
const ownWork = (rank) => middleOf(rank.steps.slice(-20).map((s) => s[1] + s[2]));
const fold = (rank, list) => list.reduce((sum, axis) => sum * rank.mesh[axis] + rank.at[axis], 0);
const late = (own, middle) => own > 1.1 * middle ? "slow" : own > 1.04 * middle ? "late" : "even";

/* One job's ranks: those of the newest step, with the mesh that most of them have. */
function meshOf(ranks) {
    const known = ranks.filter((r) => r.steps.length && (r.mesh || []).length === 6 && r.mesh.every((n) => n > 0));
    if (!known.length) return [[], []];
    const newest = known.reduce((a, b) => b.steps[b.steps.length - 1][0] > a.steps[a.steps.length - 1][0] ? b : a);
    const same = known.filter((r) => r.job === newest.job && r.run === newest.run && String(r.mesh) === String(newest.mesh));
    const order = (r) => [fold(r, [5]), fold(r, [4, 3]), fold(r, [2, 1, 0])];
    same.sort((a, b) => { const x = order(a), y = order(b); return x[0] - y[0] || x[1] - y[1] || x[2] - y[2]; });
    return [newest.mesh, same];
}

function drawMesh(all) {
    const [mesh, ranks] = meshOf(all), section = find("mesh");
    section.hidden = ranks.length < 2;
    meshRanks = ranks;
    if (section.hidden) { meshSpots = []; return; }
    const own = ranks.map(ownWork), middle = middleOf(own), canvas = find("places"), row = mesh[0] * mesh[1] * mesh[2];
    const cell = ranks.length > 4000 ? 6 : ranks.length > 600 ? 9 : ranks.length > 60 ? 14 : 22;
    const plan = layGroups(groupBy(ranks, (r) => mesh[5] > 1 ? "stage " + r.at[5] : ""), canvas.parentElement.clientWidth, cell, row > 1 ? row : undefined);
    const [g] = fit(canvas, plan.height), colors = { even: color("good"), late: color("doubt"), slow: color("out"), ended: color("quiet") };
    const state = (i) => ranks[i].alive ? late(own[i], middle) : "ended";
    meshSpots = plan.spots;
    drawGroups(g, plan, (i) => colors[state(i)], document.activeElement === canvas ? meshAt : -1);
    find("mesh-help").textContent = axes.map((name, i) => [name, mesh[i]]).filter(([, n]) => n > 1).map(([name, n]) => name + "=" + n).join(" ") + ": " + (row > 1 ? "neighbours in a row share " + axes.slice(0, 3).filter((_, i) => mesh[i] > 1).join(", ") : "all are replicas or shards") + (mesh[5] > 1 ? "; a group is a stage" : "") + ".";
    const words = { even: "at the pace of the others", late: "over 4 % slower", slow: "over 10 % slower", ended: "ended" }, kinds = { even: "healthy", late: "doubtful", slow: "drain", ended: "gone" }, counts = {};
    ranks.forEach((_, i) => { counts[state(i)] = (counts[state(i)] || 0) + 1; });
    find("mesh-legend").replaceChildren(...Object.keys(words).filter((k) => counts[k]).flatMap((k) => [make("span", "", "key " + kinds[k]), document.createTextNode(counts[k] + " " + words[k])]));
    const chosen = ranks[meshOpened], box = find("place");
    if (!chosen) { box.replaceChildren(); return; }
    const list = make("dl"), put = (name, value) => list.append(make("dt", name), make("dd", value));
    put("rank", String(chosen.rank) + (chosen.alive ? "" : ", ended"));
    put("place", axes.map((name, i) => [name, i]).filter(([, i]) => mesh[i] > 1).map(([name, i]) => name + " " + chosen.at[i]).join(", "));
    put("own work", own[meshOpened].toFixed(1) + " ms a step, " + (middle > 0 ? (100 * (own[meshOpened] / middle - 1)).toFixed(1) + " % against the median" : ""));
    box.replaceChildren(list);
}
