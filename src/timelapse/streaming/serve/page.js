"use strict";
// All that comes from the run is put in as text (textContent), never as markup.
const $ = (id) => document.getElementById(id);
let token = sessionStorage.getItem("token") || "";
const number = (n, digits = 0) => n === null || n === undefined ? "–" : Number(n).toLocaleString("en", { maximumFractionDigits: digits });

async function get(path) {
  const answer = await fetch(path, { headers: token ? { Authorization: "Bearer " + token } : {} });
  if (answer.status === 401) { $("ask").hidden = false; $("all").hidden = true; throw new Error("token"); }
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

function element(name, text, kind) {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function options(select, names) {
  if ([...select.options].map((o) => o.value).join("\n") === names.join("\n")) return;
  const before = select.value;
  select.replaceChildren(...names.map((n) => { const o = element("option", n); o.value = n; return o; }));
  if (names.includes(before)) select.value = before;
}

function chart(svg, values) {
  const space = "http://www.w3.org/2000/svg", width = 600, height = 140;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.replaceChildren();
  const most = Math.max(...values, 1e-9), step = width / Math.max(values.length, 1);
  values.forEach((value, at) => {
    const bar = document.createElementNS(space, "rect"), size = value / most * (height - 18);
    for (const [name, v] of Object.entries({ x: at * step, y: height - size, width: Math.max(step - 1, .5), height: size, fill: "var(--blue)" })) bar.setAttribute(name, v);
    svg.append(bar);
  });
  const label = document.createElementNS(space, "text");
  label.setAttribute("x", 2); label.setAttribute("y", 11);
  label.textContent = values.length ? "up to " + number(most, 1) : "nothing in the last 30 seconds";
  svg.append(label);
}

function show(s) {
  $("ask").hidden = true; $("all").hidden = false;
  $("program").textContent = s.program;
  $("state").textContent = s.state;
  $("state").className = "state " + ({ failed: "bad", waiting: "warn", paused: "warn" }[s.state] || "");
  $("moment").textContent = s.complete_text ? `complete up to ${s.complete_text} UTC` : "no row is complete yet";
  const problem = s.problem || s.outrun;
  $("problem").hidden = !problem; $("problem").textContent = problem;
  const p99 = s.commit_seconds.p99;
  const figures = [
    ["rows per second", number(s.rows_per_second)], ["rows in all", number(s.rows)], ["epochs", number(s.epoch)],
    [s.state === "following" ? "ms until read here (p50 / p99)" : "ms to commit (p50 / p99)", p99 === undefined ? "–" : number(1000 * s.commit_seconds.p50) + " / " + number(1000 * p99)],
    ["seconds behind the clock", number(s.behind_seconds, 1)], ["rows that wait", number(s.waiting_rows)], ["late rows", number(s.late)],
    ...(s.stale ? [["of these too far back for a correction", number(s.stale)]] : []),
    ["put aside", number(s.aside)], ["put aside by filters", number(s.filtered)], ["came before", number(s.duplicates)], ["rejected", number(s.rejected)], ["taken out", number(s.quarantined)],
    ["handlers run as", s.compiled ? "machine code" : "Python"],
    ...(s.early ? [["early results confirmed / retracted", number(s.early.confirmed) + " / " + number(s.early.retracted)]] : []),
    ...Object.entries(s.sliced_epochs).map(([where, epochs]) => [`epochs in time slices, ${where}`, number(epochs)]), ["digest", (s.digest || "–").slice(0, 12)],
  ];
  $("figures").replaceChildren(...figures.map(([name, value]) => { const box = element("div", ""); box.append(element("b", value), element("span", name)); return box; }));
  chart($("rows"), s.recent.map((r) => r[1]));
  chart($("millis"), s.recent.map((r) => 1000 * r[2]));
  $("partitions").replaceChildren(...(s.partitions || []).map((p) => {
    const row = document.createElement("tr");
    row.append(element("td", p.stream), element("td", p.partition), element("td", (p.greatest || "–") + (p.idle ? "  (idle)" : ""), p.idle ? "soft" : ""),
      ...[p.position, p.rows, p.late, p.aside].map((n) => element("td", number(n), "n")), element("td", p.source, "soft"));
    return row;
  }));
  $("sinks").replaceChildren(...s.sinks.map((k) => element("li", `${k.sink}: up to epoch ${number(k.epoch)}` + (k.error ? " – " + k.error : ""), k.error ? "bad" : "")));
  $("operate-box").hidden = s.state === "following";  // who runs it decides
  $("sinks-box").hidden = !s.sinks.length;
  filters(s.filters || []);
  options($("states"), s.states);
  const early = s.early || { records: {}, problem: "" };
  options($("records"), [...new Set([...Object.keys(s.records || {}), ...Object.keys(early.records)])]);
  $("early-box").hidden = !s.early;
  $("early-problem").hidden = !early.problem; $("early-problem").textContent = early.problem;
}

let listed = "";
async function outputs() {
  const record = $("records").value;
  if (!record) return;
  const found = await get(`/api/outputs/${encodeURIComponent(record)}?limit=20`), text = JSON.stringify([record, found.rows]);
  $("early").replaceChildren(...(found.early || []).map(({ "@early": epoch, ...row }) => {
    const line = element("li", "");
    line.append(element("span", `behind epoch ${number(epoch)}`, "soft"), element("span", JSON.stringify(row)));
    return line;
  }));
  $("no-early").hidden = !found.early || found.early.length > 0;
  if (text === listed) return;  // a button that has the focus stays
  listed = text;
  $("none").hidden = found.rows.length > 0;
  $("outputs").replaceChildren(...found.rows.map((row) => {
    const line = document.createElement("li"), button = element("button", "why"), shown = JSON.stringify(row);
    button.setAttribute("aria-label", "why " + shown);
    button.addEventListener("click", () => why(record, row, shown));
    line.append(button, element("span", shown));
    return line;
  }));
}

let question = 0;
async function why(record, row, shown) {
  const own = ++question, say = (text) => { if (own === question) $("why").textContent = text; };
  $("answer").hidden = false; $("asked").textContent = `Why ${record} ${shown}`;
  say("replaying the journal ...");
  try {
    const headers = { "Content-Type": "application/json", ...(token ? { Authorization: "Bearer " + token } : {}) };
    const answer = await fetch("/api/why", { method: "POST", headers, body: JSON.stringify({ record, row }) });
    const found = await answer.json();
    say(answer.ok ? found.text : found.error);
  } catch (error) { say("no answer: " + error.message); }
}

async function turn() {
  try { show(await get("/api/status")); await outputs(); }
  catch (error) { if (error.message !== "token") { $("problem").hidden = false; $("problem").textContent = "no answer: " + error.message; } }
  setTimeout(turn, 1000);
}

$("token-form").addEventListener("submit", (event) => { event.preventDefault(); token = $("token").value.trim(); sessionStorage.setItem("token", token); });
$("look").addEventListener("submit", async (event) => {
  event.preventDefault();
  const key = $("key").value.trim(), state = encodeURIComponent($("states").value);
  try { $("value").textContent = JSON.stringify(await get(`/api/state/${state}` + (key ? "?key=" + encodeURIComponent(key) : "?limit=20")), null, 2); }
  catch (error) { $("value").textContent = error.message; }
});
let kept = [];
function filters(now) {
  if (JSON.stringify(now) === JSON.stringify(kept) && $("filters").childElementCount === now.length) return;
  kept = now;
  $("filters").replaceChildren(...now.map((text) => {
    const line = document.createElement("li"), button = element("button", "no longer");
    button.addEventListener("click", () => filter({ remove: [text] }));
    line.append(button, element("span", text));
    return line;
  }));
}

async function operate(path, body) {
  const answer = await fetch(path, { method: "POST", body, headers: { Authorization: "Bearer " + $("operator").value.trim() } });
  const found = await answer.json();
  return [answer.ok, found];
}

async function filter(change) {
  const [good, found] = await operate("/api/filters", JSON.stringify(change));
  if (good) filters(found.filters);
  $("done").textContent = !good ? found.error : found.recorded ? "filters: recorded" : "filters: recorded with the next epoch";
}

$("filter").addEventListener("submit", (event) => { event.preventDefault(); filter({ add: [$("condition").value.trim()] }); });
$("close").addEventListener("click", () => { question++; $("answer").hidden = true; });
$("operate").addEventListener("submit", async (event) => {
  event.preventDefault();
  const what = event.submitter.value;
  const [good, found] = await operate("/api/" + what);
  $("done").textContent = good ? what + ": done" : found.error;
});
turn();
