// Takes pictures of pages with a browser, driven through a pipe (Chrome DevTools Protocol); no package is needed.
// usage: pictures.mjs BROWSER PROFILE JOBS.json   JOBS: [{url, out, width, height, ready, act, part}]
//   ready   an expression that becomes true when the page shows what the picture needs
//   act     statements to run before that (a click, a question); part: only this element (a selector); else the whole page
import { spawn } from "node:child_process";
import fs from "node:fs";

const [browser, profile, jobs] = process.argv.slice(2);
const child = spawn(browser, ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
    `--user-data-dir=${profile}`, "about:blank"], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
const waiting = new Map();
let next = 0, text = "";
child.stdio[4].on("data", (bytes) => {
    text += bytes.toString();
    for (let end; (end = text.indexOf("\0")) >= 0; text = text.slice(end + 1)) {
        const message = JSON.parse(text.slice(0, end)), call = waiting.get(message.id);
        if (!call) continue; // an event
        waiting.delete(message.id);
        message.error ? call.reject(new Error(message.error.message)) : call.resolve(message.result);
    }
});
const send = (method, params = {}, sessionId) => new Promise((resolve, reject) => {
    waiting.set(++next, { resolve, reject });
    child.stdio[3].write(JSON.stringify({ id: next, method, params, sessionId }) + "\0");
});

async function take({ url, out, width = 1100, height = 900, ready = "true", act = "", part = "" }) {
    const { targetId } = await send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
    const page = (method, params) => send(method, params, sessionId);
    const evaluate = async (expression) => {
        const answer = await page("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
        if (answer.exceptionDetails) throw new Error(`${url}: ${expression}: ${answer.exceptionDetails.exception?.description}`);
        return answer.result.value;
    };
    const until = async (expression) => {
        for (const end = Date.now() + 300000; ; await new Promise((wait) => setTimeout(wait, 200))) {
            if (await evaluate(`(() => { try { return Boolean(${expression}) } catch { return false } })()`)) return;
            if (Date.now() > end) throw new Error(`${url}: waited for ${expression}`);
        }
    };
    await page("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
    await page("Page.navigate", { url });
    await until("document.readyState === 'complete' && location.href !== 'about:blank'");
    if (act) await evaluate(`(async () => { ${act} })()`);
    await until(ready);
    const box = await evaluate(`(() => { const b = (${JSON.stringify(part)} ? document.querySelector(${JSON.stringify(part)}) : document.documentElement).getBoundingClientRect();
        return { x: b.x + scrollX, y: b.y + scrollY, width: Math.min(b.width, ${width}), height: b.height }; })()`);
    const { data } = await page("Page.captureScreenshot", { clip: { ...box, scale: 1 }, captureBeyondViewport: true });
    fs.writeFileSync(out, Buffer.from(data, "base64"));
    await send("Target.closeTarget", { targetId });
    console.log(out);
}

try {
    for (const job of JSON.parse(fs.readFileSync(jobs, "utf8"))) await take(job);
} finally {
    child.kill();
}
