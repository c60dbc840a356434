// Documents of mixed text, the same on every run: words of many scripts, prose, code, digits, white space, marks, emoji, special
// tokens, and any character at all. What real text on this machine adds is capped and only ever adds.
import fs from "node:fs";
import path from "node:path";

// A small generator of random numbers (xorshift, 32 bits) with a fixed seed.
export class Random {
    constructor(seed) { this.state = seed >>> 0 || 1; }
    below(n) {
        let x = this.state;
        x ^= x << 13; x >>>= 0;
        x ^= x >>> 17;
        x ^= x << 5; x >>>= 0;
        this.state = x;
        return x % n;
    }
    pick(list) { return list[this.below(list.length)]; }
}

// Letters and digits of scripts in use, as ranges of code points.
const SCRIPTS = [
    [[0x61, 0x7a]], [[0x41, 0x5a], [0x61, 0x7a]], [[0xc0, 0x17f]], [[0x1e00, 0x1eff]], [[0x370, 0x3ff]], [[0x400, 0x4ff]],
    [[0x531, 0x556], [0x561, 0x587]], [[0x5d0, 0x5ea], [0x5b0, 0x5c2]], [[0x620, 0x64a], [0x64b, 0x652], [0x660, 0x669]],
    [[0x904, 0x939], [0x93e, 0x94d], [0x966, 0x96f]], [[0x985, 0x9b9], [0x9be, 0x9cd]], [[0xa05, 0xa39]], [[0xb85, 0xbb9],
    [0xbbe, 0xbcd]], [[0xc05, 0xc39], [0xc3e, 0xc4d]], [[0xd05, 0xd39], [0xd3e, 0xd4d]], [[0xe01, 0xe3a], [0xe40, 0xe4e]],
    [[0xe81, 0xeb0]], [[0x10a0, 0x10ff]], [[0x1000, 0x1021], [0x102b, 0x103e]], [[0x1100, 0x11ff]], [[0xac00, 0xd7a3]],
    [[0x3041, 0x3096], [0x30a1, 0x30fa]], [[0x4e00, 0x9fa5]], [[0x4e00, 0x5200], [0x3041, 0x3096]], [[0x1780, 0x17b3]],
    [[0x1200, 0x137c]], [[0x13a0, 0x13f5]], [[0x20000, 0x2a6df]], [[0x1d400, 0x1d7ff]], [[0xff01, 0xff9f]], [[0x2160, 0x2188],
    [0x2460, 0x24ff]],
];
const SPACES = [" ", " ", " ", "  ", "   ", "        ", "\n", "\n\n", "\n\n\n", "\r\n", "\r\n\r\n", "\t", "\t\t", " \n", "\n ", " \t ",
    "\u00a0", "\u3000", "\u2003", "\u2028", "\u0085", "\u180e", "\ufeff", "\u200b", "\v", "\f", "\r"];
const ENDINGS = ["'s", "'S", "'t", "'T", "'re", "'RE", "'Re", "'ve", "'VE", "'m", "'M", "'ll", "'LL", "'lL", "'d", "'D", "'x", "'",
    "''", "\u2019s", "'ſ", "'K"];
const MARKS = ["\u0301", "\u0300", "\u0308", "\u0323", "\u0327", "\u0345", "\u05b0", "\u064b", "\u093c", "\u3099", "\u20d0", "\u0f71"];
const EMOJI = ["🙂", "👩‍👩‍👧", "🏳️‍🌈", "👍🏽", "🇯🇵", "❤️", "1️⃣", "☃", "🫠", "✅", "→", "∑", "€", "½", "²", "Ⅷ", "㎏", "ﬁ", "\u200d", "\ufe0f"];
const SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>", "<0x41>", "<|begin_of_text|>", "<|eot_id|>",
    "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<tool_call>", "</tool_call>", "<think>",
    "<|", "|>", "▁", "▁▁", "Ġ", "Ċ"];
const CODE = ["def f(x):\n    return x**2  # ok\n", "for (int i = 0; i < n; i++) {\n\tsum += a[i] * b[i];\n}\n", "if (x != NULL && *x == '\\0')",
    "https://example.com/?q=a%20b&c=d#e", "{\"key\": [1, 2.5e-3, null, true]}", "SELECT * FROM t WHERE a >= 10;", "<div class=\"x\">&nbsp;</div>",
    "\\begin{equation} \\alpha_{i}^{2} \\end{equation}", "0x7fff_ffff", "a->b.c::d()", "#include <stdio.h>", "===", "-----", "/*******/", "!!!???..."];
const WORDS = ("the of and to in is that for it as was with be by on not he his but at are this have from or had an they which one you " +
    "were all her she there would their we him been has when who will no more if out so up said what its about than into them can " +
    "only other time new some could these two may first then do any like my now over such our man me even most made after also did " +
    "many before must through years where much your way well down should because each just those people how too little state good").split(" ");

const isAssigned = (known) => {
    const ranges = known.trim().split("\n").map((line) => line.split(" ").map((x) => parseInt(x, 16)));
    const starts = ranges.map((r) => r[0]);
    return (point) => {
        let low = 0, high = starts.length;
        while (low < high) {
            const mid = (low + high) >> 1;
            if (starts[mid] <= point) low = mid + 1;
            else high = mid;
        }
        return low > 0 && point <= ranges[low - 1][1];
    };
};

// Documents of about `bytes` bytes in all. known: the ranges of characters that may appear ("%x %x" a line): two libraries can only
// agree on characters that both know, so those that are younger than one of them stay out.
export function mixedDocuments(bytes, known, root) {
    const random = new Random(20260801);
    const assigned = isAssigned(known);
    const point = (ranges) => {
        for (;;) {
            const [low, high] = random.pick(ranges);
            const p = low + random.below(high - low + 1);
            if (assigned(p) && !(p >= 0xd800 && p < 0xe000)) return String.fromCodePoint(p);
        }
    };
    const repeat = (most, make) => Array.from({ length: 1 + random.below(most) }, make).join("");
    const word = (script) => repeat(9, () => point(script));
    const sentence = () => Array.from({ length: 3 + random.below(20) }, () => random.pick(WORDS)).join(" ");
    const anything = [[0x0, 0xd7ff], [0xe000, 0xffff], [0x0, 0x2fff], [0x10000, 0x1ffff], [0x20000, 0x33fff], [0xe0000, 0xe01ef]];
    const marked = () => repeat(6, () => point(SCRIPTS[1]) + (random.below(2) ? repeat(4, () => random.pick(MARKS)) : ""));
    const makers = [
        [14, () => sentence() + random.pick([".", ",", "!", "?", ";", ":", "...", ".\n", ".\n\n"]) + " "],
        [8, () => { const s = random.pick(SCRIPTS); return repeat(12, () => word(s) + random.pick([" ", " ", " ", ", ", "", "-"])); }],
        [3, () => random.pick(WORDS) + random.pick(ENDINGS) + random.pick([...SPACES, "x", "abc", "É", "1"])],
        [3, () => repeat(8, () => random.pick(SPACES))],
        [3, () => random.pick(CODE) + random.pick(SPACES)],
        [3, () => repeat(14, () => String(random.below(10))) + random.pick(["", " ", ",", ".", "%"])],
        [1, () => repeat(4, () => point([[0x660, 0x669], [0x966, 0x96f], [0x2070, 0x2079], [0xff10, 0xff19], [0x2150, 0x2188]]))],
        [2, () => repeat(4, () => random.pick(EMOJI))],
        [2, () => marked() + " "],
        [1, () => repeat(3, () => random.pick(SPECIALS)) + random.pick(["", " ", "x"])],
        [1, () => repeat(12, () => point(anything))],
        [1, () => random.pick(["a", "-", "=", " ", "\n", "啊", "é", "e\u0301", "🙂", "0"]).repeat(1 + random.below(200))],
    ];
    const weights = makers.flatMap(([weight], i) => Array(weight).fill(i));
    const documents = [];
    let total = 0;
    for (const text of realTexts(root, bytes / 4, assigned)) {
        documents.push(text);
        total += Buffer.byteLength(text);
    }
    while (total < bytes) {
        const most = random.pick([40, 400, 4000, 20000]);
        let text = "";
        while (text.length < most) text += makers[random.pick(weights)][1]();
        documents.push(text);
        total += Buffer.byteLength(text);
    }
    // Real texts come first; spread them, so that the beginning of the list is a fair sample of it.
    for (let i = documents.length - 1; i > 0; i--) {
        const j = random.below(i + 1);
        [documents[i], documents[j]] = [documents[j], documents[i]];
    }
    return documents;
}

// Prose and source code that lie around, up to `bytes`, a third of them prose.
function realTexts(root, bytes, assigned) {
    const texts = [];
    const add = (dir, accepts, most) => {
        let left = most;
        for (const name of fs.existsSync(dir) ? fs.readdirSync(dir).sort() : []) {
            const file = path.join(dir, name);
            if (left <= 0 || !accepts(name) || !fs.statSync(file).isFile()) continue;
            const text = fs.readFileSync(file).subarray(0, Math.min(left, 40000)).toString("utf8").replace(/\ufffd/g, "");
            left -= text.length;
            texts.push([...text].filter((c) => assigned(c.codePointAt(0))).join(""));
        }
    };
    add("/usr/share/common-licenses", () => true, bytes / 2);
    for (const dir of ["src/base", "src/model", "tests/e2e"])
        add(path.join(root, dir), (name) => /\.(c|h|mjs|sh|md)$/.test(name), bytes / 6);
    return texts;
}
