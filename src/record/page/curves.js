/* Curves of a run: tiles, facts, charts with one cursor over all of them. Used live and in the report of a run, which is
 * the same page with its data inside. A series is {step, mean, low, high}; low and high are empty where each step has its
 * own point. */
/* ---- numbers for people ---- */
function show(v) {
  if (v === null || v === undefined || !isFinite(v)) return "–";
  const a = Math.abs(v);
  if (a === 0) return "0";
  if (a >= 1e9) return trim(v / 1e9) + "G";
  if (a >= 1e6) return trim(v / 1e6) + "M";
  if (a >= 1e4) return trim(v / 1e3) + "k";
  if (a <= 1.0001e-3) return v.toExponential(2).replace(/\.?0+e/, "e");
  return trim(v);
}
function trim(v) { return String(+v.toPrecision(4)); }
/* The labels of an axis, all in one form: one unit, one number of digits, or all as powers of ten. */
function showTicks(ticks) {
  const most = Math.max(...ticks.map(Math.abs)), step = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : most;
  if (most < 1e-2 && most > 0) return ticks.map(t => t === 0 ? "0" : t.toExponential(1).replace(".0e", "e"));
  const [unit, scale] = most >= 1e9 ? ["G", 1e9] : most >= 1e6 ? ["M", 1e6] : most >= 1e4 ? ["k", 1e3] : ["", 1];
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / scale) - 1e-9) + (/^2\.?5/.test((step / scale).toExponential()) ? 1 : 0)));
  return ticks.map(t => t === 0 ? "0" : (t / scale).toFixed(digits) + unit);
}
function group(n) { return String(n).replace(/\B(?=(\d{3})+$)/g, ","); }
function last(list) { for (let i = list.length - 1; i >= 0; i--) if (list[i] !== null) return list[i]; return null; }
function put(tag, parent, attributes, text) {
  const svg = ["svg", "g", "path", "line", "text", "circle", "rect", "clipPath"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const k in attributes || {}) node.setAttribute(k, attributes[k]);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

/* A run as the log's reader has it (points of each curve) in the form of a report. */
function adoptRun(run) {
  if (!Array.isArray(run.loss)) {
    for (const name of ["loss", "lr", "norm", "speed"]) run[name].step = run.step;
    return run;
  }
  const series = (points) => ({ step: (points || []).map((p) => p[0]), mean: (points || []).map((p) => Number.isFinite(p[1]) ? p[1] : null), low: [], high: [] });
  return { ...run, loss: series(run.loss), lr: series(run.lr), norm: series(run.norm), speed: series(run.tokens_s), valid: (run.valid || []).filter((p) => Number.isFinite(p[1])), skipped: [], facts: [] };
}

/* ---- the top of a run ---- */
function putTile(parent, label, value, unit, share) {
  const box = put("div", parent, { class: "card tile" });
  put("small", box, {}, label);
  const b = put("b", box, {}, value);
  if (unit) put("span", b, {}, " " + unit);
  if (share !== undefined) put("div", put("div", box, { class: "track" })).style.width = 100 * share + "%";
}
function putTop(parent, run) {
  const done = last(run.loss.step) || 0, speeds = run.speed.mean.filter((v) => v !== null), tiles = put("section", parent, { class: "tiles" });
  putTile(tiles, "step", group(done), run.total ? "of " + group(run.total) : "", run.total ? Math.min(1, done / run.total) : undefined);
  putTile(tiles, "training loss, smoothed", show(last(smooth(run.loss.mean))));
  if (run.valid.length) {
    const best = run.valid.reduce((a, b) => b[1] < a[1] ? b : a), now = run.valid[run.valid.length - 1];
    putTile(tiles, "validation loss", show(now[1]), best[0] !== now[0] ? "best " + show(best[1]) : "best");
  }
  putTile(tiles, "tokens per second, mean", show(speeds.length ? speeds.reduce((a, b) => a + b) / speeds.length : null));
  if (run.skipped.length) putTile(tiles, "skipped steps", group(run.skipped.length));
  if (!run.facts.length) return;
  const facts = put("dl", parent, { class: "card facts" });
  for (const [label, value] of run.facts) {
    const row = put("div", facts);
    put("dt", row, {}, label);
    put("dd", row, {}, value);
  }
}

/* ---- curves ---- */
const logScales = new Set(); /* charts that a reader switched, by run and series */
/* Running mean that forgets over a sixtieth of the run, corrected at the start; walked both ways, so that it does not lag. */
function smooth(values) {
  const forward = forget(values), backward = forget(values.slice().reverse()).reverse();
  return values.map((v, i) => v === null ? null : (forward[i] + backward[i]) / 2);
}
function forget(values) {
  const keep = 1 - 1 / Math.max(1, values.length / 60);
  let sum = 0, weight = 0;
  return values.map(v => {
    if (v === null) return null;
    sum = sum * keep + v * (1 - keep);
    weight = weight * keep + (1 - keep);
    return sum / weight;
  });
}
function niceTicks(low, high, count) {
  const raw = (high - low) / count, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(f => f * unit).find(s => s >= raw * .999);
  const ticks = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-6; v += step) ticks.push(Math.abs(v) < step * 1e-6 ? 0 : v);
  return ticks;
}
function logTicks(low, high) {
  const ticks = [];
  const wide = high - low > 2.2;
  for (let e = Math.floor(low); e <= Math.ceil(high); e++)
    for (const f of wide ? [1] : [1, 2, 5]) ticks.push(f * 10 ** e);
  return ticks.filter(t => Math.log10(t) >= low - 1e-9 && Math.log10(t) <= high + 1e-9);
}
/* The span of values to show. One wild value must not flatten all others: beyond five times the 98th percentile it is cut off. */
function rangeOf(lists, log) {
  const all = lists.flat().filter(v => v !== null && (!log || v > 0)).sort((a, b) => a - b);
  if (!all.length) return log ? [-1, 1] : [0, 1];
  let low = all[0], high = all[all.length - 1];
  const usual = all[Math.floor(all.length * .98)];
  if (!log && usual > 0 && high > 5 * usual) high = 1.6 * usual;
  if (log) {
    low = Math.log10(low); high = Math.log10(high);
    const pad = Math.max(.05, (high - low) * .06);
    return [low - pad, high + pad];
  }
  const pad = (high - low || Math.abs(high) || 1) * .06;
  return [low >= 0 && low - pad < .25 * (high - low) ? 0 : low - pad, high + pad];
}

function addChart(view, parent, spec) {
  const box = put("div", parent, { class: "card chart" + (spec.wide ? " wide" : "") }), head = put("div", box, { class: "head" });
  const series = view.run[spec.series], key = view.run.name + "/" + spec.series;
  put("h2", head, {}, spec.title);
  for (const [text, color] of spec.keys || []) {
    const mark = put("span", head, { class: "mark" });
    put("i", mark).style.background = "var(" + color + ")";
    mark.append(text);
  }
  const chart = { view, spec, series, log: logScales.has(key), plot: put("div", box, { class: "plot" }) };
  if (spec.toggle) {
    const button = put("button", head, { type: "button", "aria-pressed": String(chart.log) }, "log scale");
    button.addEventListener("click", () => {
      chart.log = !chart.log;
      logScales[chart.log ? "add" : "delete"](key);
      button.setAttribute("aria-pressed", String(chart.log));
      drawChart(chart);
    });
  }
  if (!series.step.length) { put("div", chart.plot, { class: "empty" }, "no steps yet"); return; }
  chart.tip = put("div", chart.plot, { class: "tip" });
  const over = (e) => { view.isHovered = true; hover(view, chart.unx(e.clientX - chart.plot.getBoundingClientRect().left)); };
  chart.plot.addEventListener("pointermove", over);
  chart.plot.addEventListener("pointerdown", over);
  chart.plot.addEventListener("pointerleave", () => { view.isHovered = false; hover(view, null); });
  view.charts.push(chart);
}

function pathOf(chart, steps, values) {
  let d = "", pen = false;
  values.forEach((v, i) => {
    if (v === null || (chart.log && v <= 0)) { pen = false; return; }
    d += (pen ? "L" : "M") + chart.x(steps[i]).toFixed(1) + " " + chart.y(v).toFixed(1);
    pen = true;
  });
  return d;
}
function bandOf(chart, series) {
  const at = series.step.map((s, i) => i).filter((i) => series.low[i] !== null && (!chart.log || series.low[i] > 0));
  const up = at.map((i) => chart.x(series.step[i]).toFixed(1) + " " + chart.y(series.high[i]).toFixed(1));
  const down = at.reverse().map((i) => chart.x(series.step[i]).toFixed(1) + " " + chart.y(series.low[i]).toFixed(1));
  return at.length > 1 ? "M" + up.concat(down).join("L") + "Z" : "";
}

function drawChart(chart) {
  const { spec, plot, series } = chart, run = chart.view.run, w = plot.clientWidth, h = plot.clientHeight;
  const m = { left: 50, right: 10, top: 10, bottom: 24 };
  if (w < 80) return;
  if (chart.svg) chart.svg.remove();
  const svg = chart.svg = put("svg", null, { viewBox: "0 0 " + w + " " + h, role: "img", "aria-label": spec.title });
  plot.prepend(svg);
  const lists = [series.mean, series.low, series.high];
  if (spec.valid) lists.push(run.valid.map(p => p[1]));
  const [y0, y1] = rangeOf(lists, chart.log), x0 = Math.min(series.step[0], 1), x1 = Math.max(last(series.step), x0 + 1);
  chart.x = s => m.left + (s - x0) / (x1 - x0) * (w - m.left - m.right);
  chart.unx = px => x0 + (px - m.left) / (w - m.left - m.right) * (x1 - x0);
  chart.y = v => m.top + (1 - ((chart.log ? Math.log10(v) : v) - y0) / (y1 - y0)) * (h - m.top - m.bottom);
  const id = "clip-" + chart.view.number + "-" + spec.series;
  put("rect", put("clipPath", svg, { id }), { x: m.left, y: 0, width: w - m.left - m.right + 4, height: h - m.bottom + 1 });
  const rows = (chart.log ? logTicks(y0, y1) : niceTicks(y0, y1, h > 220 ? 6 : 4))
    .filter(t => chart.y(t) > m.top - 1 && chart.y(t) < h - m.bottom + 1);
  const labels = chart.log ? rows.map(show) : showTicks(rows);
  rows.forEach((t, i) => {
    const y = chart.y(t);
    put("line", svg, { x1: m.left, x2: w - m.right, y1: y, y2: y, stroke: "var(--grid)" });
    put("text", svg, { x: m.left - 8, y: y + 4, "text-anchor": "end" }, labels[i]);
  });
  const columns = niceTicks(x0, x1, Math.max(4, Math.floor(w / 110))).filter(t => t === Math.round(t));
  showTicks(columns).forEach((text, i) => {
    const x = chart.x(columns[i]), half = text.length * 3.4; /* a label at an edge ends there instead of being cut off */
    const anchor = x + half > w ? "end" : x - half < 0 ? "start" : "middle";
    put("text", svg, { x: anchor === "end" ? w - 1 : anchor === "start" ? 1 : x, y: h - 6, "text-anchor": anchor }, text);
  });
  const body = put("g", svg, { "clip-path": "url(#" + id + ")" });
  for (const [s] of run.skipped)
    put("line", body, { x1: chart.x(s), x2: chart.x(s), y1: m.top, y2: h - m.bottom, stroke: "var(--skip)", "stroke-dasharray": "2 3", opacity: .6 });
  if (series.low.length) put("path", body, { d: bandOf(chart, series), fill: "var(" + spec.color + ")", opacity: .18 });
  const faint = spec.smooth && series.mean.length > 20;
  const line = { fill: "none", stroke: "var(" + spec.color + ")", "stroke-width": faint ? 1 : 1.8, "stroke-linejoin": "round", opacity: faint ? .4 : 1 };
  put("path", body, { ...line, d: pathOf(chart, series.step, series.mean) });
  if (faint) put("path", body, { ...line, d: pathOf(chart, series.step, smooth(series.mean)), "stroke-width": 2.2, opacity: 1 });
  if (spec.valid && run.valid.length) {
    const steps = run.valid.map(p => p[0]), values = run.valid.map(p => p[1]);
    put("path", body, { ...line, d: pathOf(chart, steps, values), stroke: "var(--valid)", "stroke-width": 2, opacity: 1 });
    if (run.valid.length <= 120)
      for (const [s, v] of run.valid)
        if (!chart.log || v > 0) put("circle", body, { cx: chart.x(s), cy: chart.y(v), r: 3.2, fill: "var(--valid)", stroke: "var(--paper)", "stroke-width": 1.2 });
  }
  chart.cursor = put("line", svg, { y1: m.top, y2: h - m.bottom, stroke: "var(--quiet)", "stroke-width": 1, visibility: "hidden" });
  chart.dot = put("circle", svg, { r: 4, fill: "var(" + spec.color + ")", stroke: "var(--paper)", "stroke-width": 1.5, visibility: "hidden" });
}

/* ---- hovering: one step, shown in every chart of a run ---- */
function indexAt(steps, s) {
  let low = 0, high = steps.length - 1;
  while (low < high) { const mid = (low + high) >> 1; if (steps[mid] < s) low = mid + 1; else high = mid; }
  return low > 0 && s - steps[low - 1] < steps[low] - s ? low - 1 : low;
}
function validAt(run, step) {
  let found = null;
  for (const p of run.valid) if (p[0] <= step) found = p;
  return found;
}
function fillTip(chart, i) {
  const { spec, tip, series } = chart, run = chart.view.run, step = series.step[i];
  const before = i > 0 ? series.step[i - 1] : 0, many = series.low.length && step - before > 1;
  tip.textContent = "";
  put("b", tip, {}, many ? "steps " + group(before + 1) + "\u2013" + group(step) : "step " + group(step));
  const row = (label, value) => { const d = put("div", tip); put("span", d, {}, label + " "); d.append(value); };
  row(spec.label, show(series.mean[i]));
  if (many && spec.series !== "lr") row("range", show(series.low[i]) + " \u2013 " + show(series.high[i]));
  const valid = spec.valid && validAt(run, step);
  if (valid) row("validation", show(valid[1]) + (valid[0] !== step ? " (step " + group(valid[0]) + ")" : ""));
  const skipped = run.skipped.filter((p) => p[0] > before && p[0] <= step);
  if (skipped.length === 1) row("skipped:", "loss " + show(skipped[0][1]) + ", norm " + show(skipped[0][2]));
  if (skipped.length > 1) row("skipped", skipped.length + " steps");
}
function hover(view, step) {
  for (const chart of view.charts) {
    if (!chart.cursor) continue;
    const on = step !== null, i = on ? indexAt(chart.series.step, step) : 0, value = on ? chart.series.mean[i] : null;
    const dotted = on && value !== null && (!chart.log || value > 0);
    chart.cursor.setAttribute("visibility", on ? "visible" : "hidden");
    chart.dot.setAttribute("visibility", dotted ? "visible" : "hidden");
    chart.tip.style.display = on ? "block" : "none";
    if (!on) continue;
    const x = chart.x(chart.series.step[i]);
    chart.cursor.setAttribute("x1", x);
    chart.cursor.setAttribute("x2", x);
    if (dotted) { chart.dot.setAttribute("cx", x); chart.dot.setAttribute("cy", Math.max(4, chart.y(value))); }
    fillTip(chart, i);
    const room = chart.plot.clientWidth - x - 14 > chart.tip.offsetWidth;
    chart.tip.style.left = (room ? x + 12 : Math.max(0, x - 12 - chart.tip.offsetWidth)) + "px";
  }
}

/* ---- answers to read ---- */
function putAnswers(box, { step, rows }) {
  if (!rows.length) return;
  const card = put("section", box, { class: "card answers" }), list = put("table", put("div", card, { class: "scroll" }));
  card.prepend(put("h2", null, {}, "Answers that step " + group(step) + " learned from"));
  const head = put("tr", put("thead", list)), body = put("tbody", list);
  for (const name of ["prompt", "answer", "wanted", "reward"]) put("th", head, {}, name);
  for (const [prompt, answer, wanted, reward] of rows) {
    const row = put("tr", body);
    for (const text of [prompt, answer, wanted, show(reward)]) put("td", row, {}, text);
  }
}

/* ---- a run ---- */
let viewCount = 0;
/* Everything of a run below its heading, into box. The caller calls drawView once it is on the page. */
function putRun(box, given) {
  const run = adoptRun(given), view = { run, charts: [], number: viewCount++, isHovered: false };
  putTop(box, run);
  const charts = put("section", box, { class: "charts" });
  addChart(view, charts, { title: "Loss", series: "loss", label: "loss", color: "--train", wide: true, smooth: true, valid: true, toggle: true,
    keys: [["training", "--train"]].concat(run.valid.length ? [["validation", "--valid"]] : [], run.skipped.length ? [["skipped steps", "--skip"]] : []) });
  addChart(view, charts, { title: "Learning rate", series: "lr", label: "rate", color: "--rate" });
  addChart(view, charts, { title: "Gradient norm", series: "norm", label: "norm", color: "--norm", smooth: true, toggle: true });
  addChart(view, charts, { title: "Tokens per second", series: "speed", label: "tokens/s", color: "--speed", smooth: true });
  (run.more ? run.more.curves : []).forEach((curve, i) => {
    run["more" + i] = { step: curve.step, mean: curve.mean, low: [], high: [] };
    addChart(view, charts, { title: curve.title, series: "more" + i, label: "value", color: "--train", smooth: true });
  });
  for (const answers of run.more ? run.more.answers : []) putAnswers(box, answers);
  new ResizeObserver(() => drawView(view)).observe(charts);
  return view;
}
function drawView(view) { view.charts.forEach(drawChart); }
