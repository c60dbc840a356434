"use strict";
// Markdown as DOM nodes. Text of a model becomes text nodes and attributes of a fixed list of elements, nothing else: HTML in it
// stays text, addresses are http, https or mailto, pictures are links. renderMarkdown keeps the nodes of blocks that are as before.
const markdown = (() => {
  const DEPTH_MAX = 8;
  const make = (tag, ...children) => { const node = document.createElement(tag); node.append(...children); return node; };

  // ---- inline ----
  const isSafe = (address) => /^(https?:\/\/|mailto:)/i.test(address);
  function link(address, label) {
    if (!isSafe(address)) return document.createTextNode(label);
    const node = make("a", label);
    node.href = address;
    node.target = "_blank";
    node.rel = "noopener noreferrer nofollow";
    return node;
  }
  const isWord = (c) => c !== undefined && /[\p{L}\p{N}_]/u.test(c);
  const marks = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

  // What starts at i of text: [node, end], or null. missing: closers that are known not to come.
  function codeAt(text, i, missing) {
    const run = /^`+/.exec(text.slice(i, i + 16))[0];
    if (missing.has(run)) return null;
    for (let end = text.indexOf(run, i + run.length); end >= 0; end = text.indexOf(run, end + run.length)) {
      let after = end;
      while (text[after] === "`") after++;
      if (after - end === run.length) {
        let body = text.slice(i + run.length, end);
        if (/^ .*[^ ].* $/.test(body)) body = body.slice(1, -1);
        return [make("code", body), after];
      }
      end = after - run.length;
    }
    missing.add(run);
    return null;
  }
  function linkAt(text, i) {
    const found = /^!?\[([^\[\]\n]{0,500})\]\(<?([^()\s<>]{1,2000}(?:\([^()\s<>]{0,500}\))?)>?(?:\s+"[^"\n]{0,500}")?\)/.exec(text.slice(i, i + 4000));
    return found ? [link(found[2], found[1] || found[2]), i + found[0].length] : null;
  }
  function addressAt(text, i) {
    const found = /^https?:\/\/[^\s<>"'`]{1,2000}/i.exec(text.slice(i, i + 2100));
    if (!found) return null;
    const address = found[0].replace(/[).,;:!?*_\]]+$/, "");
    return [link(address, address), i + address.length];
  }
  function markAt(text, i, missing, depth) {
    for (const [mark, tag] of marks) {
      if (!text.startsWith(mark, i)) continue;
      const from = i + mark.length;
      if (text[from] === undefined || /\s/.test(text[from]) || missing.has(mark)) continue;
      if (mark[0] === "_" && isWord(text[i - 1])) continue;
      for (let end = text.indexOf(mark, from + 1); ; end = text.indexOf(mark, end + 1)) {
        if (end < 0) { missing.add(mark); break; }
        if (/\s/.test(text[end - 1]) || (mark[0] === "_" && isWord(text[end + mark.length]))) continue;
        if (mark.length === 1 && (text[end + 1] === mark || text[end - 1] === mark)) continue;
        return [make(tag, ...inline(text.slice(from, end), depth + 1)), end + mark.length];
      }
    }
    return null;
  }
  function startAt(text, i, missing, depth) {
    switch (text[i]) {
      case "\\": return /[!-\/:-@\[-`{-~]/.test(text[i + 1] ?? "") ? [document.createTextNode(text[i + 1]), i + 2] : null;
      case "`": return codeAt(text, i, missing);
      case "!": return text[i + 1] === "[" ? linkAt(text, i) : null;
      case "[": return linkAt(text, i);
      case "h": case "H": return isWord(text[i - 1]) ? null : addressAt(text, i);
      case "*": case "_": case "~": return depth < DEPTH_MAX ? markAt(text, i, missing, depth) : null;
      case "\n": return /  $/.test(text.slice(Math.max(0, i - 2), i)) ? [make("br"), i + 1] : null;
      default: return null;
    }
  }
  function inline(text, depth = 0) {
    const nodes = [], missing = new Set();
    let plain = 0;
    for (let i = 0; i < text.length;) {
      const found = startAt(text, i, missing, depth);
      if (!found) {
        // a run of marks that starts nothing is skipped as a whole
        const run = text[i];
        do i++; while ("`*_~".includes(run) && text[i] === run);
        continue;
      }
      if (i > plain) nodes.push(text.slice(plain, i));
      nodes.push(found[0]);
      i = plain = found[1];
    }
    if (plain < text.length) nodes.push(text.slice(plain));
    return nodes;
  }

  // ---- blocks: each is a run of lines and what makes its node ----
  const fence = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
  const item = /^( {0,7})([-*+]|\d{1,9}[.)])(\s+|$)(.*)$/;
  const isRule = (line) => /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/.test(line);
  const isDivider = (line) => line.includes("-") && line.includes("|") && /^[\s|:-]+$/.test(line);
  const heading = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
  const isQuote = (line) => /^ {0,3}>/.test(line);
  const startsBlock = (line) => fence.test(line) || heading.test(line) || isQuote(line) || isRule(line) || item.test(line);

  function codeBlock(lines) {
    const [, mark, info] = fence.exec(lines[0]);
    const closes = (line) => line.trim().length >= mark.length && [...line.trim()].every((c) => c === mark[0]);
    const body = lines.slice(1, lines.length > 1 && closes(lines.at(-1)) ? -1 : undefined).join("\n");
    const copy = make("button", "Copy");
    copy.type = "button";
    copy.addEventListener("click", () => copyText(body, copy));
    const node = make("div", make("div", make("span", info.trim().split(/\s/)[0]), copy), make("pre", make("code", body)));
    node.className = "code";
    return node;
  }
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
  function table(lines) {
    const row = (line, tag) => make("tr", ...cells(line).map((cell) => make(tag, ...inline(cell))));
    const node = make("div", make("table", make("thead", row(lines[0], "th")), make("tbody", ...lines.slice(2).map((line) => row(line, "td")))));
    node.className = "table";
    return node;
  }
  function list(lines, depth) {
    const first = item.exec(lines[0]);
    const node = make(/\d/.test(first[2]) ? "ol" : "ul");
    if (node.tagName === "OL") node.start = parseInt(first[2], 10);
    let parts = null;
    const flush = () => {
      if (!parts) return;
      const isLoose = parts.some((line, i) => !line.trim() && i < parts.length - 1);
      const nodes = blocks(parts).flatMap((block) => block.isText && !isLoose ? inline(block.lines.join("\n").trim()) : [build(block, depth + 1)]);
      node.append(make("li", ...nodes));
    };
    let indent = 0;
    for (const line of lines) {
      const found = item.exec(line);
      if (found && found[1].length < first[1].length + 2) {
        flush();
        indent = found[1].length + found[2].length + Math.min(Math.max(found[3].length, 1), 4);
        parts = [found[4]];
      } else {
        parts.push(line.slice(Math.min(indent, /^\s*/.exec(line)[0].length)));
      }
    }
    flush();
    return node;
  }
  // Where the block that starts at line `at` ends.
  function endOf(lines, at) {
    const first = lines[at];
    let end = at + 1;
    const opened = fence.exec(first);
    if (opened) {
      while (end < lines.length) {
        const line = lines[end++].trim();
        if (line.length >= opened[1].length && /^(`+|~+)$/.test(line) && line[0] === opened[1][0]) break;
      }
      return end;
    }
    if (heading.test(first) || isRule(first)) return end;
    if (isQuote(first)) { while (end < lines.length && lines[end].trim() && (isQuote(lines[end]) || !startsBlock(lines[end]))) end++; return end; }
    if (first.includes("|") && isDivider(lines[end] ?? "")) { while (end < lines.length && lines[end].includes("|")) end++; return end; }
    const found = item.exec(first);
    if (found) {
      const isOrdered = /\d/.test(found[2]);
      for (; end < lines.length; end++) {
        const line = lines[end], other = item.exec(line), isInside = /^\s{2,}\S/.test(line);
        if (isInside) continue;
        if (!line.trim()) { // continues when an item or something indented follows
          const next = lines.slice(end, end + 3).find((text) => text.trim());
          const follows = next !== undefined && (/^\s{2,}\S/.test(next) || (item.test(next) && !isRule(next) && /\d/.test(item.exec(next)[2]) === isOrdered));
          if (!follows) break;
        } else if (isRule(line) || (other ? /\d/.test(other[2]) !== isOrdered : startsBlock(line) || !lines[end - 1].trim())) break;
      }
      return end;
    }
    while (end < lines.length && lines[end].trim() && !startsBlock(lines[end]) && !(lines[end].includes("|") && isDivider(lines[end + 1] ?? ""))) end++;
    return end;
  }
  function blocks(lines) {
    const all = [];
    for (let at = 0; at < lines.length;) {
      if (!lines[at].trim()) { at++; continue; }
      const end = endOf(lines, at), first = lines[at];
      const isTable = first.includes("|") && end > at + 1 && isDivider(lines[at + 1]);
      all.push({ lines: lines.slice(at, end), isTable, isText: !isTable && !startsBlock(first) });
      at = end;
    }
    return all;
  }
  function build(block, depth) {
    const { lines } = block, first = lines[0];
    if (block.isText || depth >= DEPTH_MAX) return make("p", ...inline(lines.join("\n").trim()));
    if (block.isTable) return table(lines);
    if (fence.test(first)) return codeBlock(lines);
    const head = heading.exec(first);
    if (head) return make("h" + head[1].length, ...inline(head[2]));
    if (isRule(first)) return make("hr");
    if (isQuote(first)) return make("blockquote", ...blocks(lines.map((line) => line.replace(/^ {0,3}> ?/, ""))).map((part) => build(part, depth + 1)));
    return list(lines, depth);
  }

  const sources = new WeakMap();
  // Make container show text; blocks that are as before keep their nodes.
  function render(container, text) {
    const all = blocks(text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n"));
    all.forEach((block, i) => {
      const source = block.lines.join("\n"), old = container.children[i];
      if (old && sources.get(old) === source) return;
      const node = build(block, 0);
      sources.set(node, source);
      if (old) old.replaceWith(node); else container.append(node);
    });
    while (container.children.length > all.length) container.lastElementChild.remove();
  }
  return { render, make };
})();
