// Writes drawn tables with three Parquet writers and compares the shards that `ashlar data tokenize` makes of them with those it makes
// of the same documents in JSON lines.
// usage: parquet_world.mjs ASHLAR TOKENIZER
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import { Table, Utf8, tableToIPC, vectorFromArray } from "apache-arrow";
import * as wasm from "parquet-wasm/node";
import { parquetWriteBuffer } from "hyparquet-writer";
import { DuckDBInstance } from "@duckdb/node-api";
import { Random } from "./mixed_text.mjs";

const [ashlar, tokenizer] = process.argv.slice(2);
const SEED = Number(process.env.SEED ?? 20260);
const random = new Random(SEED);
let failures = 0, cases = 0;

function fail(what) {
    console.log(`FAIL: ${what} (SEED=${SEED})`);
    failures++;
}

function tokenize(out, ...more) {
    return spawnSync(ashlar, ["data", "tokenize", "--tokenizer", tokenizer, "--out", out, "--shard-tokens", "5000", ...more],
        { encoding: "utf8" });
}

// Every shard of a folder, in order.
function shards(dir) {
    const names = fs.readdirSync(dir).filter((name) => !name.endsWith(".json") && !name.startsWith(".")).sort();
    return names.map((name) => fs.readFileSync(`${dir}/${name}`));
}

// ---- tables: texts of any kind; texts that repeat, as dictionaries like them; nulls in some; sorted ones share beginnings

const PIECES = ["the ", "of ", "and ", "stone ", "Stein", "石", "камень ", "πέτρα ", "🪨", "é", "\n", "\n\n", "\t", "  ", "42", "\"", "\\", "\u0000",
    "\u2028", "'s ", "<|endoftext|>", "{\"text\": 1}", "PAR1", "a".repeat(70)];

function drawText() {
    const length = random.below(random.pick([3, 30, 300]));
    return Array.from({ length }, () => random.pick(PIECES)).join("");
}

function drawTable(count, kind, hasNulls) {
    const documents = Array.from({ length: count }, drawText);
    let texts = documents;
    if (kind === "few") texts = texts.map(() => random.pick(documents.slice(0, 40)));
    if (kind === "sorted") texts.sort();
    if (kind === "short") texts = texts.map((text) => [...text].slice(0, random.below(4)).join(""));
    return texts.map((text) => (hasNulls && random.below(3) === 0 ? null : text));
}

function expectSame(name, table, files, more = []) {
    cases++;
    const key = table.key;
    if (!fs.existsSync(key)) {
        fs.writeFileSync(`${key}.jsonl`, table.texts.filter((t) => t !== null).map((text) => JSON.stringify({ text }) + "\n").join(""));
        const run = tokenize(key, `${key}.jsonl`);
        if (run.status !== 0) return fail(`${name}: JSON lines: ${run.stderr}`);
    }
    fs.rmSync("out", { recursive: true, force: true });
    const run = tokenize("out", ...more, ...files);
    if (run.status !== 0) return fail(`${name}: ${run.stderr}`);
    const want = shards(key), got = shards("out");
    if (want.length === 0 || want.length !== got.length || want.some((shard, i) => !shard.equals(got[i]))) fail(`${name}: other shards`);
}

const tables = [];
for (const [kind, hasNulls] of [["any", false], ["any", true], ["few", true], ["sorted", false], ["short", true]]) {
    const texts = drawTable(kind === "short" ? 3000 : 400, kind, hasNulls);
    tables.push({ key: `${kind}-${hasNulls}`, texts, hasNulls });
}

// ---- arrow-rs: every encoding, codec and page version

function wasmFile(texts, options) {
    const table = new Table({
        id: vectorFromArray(texts.map((_, i) => i)),
        text: vectorFromArray(texts, new Utf8()),
        tail: vectorFromArray(texts.map((_, i) => `t${i}`), new Utf8()),
    });
    let builder = new wasm.WriterPropertiesBuilder()
        .setCompression(options.codec).setWriterVersion(options.version).setDictionaryEnabled(options.dictionary)
        .setMaxRowGroupSize(options.rows).setDataPageSizeLimit(options.page).setWriteBatchSize(options.batch)
        .setStatisticsEnabled(options.statistics).setDictionaryPageSizeLimit(options.dictionaryPage);
    if (options.encoding !== undefined) builder = builder.setEncoding(options.encoding).setColumnEncoding("id", wasm.Encoding.PLAIN);
    return wasm.writeParquet(wasm.Table.fromIPCStream(tableToIPC(table, "stream")), builder.build());
}

const E = wasm.Encoding, C = wasm.Compression;
for (const table of tables)
    for (const encoding of [E.PLAIN, E.DELTA_LENGTH_BYTE_ARRAY, E.DELTA_BYTE_ARRAY])
        for (const version of [wasm.WriterVersion.V1, wasm.WriterVersion.V2]) {
            const options = {
                encoding, version, codec: random.pick([C.UNCOMPRESSED, C.SNAPPY, C.GZIP, C.BROTLI, C.ZSTD, C.LZ4_RAW]),
                dictionary: random.below(2) === 0, rows: random.pick([37, 150, 100000]), page: random.pick([64, 1000, 100000]),
                batch: random.pick([1, 16, 1024]), dictionaryPage: random.pick([200, 20000, 1000000]),
                statistics: random.pick([wasm.EnabledStatistics.None, wasm.EnabledStatistics.Chunk, wasm.EnabledStatistics.Page]),
            };
            fs.writeFileSync("wasm.parquet", wasmFile(table.texts, options));
            expectSame(`arrow-rs, ${table.key}, ${JSON.stringify(options)}`, table, ["wasm.parquet"]);
        }
for (const codec of [C.UNCOMPRESSED, C.SNAPPY, C.GZIP, C.BROTLI, C.ZSTD, C.LZ4_RAW]) {
    const options = { codec, version: wasm.WriterVersion.V1, dictionary: true, rows: 100, page: 1000, batch: 8,
        dictionaryPage: 100000, statistics: wasm.EnabledStatistics.Chunk };
    fs.writeFileSync("codec.parquet", wasmFile(tables[2].texts, options));
    expectSame(`arrow-rs, codec ${codec}`, tables[2], ["codec.parquet"]);
}

// ---- hyparquet-writer

for (const table of tables)
    for (const encoding of [undefined, "PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]) {
        const columnData = [
            { name: "nr", data: table.texts.map((_, i) => i), type: "INT32" },
            { name: "text", data: table.texts, type: "STRING", nullable: table.hasNulls, ...(encoding && { encoding }) },
        ];
        fs.writeFileSync("hy.parquet", Buffer.from(parquetWriteBuffer({ columnData, rowGroupSize: random.pick([50, 1000]),
            pageSize: random.pick([500, 100000]), codec: random.pick(["SNAPPY", "UNCOMPRESSED"]) })));
        expectSame(`hyparquet-writer, ${table.key}, ${encoding}`, table, ["hy.parquet"]);
    }

// ---- DuckDB

const duck = await (await DuckDBInstance.create(":memory:")).connect();
for (const table of tables) {
    fs.writeFileSync("duck.json", table.texts.map((text, i) => JSON.stringify({ i, text }) + "\n").join(""));
    await duck.run("create or replace table t as select * from read_json('duck.json', columns={i: 'INT', text: 'VARCHAR'}, maximum_object_size=100000000) order by i");
    for (const codec of ["uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4_raw"]) {
        const version = random.pick(["V1", "V2"]), rows = random.pick([2048, 100000]);
        await duck.run(`copy (select i, {'a': i} as meta, text from t order by i) to 'duck.parquet' (format parquet, codec ${codec}, row_group_size ${rows}, parquet_version ${version})`);
        expectSame(`DuckDB, ${table.key}, ${codec}, ${version}`, table, ["duck.parquet"]);
    }
}

// ---- a dataset's folder of several files, and another column's name

{
    const table = tables[1], middle = table.texts.length >> 1;
    const options = { codec: C.SNAPPY, version: wasm.WriterVersion.V2, dictionary: true, rows: 64, page: 4000, batch: 16,
        dictionaryPage: 10000, statistics: wasm.EnabledStatistics.Chunk };
    fs.mkdirSync("dataset/data", { recursive: true });
    fs.writeFileSync("dataset/README.md", "# A dataset\n");
    fs.writeFileSync("dataset/dataset_infos.json", "[\n1]\n");
    fs.writeFileSync("dataset/data/train-00000-of-00002.parquet", wasmFile(table.texts.slice(0, middle), options));
    fs.writeFileSync("dataset/data/train-00001-of-00002.parquet", wasmFile(table.texts.slice(middle), options));
    expectSame("a folder", table, ["dataset"]);
    expectSame("a folder, --format parquet", table, ["dataset"], ["--format", "parquet"]);
}

// ---- what is refused, by its name

function expectRefused(name, file, what, ...more) {
    cases++;
    fs.rmSync("out", { recursive: true, force: true });
    const run = tokenize("out", ...more, file);
    if (run.status !== 1 || !run.stderr.includes(what) || run.stderr.trim().split("\n").length !== 1)
        fail(`${name}: exit ${run.status}, ${run.stderr}`);
}

await duck.run("copy (select [{'role': 'user', 'content': 'x'}] as messages, 'a' as story, 1.5 as score from range(3)) to 'nested.parquet' (format parquet)");
expectRefused("nested", "nested.parquet", "the column 'messages' is nested", "--field", "messages");
expectRefused("nested", "nested.parquet", "(story)", "--field", "messages");
expectRefused("missing", "nested.parquet", "there is no column 'text'; name one with --field (columns of text: story)");
expectRefused("no text", "nested.parquet", "the column 'score' holds no text", "--field", "score");
await duck.run("copy (select 'a' as text) to 'old.parquet' (format parquet, codec lz4)").catch(() => {});
{
    const whole = fs.readFileSync("wasm.parquet");
    fs.writeFileSync("torn.parquet", whole.subarray(0, whole.length >> 1));
    expectRefused("torn", "torn.parquet", "copy it again");
}

console.log(`parquet_world: ${cases} cases, ${failures} failures`);
process.exit(failures > 0 ? 1 : 0);
