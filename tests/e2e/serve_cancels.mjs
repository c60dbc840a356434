// serve_cancels.mjs PORT PID COUNT: COUNT requests whose clients leave: before anything comes, in the middle, and after the last
// byte. After the first fifth, which fills caches, the resident size of process PID must not grow in every round and by
// 1% in all: what leaks does; a heap whose requests met in another way on a busy machine grows once. Every answer that is
// read to its end is the same.
import net from "node:net";
import fs from "node:fs";
const [port, pid, count] = process.argv.slice(2).map(Number);
const resident = () => Number(/VmRSS:\s*(\d+)/.exec(fs.readFileSync(`/proc/${pid}/status`, "utf8"))[1]);
const whole = new Set();

function one(i) {
    const stays = i % 50 === 0;
    const body = JSON.stringify({
        prompt: "Once upon a time", max_tokens: stays ? 8 : 400, ignore_eos: true, stream: i % 3 !== 0, seed: stays ? 1 : i % 64,
        n: i % 3 === 1 ? 2 : 1, logprobs: i % 3 === 1 ? 2 : null, ...(stays && { n: 1, logprobs: null, stream: false }),
    });
    return new Promise((resolve, reject) => {
        const socket = net.connect(port, "127.0.0.1", () => {
            socket.write(`POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
            if (!stays && i % 3 !== 2) setImmediate(() => socket.destroy());
        });
        let text = "";
        socket.on("data", (data) => { text += data; if (!stays) socket.destroy(); });
        socket.on("close", () => { if (stays) whole.add(/"text":"([^"]*)"/.exec(text)?.[1]); resolve(); });
        socket.on("error", (error) => (stays ? reject(error) : resolve()));
    });
}

const running = async () => {
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    return [...text.matchAll(/^vllm:num_requests_(?:running|waiting)\{.*\} (\d+)$/gm)].reduce((sum, match) => sum + Number(match[1]), 0);
};
// `many` requests, `width` at a time; then wait until the server has none. Returns its resident size.
async function round(many, width, ask) {
    let next = 0;
    const work = async () => { while (next < many) await ask(next++); };
    await Promise.all(Array.from({ length: width }, work));
    for (let i = 0; (await running()) > 0; i++) {
        if (i > 6000) throw new Error("requests still run ten minutes after their clients left");
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return resident();
}
// A whole answer, so that the pages of the cache have all been written once.
const fill = (i) => fetch(`http://127.0.0.1:${port}/v1/completions`, {
    method: "POST", body: JSON.stringify({ prompt: `${i}`, max_tokens: 500, seed: i, ignore_eos: true }),
}).then((response) => response.text());

await round(120, 64, fill);
await round(count / 4, 64, one); // more at once than below: the heap is as large as it gets
const before = await round(count / 4, 16, one);
const sizes = [];
for (let i = 0; i < 4; i++) sizes.push(await round(count / 4, 16, one));
const growth = sizes.every((size, i) => size > [before, ...sizes][i]) ? sizes.at(-1) / before - 1 : 0;
console.log(`${count} requests: resident ${before}, then ${sizes.join(", ")} KiB`);
if (!(growth <= 0.01)) { console.error(`it grew by ${(100 * growth).toFixed(2)}%`); process.exit(1); }
if (whole.size !== 1 || whole.has(undefined)) { console.error("answers differ:", [...whole]); process.exit(1); }
