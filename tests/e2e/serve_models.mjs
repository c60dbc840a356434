// Several models, driven by the clients of OpenAI and Ollama. usage: serve_models.mjs URL
import assert from "node:assert/strict";
import OpenAI from "openai";
import { Ollama } from "ollama";

const [url] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 0 });
const ollama = new Ollama({ host: url });
const messages = [{ role: "user", content: "Tell me a story" }];
const until = async (what, check) => { for (const end = Date.now() + 120000; !await check();) { assert.ok(Date.now() < end, what); await new Promise((done) => setTimeout(done, 20)); } };
const loaded = async () => (await ollama.ps()).models.map((model) => model.name);

assert.deepEqual((await openai.models.list()).data.map((model) => model.id).sort(), ["one", "three", "two"]);
assert.equal((await openai.models.retrieve("two")).id, "two");
await assert.rejects(openai.models.retrieve("four"), OpenAI.NotFoundError);
await assert.rejects(openai.chat.completions.create({ model: "four", messages }), OpenAI.NotFoundError);
const ask = async (model) => (await openai.chat.completions.create({ model, messages, temperature: 0, max_tokens: 12 })).choices[0].message.content;
const [one, two] = [await ask("one"), await ask("two")];
assert.equal(await ask("one"), one);
assert.deepEqual(await loaded(), ["one"]);
const stream = await openai.chat.completions.create({ model: "two", messages, temperature: 0, max_tokens: 12, stream: true });
let text = "";
for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
assert.equal(text, two);

assert.deepEqual((await ollama.list()).models.map((model) => model.name).sort(), ["one", "three", "two"]);
const options = { temperature: 0, num_predict: 12 };
assert.equal((await ollama.chat({ model: "one:latest", messages, options })).message.content, one);
assert.deepEqual(await loaded(), ["one"]);
assert.equal((await ollama.generate({ model: "two", prompt: "" })).done_reason, "load"); // nothing is asked: it is loaded
assert.deepEqual(await loaded(), ["two"]);
await ollama.chat({ model: "two", messages, options, keep_alive: "5m" });
assert.ok(new Date((await ollama.ps()).models[0].expires_at) > Date.now());
assert.equal((await ollama.generate({ model: "two", prompt: "", keep_alive: 0 })).done_reason, "unload");
await until("the model to be put away", async () => (await loaded()).length === 0);
await ollama.chat({ model: "one", messages, options, keep_alive: 0 });
await until("the model to be put away after its answer", async () => (await loaded()).length === 0);
