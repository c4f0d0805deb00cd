"use strict";
// Everything that comes from the cluster is put into the page as text, with textContent or as an attribute's value; nothing is ever read as HTML.

const byId = (id) => document.getElementById(id);
const world = { head: null, nodes: new Map(), waiting: [], promised: [], steps: [], held: [], decisions: [], costs: [] };
const mostDecisions = 300;
let skew = 0; // of this machine's clock against the server's, in milliseconds
let token = "";

// ---- what comes from the server ----

// The browser's own EventSource cannot send a token, so the stream is read by hand.
async function follow() {
  let wait = 500;
  for (;;) {
    try {
      const headers = { Accept: "text/event-stream" };
      if (token) headers.Authorization = "Bearer " + token;
      const answer = await fetch("picture", { headers, cache: "no-store", credentials: "omit" });
      if (answer.status === 401 || answer.status === 403) return askWho(answer.status);
      if (!answer.ok) throw new Error((await answer.text()).trim() || "status " + answer.status);
      for await (const [event, data] of events(answer.body)) {
        take(event, JSON.parse(data));
        wait = 0;
      }
      if (wait === 0) continue; // an answer ends now and then, so that the server can look again who asks
      throw new Error("the server has gone");
    } catch (problem) {
      byId("state").textContent = "not connected: " + problem.message + "; trying again";
    }
    wait = Math.min(15000, Math.max(500, wait * 2));
    await new Promise((done) => setTimeout(done, wait));
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const from = Math.max(0, rest.length - 1);
    rest += value;
    let begin = 0;
    for (let end = rest.indexOf("\n\n", from); end >= 0; end = rest.indexOf("\n\n", begin)) {
      const message = rest.slice(begin, end);
      begin = end + 2;
      if (message.startsWith("event: ")) {
        const line = message.indexOf("\n");
        yield [message.slice(7, line), message.slice(line + 7)]; // after "data: "
      }
    }
    rest = rest.slice(begin);
  }
}

function take(event, data) {
  skew = new Date(data.at) - Date.now();
  if (event === "picture") {
    world.nodes = new Map(data.nodes.map((n) => [n.name, n]));
    world.decisions = data.decisions;
    world.costs = data.costs || [];
    stale.nodes = true;
  } else {
    for (const n of data.put || []) world.nodes.set(n.name, n);
    for (const name of data.gone || []) world.nodes.delete(name);
    if (data.put || data.gone) stale.nodes = true;
    world.decisions = world.decisions.concat(data.decisions || []).slice(-mostDecisions);
    world.costs = world.costs.concat(data.costs || []);
  }
  for (const part of ["head", "waiting", "promised", "steps", "held"]) if (data[part]) world[part] = data[part];
  stale.lists = true;
  byId("state").textContent = "live, as of " + new Date(data.at).toLocaleTimeString();
  byId("main").hidden = false;
  byId("login").hidden = true;
  draw();
}

function askWho(status) {
  byId("main").hidden = true;
  byId("login").hidden = false;
  byId("state").textContent = "";
  if (token) byId("refused").textContent = status === 403 ? "The API server knows whose token this is, and does not let them." : "The API server does not know this token.";
  byId("token").focus();
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  byId("token").value = "";
  byId("refused").textContent = "";
  follow();
});

// ---- making elements ----

function make(tag, name, text) {
  const e = document.createElement(tag);
  if (name) e.className = name;
  if (text !== undefined) e.textContent = text;
  return e;
}

function put(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

const money = (x, digits = 2) => "$" + x.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const percent = ([used, all]) => (all ? Math.round((100 * used) / all) + "%" : "–");
const part = ([used, all]) => (all ? used / all : 0);
const number = (x) => x.toLocaleString("en", { maximumFractionDigits: 1 });
const plural = (n, what) => n.toLocaleString("en") + " " + what + (n === 1 ? "" : "s");

function age(at) {
  const s = Math.max(0, (Date.now() + skew - new Date(at)) / 1000);
  if (s < 90) return Math.round(s) + " s";
  if (s < 5400) return Math.round(s / 60) + " min";
  if (s < 129600) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " d";
}

const ahead = (at) => (new Date(at) - Date.now() - skew > 0 ? "until " + new Date(at).toLocaleTimeString() : "");
const several = (names, count) => names.join(", ") + (count > names.length ? " and " + (count - names.length) + " more" : "");

// ---- drawing, once for each frame of the screen at most ----

const stale = { nodes: false, lists: false, asked: false };

function draw() {
  if (stale.asked) return;
  stale.asked = true;
  requestAnimationFrame(() => {
    stale.asked = false;
    if (stale.nodes) arrange();
    if (stale.lists) lists();
    stale.nodes = stale.lists = false;
  });
}

function totals() {
  const h = world.head;
  byId("notice").hidden = !h.notice;
  put(byId("notice"), h.notice || "");
  const facts = [
    ["fleet", money(h.perHour, 4) + " an hour"],
    ["a day", money(24 * h.perHour)],
    ["nodes", h.nodes.toLocaleString("en") + (h.others ? " and " + h.others + " of others" : "")],
    ["pods", h.pods.toLocaleString("en")],
    ["waiting", h.waiting.toLocaleString("en")],
    ["CPU asked for", percent(h.cpu) + " of " + number(h.cpu[1])],
    ["memory asked for", percent(h.memory) + " of " + number(h.memory[1]) + " GiB"],
    ["held back by budgets", money(24 * h.heldBack) + " a day"],
  ];
  if (h.unknown) facts.push(["price not known of", plural(h.unknown, "node")]);
  const all = byId("totals");
  all.replaceChildren(...facts.map(([name, value]) => {
    const pair = make("div");
    pair.append(make("dt", "", name), make("dd", "", value));
    return pair;
  }));
  for (const p of h.pools) {
    const pair = make("div");
    pair.append(make("dt", "", "NodePool " + p.name), make("dd", "", plural(p.nodes, "node") + ", " + money(p.perHour) + "/h"));
    if (p.paused) pair.append(make("p", "small mark", p.paused));
    all.append(pair);
  }
}

function list(id, items, empty, fill, names) {
  const into = byId(id).querySelector("ul, ol");
  const title = byId(id + "-title");
  put(title, names + (items.length ? " (" + items.length + ")" : ""));
  into.replaceChildren(...(items.length ? items.map((x) => { const li = make("li"); fill(li, x); return li; }) : [make("li", "small", empty)]));
}

function line(li, money, strong, ...rest) {
  if (money) li.append(make("span", "money", money));
  li.append(make("b", "", strong));
  for (const text of rest) if (text) li.append(make("div", "", text));
}

function lists() {
  totals();
  list("waiting", world.waiting, "No pod waits without a place.", (li, w) =>
    line(li, "", plural(w.count, "pod") + " of " + w.owner, w.why, several(w.pods, w.count) + ", for " + age(w.since)), "Pods that wait");
  list("promised", world.promised, "No pod waits for a node.", (li, p) =>
    line(li, "", plural(p.count, "pod") + " of " + p.owner, "to " + p.node + (p.boots ? ", which boots" : ""), several(p.pods, p.count) + ", for " + age(p.since)), "Pods with a promised node");
  list("steps", world.steps, "Nothing is under way.", (li, s) =>
    line(li, s.savesDay ? "saves " + money(s.savesDay) + " a day" : "", s.reason + ": " + s.stage, s.text || several(s.nodes, s.nodes.length), plural(s.pods, "pod") + " would move" + (ahead(s.until) ? ", " + ahead(s.until) : "")), "Steps");
  list("held", world.held, "Nobody holds anything back.", (li, h) =>
    line(li, h.saves ? money(h.perDay) + " a day not saved" : plural(h.count, "node") + " for " + money(h.perDay) + " a day", h.by, h.why, several(h.nodes, h.count)), "Held back");
  list("decisions", world.decisions.slice().reverse(), "Nothing was decided since this replica began to lead.", (li, d) => {
    li.append(make("span", "money", d.perHour === "-" ? "" : d.perHour + " $/h"));
    const at = make("time", "small", new Date(d.at).toLocaleTimeString() + " ");
    at.dateTime = d.at;
    li.append(at, make("span", "act", d.act), make("b", "", " " + d.about));
    if (d.reason || d.text) li.append(make("div", "", [d.reason, d.text].filter(Boolean).join(": ")));
  }, "Decisions");
  chart();
}

function chart() {
  const points = world.costs;
  const svg = byId("chart");
  const series = [["cost", "perHour", "what the fleet costs"], ["target", "target", "what the cheapest fleet found would cost, all that may move moved"]];
  const legend = byId("legend");
  legend.replaceChildren();
  const h = world.head;
  const p = h.plan;
  put(byId("plan"), p ? "The last plan for pods that waited, " + age(p.at) + " ago: " + money(p.price, 4) + "/h for its new nodes; decisions reckon with " + money(p.cost, 4) +
    (p.bound ? ", " + number(Math.max(0, 100 * (p.cost / p.bound - 1))) + "% more than the bound of " + money(p.bound, 4) + ", below which no fleet for the same pods comes" : "") + "." : "No plan has opened a node since this replica began to lead.");
  if (points.length < 2) {
    svg.replaceChildren();
    legend.textContent = "The lines begin with the second look at the price, after 15 seconds.";
    return;
  }
  const from = new Date(points[0].at), to = new Date(points[points.length - 1].at);
  const top = Math.max(1e-9, ...points.map((c) => Math.max(c.perHour, c.target, c.bound)));
  const lines = [];
  for (const [name, key, text] of series.concat([["bound", "bound", "the bound of the last plan, of its new nodes alone"]])) {
    const at = points.filter((c) => key === "perHour" || c[key] > 0);
    if (at.length < 2) continue;
    const l = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    l.setAttribute("class", "line " + name);
    l.setAttribute("points", at.map((c) => ((600 * (new Date(c.at) - from)) / (to - from)).toFixed(1) + "," + (116 - (108 * c[key]) / top).toFixed(1)).join(" "));
    lines.push(l);
    legend.append(make("span", "key " + name), text);
  }
  svg.replaceChildren(...lines);
  svg.setAttribute("aria-label", "Cost of the fleet since " + from.toLocaleTimeString() + ": " + money(points[0].perHour, 4) + " then, " + money(h.perHour, 4) + " an hour now, at most " + money(Math.max(...points.map((c) => c.perHour)), 4));
  legend.append(make("span", "", " · from 0 to " + money(top, 4) + "/h, since " + from.toLocaleTimeString()));
}

// ---- the fleet: only the rows that can be seen are elements ----

const height = 26;
const fleet = { order: [], active: "", slots: [] };
const rows = byId("rows");

const orders = {
  perHour: (a, b) => b.perHour - a.perHour,
  cpu: (a, b) => part(b.cpu) - part(a.cpu),
  memory: (a, b) => part(b.memory) - part(a.memory),
  pods: (a, b) => b.pods - a.pods,
  name: () => 0,
  marks: (a, b) => (a.marks ? 0 : 1) - (b.marks ? 0 : 1) || (a.marks || "").localeCompare(b.marks || ""),
};

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

function arrange() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (n) => {
    const text = [n.name, n.claim, n.pool, n.type, n.zone, n.capacityType, n.marks, n.by].join(" ").toLowerCase();
    return words.every((w) => text.includes(w));
  };
  const by = orders[byId("sort").value];
  fleet.order = [...world.nodes.values()].filter((n) => !words.length || fits(n)).sort((a, b) => by(a, b) || compare(a.name, b.name));
  byId("space").style.height = fleet.order.length * height + "px";
  put(byId("shown"), fleet.order.length === world.nodes.size ? plural(world.nodes.size, "node") : fleet.order.length.toLocaleString("en") + " of " + plural(world.nodes.size, "node"));
  scroll();
}

function newRow() {
  const e = make("div", "row");
  e.id = "row-" + fleet.slots.length;
  e.setAttribute("role", "option");
  const meter = (name) => {
    const m = make("span", "meter " + name);
    m.append(make("i"));
    return m;
  };
  e.append(make("span"), make("span"), make("span"), make("span", "n"), meter("cpu"), meter("memory"), make("span", "n"), make("span", "mark"));
  e.addEventListener("click", () => choose(e.index));
  fleet.slots.push(e);
  rows.append(e);
  return e;
}

function fill(e, n, index) {
  const [name, pool, kind, price, cpu, memory, pods, marks] = e.children;
  e.index = index;
  e.hidden = false;
  e.style.transform = "translateY(" + index * height + "px)";
  put(name, n.name);
  put(pool, n.pool);
  put(kind, [n.type, n.zone, n.capacityType].filter(Boolean).join(" · "));
  put(price, n.perHour ? n.perHour.toFixed(4) : "?");
  for (const [meter, share, unit] of [[cpu, n.cpu, "CPUs"], [memory, n.memory, "GiB"]]) {
    meter.firstChild.style.width = Math.min(100, 100 * part(share)) + "%";
    meter.title = room(share, unit);
  }
  put(pods, String(n.pods));
  put(marks, [n.marks, n.held].filter(Boolean).join(": "));
  marks.title = n.held || "";
  marks.className = !n.marks ? "small" : n.by ? "mark held" : n.marks.includes("goes") ? "mark goes" : "mark";
  e.setAttribute("aria-label", describe(n));
  e.setAttribute("aria-setsize", fleet.order.length);
  e.setAttribute("aria-posinset", index + 1);
  const active = n.name === fleet.active;
  e.setAttribute("aria-selected", active);
  if (active) rows.setAttribute("aria-activedescendant", e.id);
}

const room = (share, unit) => number(share[0]) + " of " + number(share[1]) + " " + unit + " asked for, " + number(Math.max(0, share[1] - share[0])) + " free";
const describe = (n) => [n.name, "pool " + n.pool, n.type, n.zone, n.capacityType, (n.perHour ? money(n.perHour, 4) : "unknown price") + " an hour", "CPU " + percent(n.cpu), "memory " + percent(n.memory), plural(n.pods, "pod"), n.marks, n.held].filter(Boolean).join(", ");

function scroll() {
  const first = Math.max(0, Math.floor(rows.scrollTop / height) - 4);
  const count = Math.min(fleet.order.length - first, Math.ceil(rows.clientHeight / height) + 8);
  rows.removeAttribute("aria-activedescendant");
  for (let i = 0; i < count; i++) fill(fleet.slots[i] || newRow(), fleet.order[first + i], first + i);
  for (let i = Math.max(0, count); i < fleet.slots.length; i++) fleet.slots[i].hidden = true;
  detail();
}

function choose(index) {
  if (!fleet.order.length) return;
  index = Math.max(0, Math.min(fleet.order.length - 1, index));
  fleet.active = fleet.order[index].name;
  const top = index * height;
  if (top < rows.scrollTop) rows.scrollTop = top;
  else if (top + height > rows.scrollTop + rows.clientHeight) rows.scrollTop = top + height - rows.clientHeight;
  scroll();
}

function detail() {
  const n = world.nodes.get(fleet.active);
  const into = byId("detail");
  if (!n) {
    if (into.firstChild) into.replaceChildren();
    return;
  }
  const text = [n.name + " (NodeClaim " + n.claim + ")", room(n.cpu, "CPUs") + "; " + room(n.memory, "GiB") + "; " + plural(n.pods, "pod"), n.marks, n.held && "why it stays: " + n.held, n.by && "held by " + n.by].filter(Boolean);
  if (into.textContent !== text.join("")) into.replaceChildren(...text.map((t, i) => make(i ? "div" : "b", "", t)));
}

rows.addEventListener("scroll", () => requestAnimationFrame(scroll), { passive: true });
rows.addEventListener("keydown", (event) => {
  if (stale.nodes) arrange(); // a key means the order that was asked for, drawn or not
  const at = fleet.order.findIndex((n) => n.name === fleet.active);
  const page = Math.max(1, Math.floor(rows.clientHeight / height) - 1);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: fleet.order.length - 1 }[event.key];
  if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  choose(to);
});

let typing = 0;
byId("filter").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => { rows.scrollTop = 0; stale.nodes = true; draw(); }, 60);
});
byId("sort").addEventListener("change", () => { rows.scrollTop = 0; stale.nodes = true; draw(); });
addEventListener("resize", () => { stale.nodes = true; draw(); });
addEventListener("keydown", (event) => {
  const writes = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName || "");
  if (event.key === "/" && !writes && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    byId("filter").focus();
    byId("filter").select();
  } else if (event.key === "Escape" && event.target === byId("filter")) {
    byId("filter").value = "";
    stale.nodes = true;
    draw();
    rows.focus();
  }
});
setInterval(() => { if (world.head) { stale.lists = true; draw(); } }, 10000);
follow();
