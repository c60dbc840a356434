// Drives a server with the official npm clients, feature by feature. usage: serve_world.mjs URL KEY [PATTERN]
import assert from "node:assert/strict";
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";

const [url, key, only] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const model = "stories";
const ask = [{ role: "user", content: "Tell me a story" }];
const collect = async (stream) => { const list = []; for await (const item of stream) list.push(item); return list; };
const post = (path, body, headers = {}) =>
    fetch(url + path, { method: "POST", body: typeof body === "string" ? body : JSON.stringify(body), headers: { authorization: `Bearer ${key}`, ...headers } });
const json = async (path, body) => (await post(path, body)).json();
const failure = async (promise) => { try { await promise; } catch (error) { return error; } assert.fail("it did not fail"); };

const tests = {
    async "models are listed"() {
        const list = await openai.models.list();
        assert.deepEqual(list.data.map((m) => m.id), ["stories", "gpt-4o"]);
        assert.equal(list.data[0].max_model_len, 512);
    },
    async "a completion, whole and streamed, is the same"() {
        for (const extra of [{ temperature: 0 }, { temperature: 0.8, seed: 5 }, { temperature: 1, seed: 6, top_p: 0.9, n: 3 },
            { temperature: 1, seed: 7, stop: ["the", "."] }, { seed: 8, logprobs: 3, echo: true }]) {
            const base = { model, prompt: "Once upon a time", max_tokens: 40, ...extra };
            const whole = await openai.completions.create(base);
            const chunks = await collect(await openai.completions.create({ ...base, stream: true, stream_options: { include_usage: true } }));
            for (const choice of whole.choices) {
                const mine = chunks.flatMap((c) => c.choices).filter((c) => c.index === choice.index);
                assert.equal(mine.map((c) => c.text).join(""), choice.text);
                assert.equal(mine.at(-1).finish_reason, choice.finish_reason);
                if (extra.logprobs) {
                    for (const name of ["tokens", "token_logprobs", "top_logprobs", "text_offset"])
                        assert.deepEqual(mine.flatMap((c) => c.logprobs?.[name] ?? []), choice.logprobs[name], name);
                    assert.equal(choice.logprobs.tokens.join("").trimStart().replace(/^<s>/, "").trimStart(), choice.text.trimStart());
                }
            }
            const usage = chunks.at(-1).usage;
            assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
            assert.equal(usage.prompt_tokens, whole.usage.prompt_tokens);
            if (!extra.echo) assert.ok(usage.prompt_tokens_details.cached_tokens > 0); // log-probabilities of a prompt need all of it
            assert.match(whole.system_fingerprint, /^fp_[0-9a-f]{16}$/);
        }
    },
    async "prompts as texts, ids and lists of both"() {
        const { tokens } = await json("/tokenize", { prompt: "Once upon a time" });
        const [text, ids] = await Promise.all(["Once upon a time", tokens].map((prompt) =>
            openai.completions.create({ model, prompt, max_tokens: 10, temperature: 0 })));
        assert.equal(text.choices[0].text, ids.choices[0].text);
        const list = await openai.completions.create({ model, prompt: ["Once upon a time", "The dog"], n: 2, max_tokens: 10, temperature: 0 });
        assert.deepEqual(list.choices.map((c) => c.index), [0, 1, 2, 3]);
        assert.equal(list.choices[1].text, text.choices[0].text);
        assert.equal((await json("/detokenize", { tokens })).prompt.trim().replace(/^<s> ?/, ""), "Once upon a time");
    },
    async "best_of gives the likeliest"() {
        const all = await openai.completions.create({ model, prompt: "The", n: 4, seed: 3, max_tokens: 12, logprobs: 0 });
        const best = await openai.completions.create({ model, prompt: "The", n: 1, best_of: 4, seed: 3, max_tokens: 12 });
        const mean = (c) => c.logprobs.token_logprobs.reduce((a, b) => a + b, 0) / c.logprobs.token_logprobs.length;
        assert.equal(best.choices[0].text, all.choices.toSorted((a, b) => mean(b) - mean(a))[0].text);
        assert.equal(new Set(all.choices.map((c) => c.text)).size, 4);
    },
    async "a strategy gives one of n answers"() {
        const ask = { model, prompt: "The", n: 6, seed: 3, max_tokens: 12 };
        const all = await openai.completions.create({ ...ask, logprobs: 0 });
        const one = async (strategy, more) => {
            const answer = await json("/v1/completions", { ...ask, strategy, ...more });
            assert.equal(answer.choices.length, 1);
            assert.equal(answer.usage.completion_tokens, all.usage.completion_tokens);
            return answer.choices[0].text;
        };
        const weight = (c) => Math.exp(c.logprobs.token_logprobs.reduce((a, b) => a + b, 0) / c.logprobs.token_logprobs.length);
        assert.equal(await one("best"), all.choices.toSorted((a, b) => weight(b) - weight(a))[0].text);
        assert.equal(await one("majority"), all.choices[0].text); // six texts, six parties
        assert.equal(await one("weighted", { vote_on: "last-line" }), all.choices.toSorted((a, b) => weight(b) - weight(a))[0].text);
        const chat = { model, messages: [{ role: "user", content: "Hi" }], n: 3, seed: 5, max_tokens: 8, vote_on: "last-number" };
        const said = await json("/v1/chat/completions", { ...chat, strategy: "majority" });
        assert.deepEqual(said.choices.map((c) => c.index), [0]);
    },
    async "settings change the answer as they should"() {
        const base = { model, prompt: "Once upon a time", max_tokens: 16, temperature: 0 };
        const text = async (extra) => (await openai.completions.create({ ...base, ...extra })).choices[0];
        const plain = await text({});
        const first = (await json("/tokenize", { content: "," })).tokens.at(-1);
        assert.equal(plain.text[0], ",");
        assert.notEqual((await text({ logit_bias: { [first]: -100 } })).text[0], ",");
        assert.equal((await text({ temperature: 1, top_k: 1, seed: 1 })).text, plain.text);
        assert.equal((await text({ temperature: 1, min_p: 1, seed: 1 })).text, plain.text);
        assert.equal((await text({ temperature: 1, top_p: 0, seed: 1 })).text, plain.text);
        assert.notEqual((await text({ max_tokens: 100, repetition_penalty: 1.5 })).text, (await text({ max_tokens: 100 })).text);
        assert.notEqual((await text({ max_tokens: 100, frequency_penalty: 2 })).text, (await text({ max_tokens: 100 })).text);
        const allowed = await text({ allowed_token_ids: [first], max_tokens: 3 });
        assert.equal(allowed.text, ",,,");
        const stopped = await text({ stop: " was" });
        assert.equal(stopped.text, ", there");
        assert.equal(stopped.stop_reason, " was");
        assert.equal((await text({ stop: " was", include_stop_str_in_output: true })).text, ", there was");
        assert.equal((await text({ stop_token_ids: [first] })).text, "");
        assert.equal((await text({ stop: ",", min_tokens: 4 })).text.startsWith(", there was a"), true);
        const ids = await text({ return_token_ids: true });
        assert.equal(ids.token_ids.length, 16);
        assert.ok(ids.prompt_token_ids.length > 3);
        const logprobs = await text({ prompt_logprobs: 2 });
        assert.equal(logprobs.prompt_logprobs.length, ids.prompt_token_ids.length);
        assert.equal(logprobs.prompt_logprobs[0], null);
        assert.equal((await text({ truncate_prompt_tokens: 2, return_token_ids: true })).prompt_token_ids.length, 2);
    },
    async "a chat, whole and streamed, is the same"() {
        for (const extra of [{}, { n: 2 }, { logprobs: true, top_logprobs: 2 }, { chat_template_kwargs: { enable_thinking: true } }]) {
            const base = { model: "gpt-4o", messages: ask, max_completion_tokens: 40, temperature: 0.9, seed: 11, ...extra };
            const whole = await openai.chat.completions.create(base);
            const stream = openai.chat.completions.stream(base); // the client's own joining of deltas
            const joined = await stream.finalChatCompletion();
            const rest = await collect(await openai.chat.completions.create({ ...base, stream: true }));
            whole.choices.forEach((choice, i) => {
                assert.equal(joined.choices[i].message.content ?? "", choice.message.content ?? "");
                assert.equal(joined.choices[i].finish_reason, choice.finish_reason);
                const mine = rest.flatMap((c) => c.choices).filter((c) => c.index === i);
                assert.equal(mine.map((c) => c.delta.reasoning_content ?? "").join(""), choice.message.reasoning_content ?? "");
                if (only && extra.chat_template_kwargs) assert.ok(choice.message.reasoning_content.length > 0);
                if (extra.logprobs) {
                    assert.deepEqual(mine.flatMap((c) => c.logprobs?.content ?? []), choice.logprobs.content);
                    assert.equal(choice.logprobs.content[0].top_logprobs.length, 2);
                    assert.ok(choice.logprobs.content.every((c) => Buffer.from(c.bytes).toString().includes(c.token.replaceAll("\ufffd", ""))));
                }
            });
            assert.equal(whole.model, "gpt-4o");
            assert.equal(whole.object, "chat.completion");
        }
    },
    async "content as parts, developer messages, a message that continues"() {
        const parts = [{ role: "developer", content: [{ type: "text", text: "Be brief." }] }, { role: "user", content: [{ type: "text", text: "Hello" }, { type: "text", text: "there" }] }];
        const plain = [{ role: "system", content: "Be brief." }, { role: "user", content: "Hello\nthere" }];
        const render = async (messages, extra) => (await json("/apply-template", { messages, ...extra })).prompt;
        assert.equal(await render(parts), await render(plain));
        assert.ok((await render([...plain, { role: "assistant", content: "Once upon" }], { continue_final_message: true })).endsWith("assistant\nOnce upon"));
        const image = await failure(openai.chat.completions.create({ model, messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:," } }] }] }));
        assert.equal(image.status, 400);
        assert.equal(image.param, "messages[0].content[0]");
    },
    async "schemas are enforced"() {
        const schema = { type: "object", properties: { name: { type: "string", maxLength: 8 }, age: { type: "integer", minimum: 0, maximum: 99 } },
            required: ["name", "age"], additionalProperties: false };
        const formats = [{ response_format: { type: "json_schema", json_schema: { name: "person", schema, strict: true } } },
            { structured_outputs: { json: schema } }, { guided_json: schema }, { json_schema: schema }];
        for (const extra of formats) {
            const answer = await openai.chat.completions.create({ model, messages: ask, seed: 3, max_tokens: 200, ...extra });
            const value = JSON.parse(answer.choices[0].message.content);
            assert.deepEqual(Object.keys(value).sort(), ["age", "name"]);
            assert.ok(Number.isInteger(value.age) && value.age >= 0 && value.age <= 99 && value.name.length <= 8);
        }
        const text = async (extra) => (await openai.completions.create({ model, prompt: "The", seed: 3, max_tokens: 60, ...extra })).choices[0].text;
        assert.match(await text({ guided_regex: "[0-9]{3}-[a-f]{2}" }), /^[0-9]{3}-[a-f]{2}$/);
        assert.match(await text({ structured_outputs: { regex: "(yes|no)!" } }), /^(yes|no)!$/);
        assert.ok(["red", "green"].includes(await text({ guided_choice: ["red", "green"] })));
        assert.match(await text({ guided_grammar: 'root ::= "a" [0-9]+ "z"' }), /^a[0-9]+z?$/);
        const wrong = await failure(openai.chat.completions.create({ model, messages: ask, response_format: { type: "json_schema",
            json_schema: { name: "x", schema: { type: "object", properties: { a: { type: "strin" } } } } } }));
        assert.equal(wrong.status, 400);
        assert.match(wrong.message, /strin|type/);
    },
    async "tools are called where a choice asks for it"() {
        const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: { city: { enum: ["Köln", "Rome"] }, days: { type: "integer", minimum: 1, maximum: 9 } },
            required: ["city", "days"], additionalProperties: false } } },
        { type: "function", function: { name: "clock", parameters: { type: "object", properties: {}, additionalProperties: false } } }];
        for (const tool_choice of ["required", { type: "function", function: { name: "weather" } }]) {
            const base = { model, messages: ask, tools, tool_choice, parallel_tool_calls: false, seed: 4, max_tokens: 200 };
            const whole = await openai.chat.completions.create(base);
            const joined = await openai.chat.completions.stream(base).finalChatCompletion();
            const [call] = whole.choices[0].message.tool_calls;
            assert.equal(whole.choices[0].finish_reason, "tool_calls");
            assert.equal(joined.choices[0].finish_reason, "tool_calls");
            assert.deepEqual(joined.choices[0].message.tool_calls.map((c) => c.function.arguments), [call.function.arguments]);
            assert.equal(joined.choices[0].message.tool_calls[0].function.name, call.function.name);
            const input = JSON.parse(call.function.arguments);
            if (call.function.name === "weather") assert.ok(["Köln", "Rome"].includes(input.city) && input.days >= 1);
            if (tool_choice !== "required") assert.equal(call.function.name, "weather");
            const next = await openai.chat.completions.create({ model, seed: 4, max_tokens: 5, tools, tool_choice: "none",
                messages: [...ask, whole.choices[0].message, { role: "tool", tool_call_id: call.id, content: "sunny" }] });
            assert.equal(next.choices[0].message.tool_calls, undefined);
        }
        const error = await failure(openai.chat.completions.create({ model, messages: ask, tools, tool_choice: { type: "function", function: { name: "nothing" } } }));
        assert.equal(error.param, "tool_choice");
    },
    async "a model by its name, and tools that alone may be called"() {
        assert.equal((await openai.models.retrieve(model)).id, model);
        assert.equal((await failure(openai.models.retrieve("none"))).status, 404);
        const tools = ["clock", "weather"].map((name) => ({ type: "function", function: { name } }));
        const answer = await openai.chat.completions.create({ model, max_tokens: 60, temperature: 0, messages: [{ role: "user", content: "Time?" }], tools,
            tool_choice: { type: "allowed_tools", allowed_tools: { mode: "required", tools: [tools[1]] } } });
        assert.equal(answer.choices[0].message.tool_calls[0].function.name, "weather");
        assert.deepEqual(JSON.parse(answer.choices[0].message.tool_calls[0].function.arguments), {});
    },
    async "responses, whole and streamed"() {
        const base = { model, input: "Tell me a story", instructions: "Be brief.", max_output_tokens: 20, temperature: 0 };
        const whole = await openai.responses.create(base);
        assert.equal(whole.object, "response");
        assert.equal(whole.status, "incomplete");
        assert.equal(whole.usage.output_tokens, 20);
        const stream = openai.responses.stream(base);
        const joined = await stream.finalResponse();
        assert.equal(joined.output_text, whole.output_text);
        assert.ok(whole.output_text.length > 10);
        const format = { type: "json_schema", name: "n", schema: { type: "object", properties: { a: { type: "boolean" } }, required: ["a"], additionalProperties: false } };
        const shaped = await openai.responses.create({ ...base, max_output_tokens: 100, text: { format } });
        assert.equal(shaped.status, "completed");
        assert.equal(typeof JSON.parse(shaped.output_text).a, "boolean");
        const tools = [{ type: "function", name: "clock", parameters: { type: "object", properties: {}, additionalProperties: false }, strict: true }];
        const called = await openai.responses.create({ ...base, max_output_tokens: 100, tools, tool_choice: "required", parallel_tool_calls: false });
        const call = called.output.find((o) => o.type === "function_call");
        assert.equal(call.name, "clock");
        const next = await openai.responses.create({ ...base, max_output_tokens: 5, tools, tool_choice: "none", input: [{ role: "user", content: "Time?" }, ...called.output,
            { type: "function_call_output", call_id: call.call_id, output: "noon" }] });
        assert.equal(next.output[0].type, "message");
        assert.equal((await failure(openai.responses.create({ ...base, previous_response_id: "resp_1" }))).param, "previous_response_id");
        const followed = await openai.responses.create({ ...base, input: "More", previous_response_id: whole.id });
        assert.ok(followed.usage.input_tokens > whole.usage.input_tokens);
        const counted = await openai.responses.inputTokens.count({ model, input: "More", previous_response_id: whole.id, instructions: base.instructions });
        assert.equal(counted.input_tokens, followed.usage.input_tokens);
        const message = whole.output.find((item) => item.type === "message");
        const referred = await openai.responses.create({ ...base, input: [{ role: "user", content: "Again" }, { type: "item_reference", id: message.id }, { role: "user", content: "More" }] });
        assert.ok(referred.usage.input_tokens > 10);
        const told = await openai.responses.create({ ...base, include: ["message.output_text.logprobs"], top_logprobs: 2 });
        assert.equal(told.output.find((item) => item.type === "message").content[0].logprobs[0].top_logprobs.length, 2);
    },
    async "embeddings as floats and base64, cut and pooled"() {
        const get = (extra) => openai.embeddings.create({ model, input: ["The dog", "A cat"], encoding_format: "float", ...extra });
        const plain = await get({});
        assert.equal(plain.data.length, 2);
        assert.equal(plain.data[0].embedding.length, 64);
        const length = (v) => Math.hypot(...v);
        assert.ok(Math.abs(length(plain.data[0].embedding) - 1) < 1e-5);
        const base64 = await openai.embeddings.create({ model, input: ["The dog", "A cat"] }); // the client asks for base64 and decodes it
        assert.ok(base64.data[1].embedding.every((x, i) => Math.abs(x - plain.data[1].embedding[i]) < 1e-6));
        const cut = await get({ dimensions: 8 });
        assert.equal(cut.data[0].embedding.length, 8);
        assert.ok(Math.abs(length(cut.data[0].embedding) - 1) < 1e-5);
        assert.notDeepEqual((await get({ pooling: "mean" })).data[0].embedding, plain.data[0].embedding);
        assert.ok(plain.usage.prompt_tokens > 4);
    },
    async "Anthropic's messages, whole and streamed"() {
        const base = { model, max_tokens: 30, temperature: 0, system: "Be brief.", messages: [{ role: "user", content: [{ type: "text", text: "Tell me a story" }] }] };
        const whole = await anthropic.messages.create(base);
        assert.equal(whole.type, "message");
        assert.equal(whole.stop_reason, "max_tokens");
        const joined = await anthropic.messages.stream(base).finalMessage();
        assert.deepEqual(joined.content, whole.content);
        assert.equal(joined.usage.output_tokens, whole.usage.output_tokens);
        const stopped = await anthropic.messages.create({ ...base, stop_sequences: ["e"] });
        assert.equal(stopped.stop_reason, "stop_sequence");
        assert.equal(stopped.stop_sequence, "e");
        const count = await anthropic.messages.countTokens({ model, system: base.system, messages: base.messages });
        assert.equal(count.input_tokens, whole.usage.input_tokens + whole.usage.cache_read_input_tokens);
        const tools = [{ name: "weather", input_schema: { type: "object", properties: { city: { enum: ["Rome"] } }, required: ["city"], additionalProperties: false } }];
        const asked = { ...base, max_tokens: 200, tools, tool_choice: { type: "tool", name: "weather", disable_parallel_tool_use: true } };
        const called = await anthropic.messages.create(asked);
        assert.equal(called.stop_reason, "tool_use");
        const use = called.content.find((b) => b.type === "tool_use");
        assert.deepEqual(use.input, { city: "Rome" });
        const streamed = await anthropic.messages.stream(asked).finalMessage();
        assert.deepEqual(streamed.content.find((b) => b.type === "tool_use").input, use.input);
        const next = await anthropic.messages.create({ ...base, tools, messages: [...base.messages, { role: "assistant", content: called.content },
            { role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: "sunny" }] }] });
        assert.ok(next.usage.input_tokens > 0);
        const schema = { type: "object", properties: { n: { const: 5 } }, required: ["n"], additionalProperties: false };
        const formed = await anthropic.messages.create({ ...base, output_config: { format: { type: "json_schema", schema } } });
        assert.deepEqual(JSON.parse(formed.content[0].text), { n: 5 });
        assert.ok(whole._request_id.length > 8);
        const begun = [...base.messages, { role: "assistant", content: "Once" }];
        const continued = await anthropic.messages.create({ ...base, messages: begun });
        assert.equal(continued.usage.input_tokens + continued.usage.cache_read_input_tokens < count.input_tokens + 8, true);
        const error = await failure(anthropic.messages.create({ ...base, model: "other" }));
        assert.equal(error.status, 404);
        assert.equal(error.error.type, "error");
        assert.equal(error.error.error.type, "not_found_error");
    },
    async "Ollama's chats, prompts and models"() {
        const ollama = new Ollama({ host: url, headers: { Authorization: `Bearer ${key}` } });
        const options = { temperature: 0, num_predict: 20 };
        const base = { model, options, messages: [{ role: "user", content: "Tell me a story" }] };
        const whole = await ollama.chat(base);
        assert.equal(whole.eval_count, 20);
        assert.equal(whole.done_reason, "length");
        let text = "";
        for await (const part of await ollama.chat({ ...base, stream: true })) text += part.message.content;
        assert.equal(text, whole.message.content);
        const formed = await ollama.generate({ model, prompt: "A number:", options, format: { type: "object", properties: { n: { const: 5 } }, required: ["n"] } });
        assert.deepEqual(JSON.parse(formed.response), { n: 5 });
        assert.equal((await ollama.list()).models[0].name, "stories");
        assert.deepEqual((await ollama.show({ model: `${model}:latest` })).capabilities[0], "completion");
        assert.match((await ollama.version()).version, /^[0-9.]+$/);
        assert.match((await failure(ollama.chat({ ...base, model: "other" }))).message, /does not exist/);
    },
    async "llama.cpp's own forms"() {
        const base = { prompt: "Once upon a time", n_predict: 12, temperature: 0, seed: 1 };
        const whole = await json("/completion", { ...base, return_tokens: true, n_probs: 2 });
        assert.equal(whole.stop, true);
        assert.equal(whole.stop_type, "limit");
        assert.equal(whole.tokens.length, 12);
        assert.equal(whole.completion_probabilities[0].top_logprobs.length, 2);
        assert.ok(whole.timings.predicted_n === 12 && whole.timings.cache_n >= 0);
        assert.equal(whole.generation_settings.seed, 1);
        const events = (await (await post("/completion", { ...base, stream: true })).text()).trim().split("\n\n").map((e) => JSON.parse(e.slice(6)));
        assert.equal(events.map((e) => e.content).join(""), whole.content);
        assert.equal(events.at(-1).stop, true);
        const { tokens } = await json("/tokenize", { content: " upon a time" });
        assert.equal((await json("/completion", { ...base, prompt: ["Once", ...tokens] })).content.length > 0, true);
        assert.equal((await json("/completions", { ...base, prompt: ["Once upon", "The dog"] })).length, 2);
        assert.equal((await post("/infill", { input_prefix: "a", input_suffix: "b" })).status, 501); // this model has no such marks
        const headers = { authorization: `Bearer ${key}` };
        const props = await (await fetch(`${url}/props`, { headers })).json();
        assert.ok(props.chat_template.includes("im_start") && props.total_slots === 256);
        const slots = await (await fetch(`${url}/slots`, { headers })).json();
        assert.equal(slots.length, 256);
        assert.match((await json("/completion", { ...base, n_predict: 40, grammar: 'root ::= [0-9]+ "."' })).content, /^[0-9]+\.?$/);
    },
    async "wrong requests are told what is wrong"() {
        const status = async (path, body, code, param) => {
            const response = await post(path, body);
            const error = await response.json();
            assert.equal(response.status, code, `${path} ${JSON.stringify(body).slice(0, 80)}: ${JSON.stringify(error)}`);
            if (param) assert.equal(error.error.param, param);
            return error.error;
        };
        const ok = { model, prompt: "x" };
        await status("/v1/completions", "{", 400);
        await status("/v1/completions", "[]", 400);
        await status("/v1/completions", '{"prompt": "x", "temperature": NaN}', 400);
        await status("/v1/completions", '{"prompt": "x", "prompt": "y"}', 400);
        await status("/v1/completions", Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]).toString("latin1"), 400);
        await status("/v1/completions", "[".repeat(100000), 400);
        await status("/v1/completions", { ...ok, temperature: "hot" }, 400, "temperature");
        await status("/v1/completions", { ...ok, temperature: -1 }, 400, "temperature");
        await status("/v1/completions", { ...ok, n: 0 }, 400, "n");
        await status("/v1/completions", { ...ok, n: 100000 }, 400, "n");
        await status("/v1/completions", { ...ok, max_tokens: 1.5 }, 400, "max_tokens");
        await status("/v1/completions", { ...ok, logit_bias: { a: "x" } }, 400, "logit_bias");
        await status("/v1/completions", { ...ok, stop: Array(65).fill("x") }, 400, "stop");
        await status("/v1/completions", { ...ok, stop: "" }, 400, "stop");
        await status("/v1/completions", { ...ok, prompt: [99999999] }, 400, "prompt");
        await status("/v1/completions", { ...ok, prompt: { a: 1 } }, 400, "prompt");
        await status("/v1/completions", { model }, 400, "prompt");
        await status("/v1/completions", { ...ok, stream_options: { include_usage: true } }, 400, "stream_options");
        await status("/v1/completions", { ...ok, best_of: 2, stream: true }, 400, "best_of");
        const several = { ...ok, n: 2, temperature: 1 };
        await status("/v1/completions", { ...several, strategy: "worst" }, 400, "strategy");
        await status("/v1/completions", { ...several, strategy: "best", n: 1 }, 400, "strategy");
        await status("/v1/completions", { ...several, strategy: "best", stream: true }, 400, "strategy");
        await status("/v1/completions", { ...several, strategy: "best", temperature: 0 }, 400, "strategy");
        await status("/v1/completions", { ...several, strategy: "best", best_of: 4 }, 400, "best_of");
        await status("/v1/completions", { ...several, strategy: "best", vote_on: "all" }, 400, "vote_on");
        await status("/v1/completions", { ...several, vote_on: "all" }, 400, "vote_on");
        await status("/v1/completions", { ...ok, guided_regex: "(" }, 400, "guided_regex");
        await status("/v1/completions", { ...ok, guided_grammar: "root ::= x" }, 400, "guided_grammar");
        await status("/v1/completions", { ...ok, guided_json: { type: "object" }, guided_regex: "a" }, 400);
        await status("/v1/chat/completions", { model, messages: [] }, 400, "messages");
        await status("/v1/chat/completions", { model, messages: [{ role: "robot", content: "x" }] }, 400, "messages[0].role");
        await status("/v1/chat/completions", { model, messages: [{ role: "user", content: 5 }] }, 400, "messages[0].content");
        await status("/v1/chat/completions", { model, messages: ask, top_logprobs: 3 }, 400, "top_logprobs");
        await status("/v1/chat/completions", { model, messages: ask, response_format: { type: "json_schema", json_schema: { strict: true, schema: { type: "object", unevaluatedItems: {} } } } }, 400);
        await status("/v1/messages", { model, messages: ask }, 400);
        await status("/v1/completions", { ...ok, model: "gpt-9" }, 404, "model");
        await status("/v1/nothing", {}, 404);
        const long = await status("/v1/completions", { ...ok, prompt: "word ".repeat(2000) }, 400, "prompt");
        assert.equal(long.code, "context_length_exceeded");
        assert.match(long.message, /512 .*\d{4}/);
        await status("/v1/completions", { ...ok, max_tokens: 600 }, 400, "prompt");
        assert.equal((await fetch(`${url}/v1/completions`, { headers: { authorization: `Bearer ${key}` } })).status, 405);
        assert.equal((await post("/v1/completions", ok, { authorization: "Bearer wrong" })).status, 401);
        const error = await failure(new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong", maxRetries: 0 }).models.list());
        assert.ok(error instanceof OpenAI.AuthenticationError);
        const ignored = await post("/v1/completions", { ...ok, max_tokens: 1, nonsense: 1 });
        assert.equal(ignored.status, 200);
        assert.equal(ignored.headers.get("x-ignored-fields"), "nonsense");
    },
    async "an aborted stream frees its place"() {
        const load = async () => (await (await fetch(`${url}/load`)).json()).running;
        const controller = new AbortController();
        const stream = await openai.completions.create({ model, prompt: "Once upon a time", max_tokens: 500, ignore_eos: true, stream: true }, { signal: controller.signal });
        for await (const _ of stream) break;
        controller.abort();
        for (let i = 0; i < 12000 && (await load()) > 0; i++) await new Promise((r) => setTimeout(r, 10));
        assert.equal(await load(), 0);
    },
};

let failures = 0;
for (const [name, test] of Object.entries(tests)) {
    if (only && !name.match(only)) continue;
    try {
        await test();
        console.log(`ok ${name}`);
    } catch (error) {
        failures++;
        console.log(`FAILED ${name}: ${error.stack}`);
    }
}
process.exit(failures ? 1 : 0);
