// Drawn walks through GBNF grammars: in every state llama.cpp must allow exactly the tokens that our mask allows.
// usage: grammar_llama.mjs GRAMMAR_WALK FOLDER MODEL.gguf
import { spawn } from "node:child_process";
import readline from "node:readline";
import { getLlama, LlamaGrammar, LlamaGrammarEvaluationState } from "node-llama-cpp";

const [program, folder, file] = process.argv.slice(2);
const WALKS = 4;
const GRAMMARS = [
    String.raw`root ::= "yes" | "no" | "maybe"`,
    String.raw`root ::= [a-z]+ (" " [a-z]+)* "."`,
    String.raw`root ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*`,
    String.raw`root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}`,
    String.raw`root ::= "a"{2,4} [^a-m \n]{1,3} "é"? . "!"`,
    String.raw`root ::= "x" root "y" | ""`,
    String.raw`root ::= (word | "<" root ">"){1,5} # nested
word ::= [a-f]{2,} |
  "once upon" " a time"`,
    String.raw`root ::= "\u00e9\x41" ("the " | "then " | "there ")* [0-9-]`,
    String.raw`root ::= line{3}
line ::= "- " [^\n]{0,12} "\n"`,
    String.raw`root ::= [日本語あ-ん]+ | [\x41-\x43]{3,5}`,
];

const llama = await getLlama({ build: "never", gpu: false, skipDownload: true, logLevel: "error", maxThreads: 2 });
const model = await llama.loadModel({ modelPath: file, gpuLayers: 0 });
const child = spawn(program, [folder], { stdio: ["pipe", "pipe", "inherit"] });
const lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
async function ask(request) {
    child.stdin.write(JSON.stringify(request) + "\n");
    const { value, done } = await lines.next();
    if (done) throw new Error("grammar_walk ended");
    return JSON.parse(value);
}

const size = model.fileInfo.metadata.tokenizer.ggml.tokens.length;
const bits = (text) => {
    const words = text.match(/.{16}/g).map((w) => BigInt(`0x${w}`));
    return (id) => ((words[id >> 6] >> BigInt(id & 63)) & 1n) === 1n;
};
const can = (state, id) => llama._bindings.AddonSampler.canBeNextTokenForGrammarEvaluationState(state._state, id);
// Left out: <unk> and the beginning of a text, and what llama.cpp takes for text though no UTF-8 has it: the bytes C0, C1 and F5 to FF,
// and characters in too many bytes or beyond the last one (id 3 is byte 0). NUL ends texts there.
const NO_UTF8 = [0xc0, 0xc1, ...Array.from({ length: 11 }, (_, i) => 0xf5 + i)];
const special = new Set([model.tokens.bos, 0, 3, ...NO_UTF8.map((byte) => byte + 3)]);
const overlong = (before, id) => [0xe0, 0xed, 0xf0, 0xf4].includes(before - 3) && id - 3 >= 0x80 && id - 3 <= 0xbf;
let failures = 0, states = 0, compared = 0;

for (const [g, gbnf] of GRAMMARS.entries()) {
    const grammar = new LlamaGrammar(llama, { grammar: gbnf });
    const result = await ask({ gbnf, walks: WALKS, seed: g + 1, masks: true });
    if (result.error) {
        console.log(`grammar ${g}: ${result.error}`);
        failures++;
        continue;
    }
    for (const { ids, masks } of result.walks) {
        const state = new LlamaGrammarEvaluationState({ model, grammar });
        for (let i = 0; i < masks.length; i++, states++) {
            const allowed = bits(masks[i]);
            for (let id = 0; id < size; id++) {
                if (special.has(id)) continue;
                compared++;
                if (can(state, id) === allowed(id) || (!allowed(id) && overlong(ids[i - 1], id))) continue;
                if (++failures <= 10)
                    console.log(`grammar ${g}, after ${JSON.stringify(model.detokenize(ids.slice(0, i)))}: token ${id} ` +
                        `${JSON.stringify(model.detokenize([id], true))} is ${allowed(id) ? "allowed" : "refused"} here only`);
            }
            if (ids[i] < 0 || ids[i] === 3 || ids[i] === model.tokens.eos) break;
            llama._bindings.AddonSampler.acceptGrammarEvaluationStateToken(state._state, ids[i]);
        }
    }
}
child.stdin.end();
console.log(`${GRAMMARS.length} grammars, ${states} states, ${compared} tokens compared, ${failures} differ`);
await llama.dispose();
process.exit(failures > 0 || compared < 100000 ? 1 : 0);
