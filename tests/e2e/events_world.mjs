// events_world.mjs DIR LINES: the scalars of TensorBoard's events in DIR are the numbers of LINES, a file of JSON lines with a step each.
// A session that starts drops what earlier ones have from its step on, as TensorBoard does.
import assert from "node:assert/strict";
import fs from "node:fs";
import protobuf from "protobufjs";
import records from "tfrecord/lib/record_reader.js";

const [dir, lines] = process.argv.slice(2);
const { root } = protobuf.parse(`syntax = "proto3"; package tensorflow;
message Summary { message Value { string tag = 1; float simple_value = 2; } repeated Value value = 1; }
message SessionLog { enum SessionStatus { STATUS_UNSPECIFIED = 0; START = 1; STOP = 2; } SessionStatus status = 1; }
message Event { double wall_time = 1; int64 step = 2; oneof what { string file_version = 3; Summary summary = 5; SessionLog session_log = 7; } }`);
const Event = root.lookupType("tensorflow.Event");
const tags = { loss: "loss", grad_norm: "grad_norm", lr: "learning_rate", tokens_per_s: "tokens_per_second", compute_s: "time/compute",
    comm_s: "time/communication", data_s: "time/data", idle_s: "time/idle", valid_loss: "valid/loss" };

let found = new Map();
for (const name of fs.readdirSync(dir).filter((name) => name.startsWith("events.out.tfevents.")).sort()) {
    const reader = await records.RecordReader.create(`${dir}/${name}`);
    let last = 0;
    for (let i = 0, bytes; (bytes = await reader.readRecord()) !== null; i++) {
        const event = Event.decode(bytes), step = Number(event.step);
        assert.ok(event.wallTime >= last && Math.abs(event.wallTime - Date.now() / 1000) < 3600, `${name}: time ${event.wallTime}`);
        last = event.wallTime;
        if (i === 0) assert.equal(event.fileVersion, "brain.Event:2");
        else if (event.what === "sessionLog") {
            assert.equal(event.sessionLog.status, 1);
            found = new Map([...found].filter(([key]) => +key.split(" ")[0] < step));
        } else for (const { tag, simpleValue } of event.summary.value) {
            assert.ok(!found.has(`${step} ${tag}`), `${tag} of step ${step} comes twice`);
            found.set(`${step} ${tag}`, simpleValue);
        }
    }
}
const wanted = new Map(), isLog = lines.endsWith("log.jsonl");
for (const line of fs.readFileSync(lines, "utf8").trim().split("\n")) {
    const { step, ...rest } = JSON.parse(line);
    for (const [key, value] of Object.entries(rest))
        if (typeof value === "number" && (!isLog || tags[key])) wanted.set(`${step} ${isLog ? tags[key] : key}`, value);
}
assert.ok(wanted.size > 0);
assert.deepEqual([...found.keys()].sort(), [...wanted.keys()].sort());
for (const [key, value] of wanted) assert.ok(Math.abs(found.get(key) - value) <= 1e-5 * Math.abs(value), `${key}: ${found.get(key)} instead of ${value}`);
