// The chat: messages, settings, one answer at a time over POST v1/chat/completions, streamed.
const { render, make } = markdown;
const $ = (id) => document.getElementById(id);
const state = { messages: [], abort: null, isBase: false, sticks: true };
const stored = ["system", "temperature", "top_p", "max_tokens", "seed", "tools", "theme"];

// ---- what the browser keeps: settings, and until the tab is closed the key and the conversation ----
function keep(store, name, value) { try { if (value === "") store.removeItem(name); else store.setItem(name, value); } catch { /* a full or forbidden store */ } }
function recall(store, name) { try { return store.getItem(name) ?? ""; } catch { return ""; } }
const keepMessages = () => keep(sessionStorage, "ashlar.messages", state.messages.length ? JSON.stringify(state.messages) : "");

async function copyText(text, button) {
  const label = button.textContent;
  try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Not allowed"; }
  setTimeout(() => { button.textContent = label; }, 1200);
}
function button(label, action) {
  const node = make("button", label);
  node.type = "button";
  node.addEventListener("click", action);
  return node;
}

// ---- the server ----
function headers() {
  const key = $("key").value.trim();
  return { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };
}
class ApiError extends Error {
  constructor(status, body) {
    const error = body?.error ?? {};
    super(error.message ?? `the server answered ${status}`);
    this.status = status;
    this.code = error.code;
  }
}
async function request(path, body, signal) {
  const response = await fetch(path, { method: body ? "POST" : "GET", headers: headers(), body: body && JSON.stringify(body), signal });
  if (!response.ok) throw new ApiError(response.status, await response.json().catch(() => null));
  return response;
}
// The data of server-sent events, one by one.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const lines = text.split(/\r?\n/);
    text = lines.pop();
    for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
  }
}
async function loadModels() {
  for (;;) {
    try {
      const { data } = await (await request("v1/models")).json();
      $("model").replaceChildren(...data.map((model) => new Option(model.id, model.id)));
      $("model").hidden = false;
      say("");
      return;
    } catch (error) {
      $("model").hidden = true;
      if (error.status === 401) { say("needs an API key"); openSettings("key"); return; }
      say(error.status === 503 ? "loading the model…" : error.message);
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
}
function say(text) { $("state").textContent = text; $("state").title = text; }

// ---- settings ----
const number = (id) => $(id).value.trim() === "" ? undefined : Number($(id).value);
function readTools() {
  const text = $("tools").value.trim();
  if (!text) return undefined;
  const tools = JSON.parse(text);
  if (!Array.isArray(tools)) throw new Error("Tools: a JSON list is needed");
  return tools.length ? tools : undefined;
}
function openSettings(id = "system") {
  $("settings-error").textContent = "";
  if (!$("settings").open) $("settings").showModal();
  $(id).focus();
}
function closeSettings(event) {
  event?.preventDefault();
  try { readTools(); } catch (error) { $("settings-error").textContent = `Tools: ${error.message}`; $("tools").focus(); return; }
  $("settings").close();
}
function keepSettings() {
  for (const id of stored) keep(localStorage, `ashlar.${id}`, $(id).value);
  keep(sessionStorage, "ashlar.key", $("key").value);
  document.documentElement.dataset.theme = $("theme").value;
}
function recallSettings() {
  for (const id of stored) $(id).value = recall(localStorage, `ashlar.${id}`);
  $("key").value = recall(sessionStorage, "ashlar.key");
  document.documentElement.dataset.theme = $("theme").value;
}

// ---- showing messages ----
const names = { user: "You", assistant: "Assistant", tool: "Tool" };
const views = new WeakMap(); // message -> its nodes
const isLast = (message) => state.messages.at(-1) === message;

function view(message) {
  const body = make("div"), thoughts = make("details", make("summary", "Thoughts"), make("div")), calls = make("div"), footer = make("footer");
  const node = make("article", make("header", names[message.role]), thoughts, body, calls, footer);
  node.className = message.role;
  body.className = "body";
  thoughts.hidden = true;
  const nodes = { node, body, thoughts, calls, footer, callNodes: [] };
  views.set(message, nodes);
  return nodes;
}
function showCalls(message, nodes) {
  (message.tool_calls ?? []).forEach((call, i) => {
    nodes.callNodes[i] ??= (() => {
      const name = make("strong"), code = make("pre"), node = make("div", "Calls ", name, code);
      node.className = "call";
      nodes.calls.append(node);
      return { node, name, code };
    })();
    const { name, code } = nodes.callNodes[i];
    let text = call.function.arguments;
    try { text = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not complete yet */ }
    name.textContent = call.function.name;
    code.textContent = text;
  });
}
// A field for what a tool returned, under each call that has no result yet.
function showResultForms(message, nodes) {
  const isOpen = !state.abort && isLast(message) && message.tool_calls;
  nodes.callNodes.forEach(({ node }, i) => {
    node.querySelector("form")?.remove();
    if (!isOpen) return;
    const text = make("textarea"), form = make("form", text);
    text.rows = 2;
    text.placeholder = "What it returned";
    text.setAttribute("aria-label", `Result of ${message.tool_calls[i].function.name}`);
    text.value = message.results?.[i] ?? "";
    text.addEventListener("input", () => { (message.results ??= [])[i] = text.value; });
    const row = make("div", button(message.tool_calls.length > 1 ? "Send results" : "Send result", () => sendResults(message)));
    row.className = "row";
    if (i === message.tool_calls.length - 1) form.append(row);
    form.addEventListener("submit", (event) => { event.preventDefault(); sendResults(message); });
    node.append(form);
  });
}
function showFooter(message, nodes) {
  const parts = [];
  if (!state.abort) {
    if (message.role === "user") parts.push(button("Edit", () => edit(message)));
    if (message.role === "assistant") {
      parts.push(button("Regenerate", () => regenerate(message)));
      if (message.content) { const copy = button("Copy", () => copyText(message.content, copy)); parts.push(copy); }
    }
  }
  if (message.stats) parts.push(make("span", message.stats));
  nodes.footer.replaceChildren(...parts);
}
function show(message) {
  const nodes = views.get(message) ?? view(message);
  if (message.role === "assistant") render(nodes.body, message.content); else nodes.body.textContent = message.content;
  nodes.body.hidden = message.role === "assistant" && !message.content && Boolean(message.reasoning || message.tool_calls || message.error);
  nodes.thoughts.hidden = !message.reasoning;
  nodes.thoughts.lastElementChild.textContent = message.reasoning ?? "";
  showCalls(message, nodes);
  nodes.node.querySelector(".error")?.remove();
  if (message.error) {
    const error = make("p", message.error);
    error.className = "error";
    error.setAttribute("role", "alert");
    nodes.footer.before(error);
  }
  return nodes.node;
}
function showAll() {
  const list = $("messages"), nodes = state.messages.map(show);
  for (const [i, node] of nodes.entries()) if (list.children[i] !== node) list.insertBefore(node, list.children[i] ?? null);
  while (list.children.length > nodes.length) list.lastElementChild.remove();
  for (const message of state.messages) {
    showFooter(message, views.get(message));
    if (message.role === "assistant") showResultForms(message, views.get(message));
  }
  $("empty").hidden = state.messages.length > 0;
  $("send").hidden = Boolean(state.abort);
  $("stop").hidden = !state.abort;
  follow();
}
function follow() { if (state.sticks) $("log").scrollTop = $("log").scrollHeight; }

// ---- asking ----
function toSend(writing) {
  const system = $("system").value.trim();
  const list = state.messages.filter((message) => message !== writing && (!message.error || message.content)).map(({ role, content, tool_calls, tool_call_id }) =>
    ({ role, content, ...(tool_calls && { tool_calls }), ...(tool_call_id && { tool_call_id }) }));
  return system ? [{ role: "system", content: system }, ...list] : list;
}
function body(writing) {
  const common = {
    model: $("model").value || undefined, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true },
    temperature: number("temperature"), top_p: number("top_p"), max_tokens: number("max_tokens"), seed: number("seed"),
  };
  const messages = toSend(writing);
  if (!state.isBase) return { ...common, messages, tools: readTools() };
  // Without a limit a text goes on to its end or the context's; completions alone would stop after 16 tokens.
  return { ...common, n_predict: common.max_tokens === undefined ? -1 : undefined, prompt: messages.map((message) => message.content).join("") };
}
function takeCalls(message, deltas) {
  message.tool_calls ??= [];
  for (const delta of deltas) {
    const call = message.tool_calls[delta.index ?? 0] ??= { id: "", type: "function", function: { name: "", arguments: "" } };
    if (delta.id) call.id = delta.id;
    call.function.name += delta.function?.name ?? "";
    call.function.arguments += delta.function?.arguments ?? "";
  }
}
function take(message, chunk, meter) {
  if (chunk.error) throw new ApiError(500, chunk);
  const choice = chunk.choices?.[0], delta = choice?.delta ?? {}, text = choice?.text ?? delta.content ?? "", thought = delta.reasoning_content ?? delta.reasoning ?? "";
  message.content += text;
  if (thought) message.reasoning = (message.reasoning ?? "") + thought;
  if (delta.tool_calls) takeCalls(message, delta.tool_calls);
  if (choice?.finish_reason) meter.finish = choice.finish_reason;
  if (text || thought || delta.tool_calls) {
    meter.first ??= performance.now();
    meter.last = performance.now();
    meter.chunks++;
  }
  if (chunk.usage) meter.usage = chunk.usage;
}
// "48 tokens · 21.3 tokens/s · first after 0.12 s"
function figures(meter, isDone) {
  const tokens = meter.usage?.completion_tokens ?? meter.chunks, first = meter.first;
  if (first === undefined) return "";
  const seconds = ((isDone ? meter.last : performance.now()) - first) / 1000;
  const parts = [`${tokens} token${tokens === 1 ? "" : "s"}`];
  if (tokens > 1 && seconds > 0) parts.push(`${((tokens - 1) / seconds).toFixed(1)} tokens/s`);
  parts.push(`first after ${((first - meter.start) / 1000).toFixed(2)} s`);
  if (isDone && meter.usage) {
    const cached = meter.usage.prompt_tokens_details?.cached_tokens;
    parts.push(`prompt ${meter.usage.prompt_tokens}${cached ? ` (${cached} cached)` : ""}`);
  }
  if (isDone && meter.finish && meter.finish !== "stop") parts.push(meter.finish === "length" ? "cut at the limit" : meter.finish.replaceAll("_", " "));
  return parts.join(" · ");
}
async function stream(message, meter) {
  const response = await request(state.isBase ? "v1/completions" : "v1/chat/completions", body(message), state.abort.signal);
  let frame = 0;
  const draw = () => { frame = 0; if (meter.isDone) return; show(message); say(figures(meter, false)); follow(); };
  for await (const data of events(response)) {
    if (data === "[DONE]") return;
    take(message, JSON.parse(data), meter);
    frame ||= requestAnimationFrame(draw);
  }
  throw new Error("the connection ended before the answer did");
}
async function answer() {
  const message = { role: "assistant", content: "" }, meter = { start: performance.now(), chunks: 0 };
  state.messages.push(message);
  state.abort = new AbortController();
  state.sticks = true;
  showAll();
  views.get(message).node.classList.add("writing");
  say("waiting…");
  try {
    try { await stream(message, meter); } catch (error) {
      if (error.code !== "no_chat_template" || state.isBase) throw error;
      state.isBase = true; // a base model: it continues the text
      await stream(message, meter);
    }
  } catch (error) {
    if (error.name === "AbortError") meter.finish = "stopped"; else message.error = error.message;
    if (error.status === 401) openSettings("key");
  }
  state.abort = null;
  meter.isDone = true;
  message.stats = figures(meter, true) || (meter.finish ?? "");
  views.get(message).node.classList.remove("writing");
  $("announce").textContent = message.error ? "" : `Answer complete. ${message.stats}`; // an error is announced by itself
  say(state.isBase ? "no chat template: continues your text" : "");
  keepMessages();
  showAll();
  if (!document.activeElement || document.activeElement === document.body) $("text").focus();
}
const cutTo = (count) => { state.messages.length = count; };

function send(event) {
  event?.preventDefault();
  const text = $("text").value;
  if (!text.trim() || state.abort) return;
  $("text").value = "";
  grow($("text"));
  state.messages.push({ role: "user", content: text });
  answer();
}
function sendResults(message) {
  if (state.abort) return;
  message.tool_calls.forEach((call, i) => state.messages.push({ role: "tool", tool_call_id: call.id, content: message.results?.[i] ?? "" }));
  answer();
}
function regenerate(message) {
  if (state.abort) return;
  cutTo(state.messages.indexOf(message));
  answer();
}
function edit(message) {
  const nodes = views.get(message), text = make("textarea"), row = make("div"), form = make("form", text, row);
  const close = () => { form.replaceWith(nodes.body); nodes.footer.hidden = false; nodes.footer.querySelector("button")?.focus(); };
  const done = (event) => {
    event?.preventDefault();
    if (!text.value.trim() || state.abort) return;
    close();
    cutTo(state.messages.indexOf(message));
    state.messages.push({ ...message, content: text.value });
    $("text").focus();
    answer();
  };
  form.className = "edit";
  row.className = "row";
  row.append(button("Cancel", close), button("Send", done));
  text.value = message.content;
  text.setAttribute("aria-label", "Edit your message");
  text.addEventListener("input", () => grow(text));
  text.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.stopPropagation(); close(); }
    if (isSend(event)) done(event);
  });
  form.addEventListener("submit", done);
  nodes.body.replaceWith(form);
  nodes.footer.hidden = true;
  text.focus();
  grow(text);
}
function grow(text) { text.style.height = "auto"; text.style.height = `${text.scrollHeight + 2}px`; }
const isSend = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing;
const stop = () => state.abort?.abort();

// ---- the page ----
$("ask").addEventListener("submit", send);
$("stop").addEventListener("click", () => { stop(); $("text").focus(); });
$("text").addEventListener("input", () => grow($("text")));
$("text").addEventListener("keydown", (event) => {
  const last = state.messages.findLast((message) => message.role === "user");
  if (isSend(event)) send(event);
  else if (event.key === "ArrowUp" && !$("text").value && last && !state.abort) { event.preventDefault(); edit(last); }
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && !$("settings").open) stop(); });
$("new").addEventListener("click", () => { stop(); state.messages = []; state.isBase = false; keepMessages(); showAll(); say(""); $("text").focus(); });
$("open-settings").addEventListener("click", () => openSettings());
$("settings-form").addEventListener("submit", closeSettings);
$("settings-form").addEventListener("input", keepSettings);
$("settings").addEventListener("close", () => { if (!$("model").options.length) loadModels(); $("text").focus(); });
$("log").addEventListener("scroll", () => { const log = $("log"); state.sticks = log.scrollHeight - log.scrollTop - log.clientHeight < 40; });
$("base").textContent = new URL("v1", location.href).href;
recallSettings();
try { state.messages = JSON.parse(recall(sessionStorage, "ashlar.messages") || "[]"); } catch { state.messages = []; }
showAll();
loadModels();
