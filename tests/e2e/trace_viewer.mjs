// Opens traces in speedscope, which nobody here wrote. usage: trace_viewer.mjs BROWSER FILE TEXT... [-- FILE TEXT...]: the viewer takes
// FILE without a complaint, and its list of rows and names has every TEXT.
import assert from "node:assert/strict";
import fs from "node:fs";
import { chromium } from "playwright-core";

const [executablePath, ...words] = process.argv.slice(2);
const index = fs.realpathSync("node_modules/speedscope/dist/release/index.html");
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"] });
const jobs = words.join("\n").split("\n--\n").map((job) => job.split("\n"));
for (const [file, ...texts] of jobs) {
    const page = await (await browser.newContext()).newPage(), complaints = [];
    page.setDefaultTimeout(120000);
    page.on("console", (m) => { if (["warning", "error"].includes(m.type()) && !/WebGL|GL Driver|GPU/.test(m.text())) complaints.push(m.text()); });
    page.on("pageerror", (e) => complaints.push(e.message));
    await page.goto("file://" + index);
    await page.setInputFiles("input[type=file]", file);
    await page.waitForFunction((name) => document.title.startsWith(name), file.split("/").pop());
    await page.keyboard.press("3"); // the table of names
    await page.waitForFunction(() => /Symbol Name/.test(document.body.textContent));
    for (const text of texts) await page.waitForFunction((t) => document.body.textContent.includes(t), text);
    assert.deepEqual(complaints, [], file);
    await page.context().close();
}
await browser.close();
