// Drives the chat page with a real browser. usage: serve_page.mjs BROWSER URL chat|base|think; pictures are left in this folder.
import assert from "node:assert/strict";
import http from "node:http";
import { chromium } from "playwright-core";

const [executablePath, server, kind] = process.argv.slice(2);
// Between browser and server: passes everything on, answers with pause_ms between their events, so that the test sees them grow.
// With mayCut, an answer stays without its end: after some events, which may hold several tokens each, it is cut once mayCut is kept.
let pause_ms = 0, closed = 0, mayCut = null;
const pause = () => new Promise((resolve) => setTimeout(resolve, pause_ms));
const proxy = http.createServer((from, to) => {
    const forward = http.request(server + from.url, { method: from.method, headers: from.headers }, async (answer) => {
        let passed = 0;
        to.writeHead(answer.statusCode, answer.headers);
        to.on("close", () => { if (!to.writableFinished) { closed++; forward.destroy(); } });
        try {
            for await (const chunk of answer)
                for (const event of pause_ms ? chunk.toString("latin1").split(/(?<=\n\n)/) : [chunk]) {
                    if (to.destroyed) return;
                    if (mayCut && (++passed === 12 || event.includes("[DONE]"))) { await mayCut; to.destroy(); forward.destroy(); return; }
                    to.write(event, "latin1");
                    if (pause_ms) await pause();
                }
        } catch { to.destroy(); } // one of the two has gone
        to.end();
    });
    forward.on("error", () => to.destroy());
    from.pipe(forward);
});
await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
const url = `http://127.0.0.1:${proxy.address().port}`;
const key = "secret", wait = 60000;
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const context = await browser.newContext({ viewport: { width: 900, height: 760 } });
const page = await context.newPage();
page.setDefaultTimeout(wait);
const complaints = [];
page.on("console", (m) => { if (m.type() === "error" && !/status of 401/.test(m.text())) complaints.push(m.text()); });
page.on("pageerror", (e) => complaints.push(e.message));
const forgive = (pattern) => complaints.splice(0, complaints.length, ...complaints.filter((text) => !pattern.test(text)));
// What is added to the page's requests, so that the model must write something; null: nothing.
let extra = null;
await page.route(/completions$/, (route) =>
    extra ? route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ...extra }) }) : route.continue());
const last = () => page.locator("article.assistant").last();
const isDone = () => page.locator("#send:visible").waitFor();
const type = async (text) => { await page.locator("#text").focus(); await page.keyboard.type(text); };
const ask = async (text) => { await type(text); await page.keyboard.press("Enter"); await isDone(); return (await last().locator(".body").textContent()).trim(); };
const load = async () => (await (await fetch(`${url}/load`)).json());
const until = async (what, check) => {
    for (const end = Date.now() + wait; Date.now() < end; await new Promise((r) => setTimeout(r, 50))) if (await check()) return;
    assert.fail(what);
};
const set = async (values) => {
    await page.locator("#open-settings").click();
    for (const [id, value] of Object.entries(values)) await page.locator(`#${id}`).fill(value);
    await page.getByRole("button", { name: "Done" }).click();
};
const says = (text) => ({ structured_outputs: { choice: [text] }, temperature: 0, max_tokens: text.length + 8 });
const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth);

const tests = {
    async "the key is asked for and used"() {
        await page.goto(url);
        await page.locator("#settings[open]").waitFor();
        assert.equal(await page.evaluate(() => document.activeElement.id), "key");
        await page.keyboard.type(key);
        await page.keyboard.press("Enter");
        await page.locator("#model option").waitFor({ state: "attached" });
        assert.equal(await page.locator("#model").inputValue(), "stories");
        assert.equal(await page.evaluate(() => document.activeElement.id), "text");
        assert.equal(await page.evaluate(() => Object.values(localStorage).join().includes("secret")), false);
    },
    async "the policy lets nothing else run"() {
        const response = await fetch(url), policy = response.headers.get("content-security-policy"), text = await response.text();
        assert.doesNotMatch(policy, /unsafe/);
        assert.match(policy, /default-src 'none'.*require-trusted-types-for 'script'/);
        const nonce = /'nonce-([0-9a-f]{32})'/.exec(policy)[1];
        assert.equal(text.split(`nonce="${nonce}"`).length, 3);
        assert.doesNotMatch(text, /\{\{|\son\w+=|https?:\/\/(?!\/)[a-z]/);
        assert.notEqual(nonce, /'nonce-([0-9a-f]+)'/.exec((await fetch(url)).headers.get("content-security-policy"))[1]);
        await assert.rejects(page.evaluate(() => { document.createElement("div").innerHTML = "<b>x</b>"; }), /TrustedHTML/);
        forgive(/TrustedHTML/);
    },
    async "an answer streams, and is the API's"() {
        await set({ temperature: "0.7", seed: "7", max_tokens: "60", system: "You tell stories" });
        await page.evaluate(() => {
            window.seen = new Set();
            new MutationObserver(() => seen.add(document.querySelector("article.assistant.writing .body")?.textContent.length)).observe(document.getElementById("messages"), { childList: true, subtree: true, characterData: true });
        });
        pause_ms = 20;
        let text, grew = false;
        for (let i = 0, seen = 0; i < 10 && seen < 3; i++) { // a busy server puts many tokens into an event
            await page.locator("#new").click();
            await page.evaluate(() => window.seen.clear());
            text = await ask("Tell me a story");
            seen = await page.evaluate(() => [...window.seen].filter((length) => length > 0).length);
            grew ||= seen >= 3;
        }
        pause_ms = 0;
        assert.ok(grew, "it came in one piece");
        const messages = [{ role: "system", content: "You tell stories" }, { role: "user", content: "Tell me a story" }];
        const whole = await (await fetch(`${url}/v1/chat/completions`, {
            method: "POST", headers: { authorization: `Bearer ${key}` }, body: JSON.stringify({ messages, temperature: 0.7, seed: 7, max_tokens: 60 }),
        })).json();
        const plain = (s) => s.replace(/[\s*_`#>-]+/g, "");
        assert.equal(plain(text), plain(whole.choices[0].message.content));
        assert.match(await last().locator("footer").textContent(), new RegExp(`${whole.usage.completion_tokens} tokens · [\\d.]+ tokens/s · first after [\\d.]+ s · prompt \\d+`));
    },
    async "regenerate gives the same for a seed, another without"() {
        const before = await last().locator(".body").textContent();
        await last().getByRole("button", { name: "Regenerate" }).click();
        await isDone();
        assert.equal(await last().locator(".body").textContent(), before);
        await set({ seed: "" });
        await last().getByRole("button", { name: "Regenerate" }).click();
        await isDone();
        assert.notEqual(await last().locator(".body").textContent(), before);
        assert.equal(await page.locator("article").count(), 2);
    },
    async "Arrow up edits the last message, Escape leaves it, Enter asks again"() {
        await page.locator("#text").focus();
        await page.keyboard.press("ArrowUp");
        await page.keyboard.type("nothing");
        await page.keyboard.press("Escape");
        assert.equal(await page.locator("article.user .body").textContent(), "Tell me a story");
        await page.locator("article.user").getByRole("button", { name: "Edit" }).press("Enter");
        await page.keyboard.press("ControlOrMeta+A");
        await page.keyboard.type("The dog");
        await page.keyboard.press("Enter");
        await isDone();
        assert.equal(await page.locator("article").count(), 2);
        assert.equal(await page.locator("article.user .body").textContent(), "The dog");
    },
    async "Escape stops the answer, and the server"() {
        await page.locator("#new").click();
        extra = { ignore_eos: true, max_tokens: 400 };
        pause_ms = 50;
        mayCut = new Promise(() => {}); // never
        const before = closed;
        await type("Once upon a time");
        await page.keyboard.press("Enter");
        await last().locator(".body > *").first().waitFor();
        await page.keyboard.press("Escape");
        await isDone();
        assert.match(await last().locator("footer").textContent(), /stopped/);
        await until("the connection stays", () => closed === before + 1);
        pause_ms = 0;
        mayCut = null;
        await until("the server continues", async () => { const l = await load(); return l.running === 0 && l.waiting === 0; });
        extra = null;
    },
    async "an answer that is cut says so and keeps its text"() {
        await page.locator("#new").click();
        extra = { ignore_eos: true, max_tokens: 60 }; // longer than the cut
        pause_ms = 5;
        let cut;
        mayCut = new Promise((resolve) => { cut = resolve; });
        await type("Once upon a time");
        await page.keyboard.press("Enter");
        await last().locator(".body > *").first().waitFor(); // before it has anything, a browser may simply ask again
        cut();
        await isDone();
        pause_ms = 0;
        mayCut = null;
        extra = null;
        assert.match(await last().locator(".error").textContent(), /network|connection/);
        assert.notEqual(await last().locator(".body").textContent(), "");
        assert.match(await last().locator("footer").textContent(), /\d+ tokens/);
        await until("the browser does not notice", () => complaints.some((text) => /ERR_|Failed to load/.test(text)));
        forgive(/ERR_|Failed to load/);
    },
    async "what a model writes stays text"() {
        await page.locator("#new").click();
        const hostile = "<img src=x onerror=window.hit=1><script>window.hit=2</script> [a](javascript:window.hit=3)";
        extra = says(hostile);
        const text = await ask("x");
        assert.equal(text, hostile.replace("[a](javascript:window.hit=3)", "a"));
        assert.equal(await page.locator("#messages img, #messages script, #messages a").count(), 0);
        assert.equal(await page.evaluate(() => window.hit), undefined);
        extra = null;
    },
    async "markdown becomes nodes"() {
        await page.locator("#new").click();
        extra = says("# A\n\n- **b** `<i>`\n  1. c\n\n```js\nd()\n```\n\n|e|f|\n|-|-|\n|g|h|");
        await ask("x");
        const body = last().locator(".body");
        const count = (selector) => body.locator(selector).count();
        assert.deepEqual([await count("h1"), await count("ul > li > strong"), await count("ul > li > code"), await count("ul ol > li"), await count(".code pre code"), await count("table th"), await count("table td")], [1, 1, 1, 1, 1, 2, 2]);
        extra = null;
        // Long or hostile texts take no long time, whole or as a stream.
        const markdown_ms = () => page.evaluate(() => {
            const start = performance.now(), box = document.createElement("div");
            for (const piece of ["*", "**a ", "_a", "`", "``a`", "[a](", "![", "> ", "- ", "  - ", "|-", "~~~\n", "1. a\n", "https://", "\\", "#", "a|b\n-|-\n", "*a _b "])
                markdown.render(box, piece.repeat(20000));
            return performance.now() - start;
        });
        let ms = Infinity;
        for (let i = 0; i < 5 && ms >= 15000; i++) ms = await markdown_ms(); // one of them undisturbed
        assert.ok(ms < 15000, `markdown took ${ms} ms`);
        const same = await page.evaluate(() => {
            const text = "# h\n\nA *b* **c** `d`\n\n1. x\n2. y\n   - z\n\n> q\n> r\n\n```c\nint a;\n\n```\n\nlast https://a.b/c_d, end";
            const whole = document.createElement("div"), parts = document.createElement("div");
            markdown.render(whole, text);
            for (let i = 1; i <= text.length; i++) markdown.render(parts, text.slice(0, i));
            return [whole.outerHTML, parts.outerHTML];
        });
        assert.equal(same[0], same[1]);
    },
    async "tool calls are shown, and their results sent"() {
        await page.locator("#new").click();
        await set({ tools: JSON.stringify([{ type: "function", function: { name: "get_weather", parameters: { type: "object", properties: { city: { enum: ["Paris"] } }, required: ["city"], additionalProperties: false } } }]) });
        extra = { tool_choice: "required", parallel_tool_calls: false, temperature: 0, max_tokens: 200 }; // one call, whole
        await ask("Weather?");
        assert.equal(await last().locator(".call strong").textContent(), "get_weather");
        assert.deepEqual(JSON.parse(await last().locator(".call pre").textContent()), { city: "Paris" });
        extra = { tool_choice: "none", ...says("Rain.") };
        await page.getByLabel("Result of get_weather").fill("rain");
        await page.getByRole("button", { name: "Send result" }).click();
        await page.locator("article.assistant").nth(1).waitFor();
        await isDone();
        assert.equal(await page.locator("article.tool .body").textContent(), "rain");
        assert.equal((await last().locator(".body").textContent()).trim(), "Rain.");
        extra = null;
        await set({ tools: "" });
    },
    async "an error says what is wrong"() {
        await set({ max_tokens: "100000" });
        await ask("x");
        assert.match(await last().locator(".error").textContent(), /512/);
        await set({ max_tokens: "40" });
        await page.locator("#new").click();
        await ask("y");
        assert.equal(await last().locator(".error").count(), 0);
        forgive(/status of 400/);
    },
    async "a reload keeps the conversation"() {
        const count = await page.locator("article").count();
        await page.reload();
        assert.equal(await page.locator("article").count(), count);
        assert.equal(await page.locator("#max_tokens").inputValue(), "40");
    },
    async "pictures: wide and narrow, light and dark"() {
        await page.locator("#new").click();
        extra = says("There are **two** ways:\n\n1. `sort -u` on *short* lists\n2. a hash set on long ones\n\n```c\nqsort(list, n, size, by_value);\n```");
        await ask("How do I remove duplicates?");
        extra = null;
        for (const [name, width, colorScheme] of [["wide-light", 900, "light"], ["wide-dark", 900, "dark"], ["narrow-light", 380, "light"], ["narrow-dark", 380, "dark"]]) {
            await page.setViewportSize({ width, height: width === 380 ? 700 : 600 });
            await page.emulateMedia({ colorScheme });
            await page.screenshot({ path: `${name}.png` });
            assert.ok(await fits(), `${name} is wider than the window`);
        }
        await page.locator("#open-settings").click();
        await page.screenshot({ path: "narrow-settings.png" });
        assert.ok(await fits());
        await page.keyboard.press("Escape");
        // Every control is reached by Tab.
        const reached = new Set();
        await page.locator("#text").focus();
        for (let i = 0; i < 20; i++) { await page.keyboard.press("Tab"); reached.add(await page.evaluate(() => document.activeElement.id || document.activeElement.textContent)); }
        for (const name of ["send", "model", "new", "open-settings", "text", "Edit", "Regenerate", "Copy"]) assert.ok(reached.has(name), `${name} is not reached: ${[...reached]}`);
    },
};
const baseTests = {
    async "a base model continues the text"() {
        await page.goto(url);
        await set({ temperature: "0", max_tokens: "8" });
        assert.match(await ask("Once upon a time"), /there was a little/);
        assert.match(await page.locator("#state").textContent(), /no chat template/);
        await set({ max_tokens: "" }); // without a limit it goes on, far beyond the 16 tokens of the API's default
        assert.ok((await ask(" and")).length > 200, "a text stops early");
        forgive(/status of 400/);
    },
};
const thinkTests = {
    async "thoughts are apart"() {
        extra = says("<think>why</think>because");
        await page.goto(url);
        await ask("x");
        assert.equal((await last().locator("details > div").textContent()).trim(), "why");
        assert.match(await last().textContent(), /because/);
        assert.equal((await last().locator(".body").textContent()).trim(), "because");
        extra = null;
    },
};

let failures = 0;
for (const [name, test] of Object.entries({ chat: tests, base: baseTests, think: thinkTests }[kind])) {
    try {
        await test();
        assert.deepEqual(complaints.splice(0), []);
    } catch (error) {
        failures++;
        console.error(`FAIL: ${name}: ${error.stack}`);
        await page.screenshot({ path: `failure-${failures}.png` }).catch(() => {});
    }
}
await browser.close();
proxy.close();
process.exit(failures ? 1 : 0);
