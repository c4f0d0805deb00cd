"use strict";
// Everything that comes from the cluster is put into the page as text, with textContent or as an attribute's value; nothing is ever read as HTML.

const byId = (id) => document.getElementById(id);
const world = { head: null, nodes: new Map(), waiting: [], promised: [], steps: [], held: [], decisions: [], costs: [] };
const mostDecisions = 300;
let skew = 0; // of this machine's clock against the server's, in milliseconds
let token = "";

// ---- what comes from the server ----

const ask = (path, kind) => fetch(path, { headers: token ? { Accept: kind, Authorization: "Bearer " + token } : { Accept: kind }, cache: "no-store", credentials: "omit" });

// The browser's own EventSource cannot send a token, so the stream is read by hand.
async function follow() {
  let wait = 500;
  for (;;) {
    try {
      const answer = await ask("picture", "text/event-stream");
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

// plain puts the marks of a node into words.
function plain(n) {
  n.marks = (n.marks || "").replace("boots", "starting").replace("goes", "leaving");
  return n;
}

function take(event, data) {
  skew = new Date(data.at) - Date.now();
  if (event === "picture") {
    world.nodes = new Map(data.nodes.map((n) => [n.name, plain(n)]));
    world.decisions = data.decisions;
    world.costs = data.costs || [];
    stale.nodes = true;
  } else {
    for (const n of data.put || []) world.nodes.set(n.name, plain(n));
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
  if (event === "picture") opened.show();
  opened.look();
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

// Formats are made once: each toLocaleString with options would make one.
const whole = new Intl.NumberFormat("en"), tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const fixed = [0, 2, 4].map((digits) => new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
const money = (x, digits = x < 1000 ? 2 : 0) => "$" + fixed[digits / 2].format(x);
const percent = ([used, all]) => (all ? Math.round((100 * used) / all) + "%" : "–");
const part = ([used, all]) => (all ? used / all : 0);
const number = (x) => tenths.format(x);
const plural = (n, what) => whole.format(n) + " " + what + (n === 1 ? "" : what.endsWith("ch") ? "es" : "s");

function age(at) {
  const s = Math.max(0, (Date.now() + skew - new Date(at)) / 1000);
  if (s < 90) return Math.round(s) + " s";
  if (s < 5400) return Math.round(s / 60) + " min";
  if (s < 129600) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " d";
}

const ahead = (at) => (new Date(at) - Date.now() - skew > 0 ? "until " + new Date(at).toLocaleTimeString() : "");
const several = (names, count) => names.join(", ") + (count > names.length ? " and " + (count - names.length) + " more" : "");

// ---- what pods that are not there yet would lead to ----

byId("preview").querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const shown = byId("plan");
  shown.replaceChildren(make("p", "small", "planning …"));
  const headers = { "Content-Type": "application/yaml" };
  if (token) headers.Authorization = "Bearer " + token;
  try {
    const answer = await fetch("preview", { method: "POST", body: byId("manifests").value, headers, cache: "no-store", credentials: "omit" });
    const text = await answer.text();
    shown.replaceChildren(...(answer.ok ? planned(JSON.parse(text)) : text.trim().split("\n").map((line) => make("p", "notice", line))));
  } catch (problem) {
    shown.replaceChildren(make("p", "notice", "not connected: " + problem.message));
  }
});

// planned says in words what a plan has.
function planned(plan) {
  const alike = new Map();
  for (const c of plan.claims) {
    const key = [c.type, c.zone, c.capacityType, c.pool].join();
    const same = alike.get(key) || { ...c, count: 0, pods: 0, perHour: 0 };
    alike.set(key, { ...same, count: same.count + 1, pods: same.pods + c.pods.length, perHour: same.perHour + c.pricePerHour });
  }
  let head = plan.claims.length ? plural(plan.claims.length, "new node") + " for " + money(plan.pricePerHour, 4) + " an hour" : "No new node";
  if (plan.claims.length && !plan.unschedulable.length) head += ", at most " + (100 * plan.gap).toFixed(2) + " % above the lowest possible price of new nodes for these pods";
  const list = make("ul");
  const line = (text) => list.append(make("li", "", text));
  for (const c of alike.values()) line(c.count + " × " + c.type + " in " + c.zone + ", " + c.capacityType + ", NodePool " + c.pool + ", for " + plural(c.pods, "pod") + ": " + money(c.perHour, 4) + " an hour");
  for (const n of plan.existing) line(plural(n.pods.length, "pod") + " on node " + n.node);
  for (const p of plan.unschedulable) line(p.pod + " has no place: " + p.reasons.join("; "));
  return [make("p", plan.unschedulable.length ? "notice" : "", head + (plan.unschedulable.length ? "; " + plural(plan.unschedulable.length, "pod") + " without a place" : "") + "."), list];
}

// ---- drawing, once for each frame of the screen at most ----

const stale = { nodes: false, lists: false, asked: false };
let still = 0; // until then the list is being scrolled, and nothing else is drawn: drawing thousands of nodes would make it stutter

function draw() {
  if (stale.asked) return;
  stale.asked = true;
  requestAnimationFrame(() => {
    stale.asked = false;
    if (performance.now() < still) return void setTimeout(draw, 100);
    if (stale.nodes) arrange();
    if (stale.lists) lists();
    stale.nodes = stale.lists = false;
  });
}

// A list is drawn again as a whole; what had the focus in it gets it back.
function list(id, items, empty) {
  const into = byId(id).querySelector("ul, ol");
  const focused = into.contains(document.activeElement) && document.activeElement.href;
  into.replaceChildren(...(items.length ? items : [entry({ title: empty })]));
  if (focused) [...into.querySelectorAll("a")].find((a) => a.href === focused)?.focus();
}

// entry makes an item of a list: a sign, a title, an amount, lines below, links to nodes and a command that helps.
function entry({ sign, title, amount, lines = [], nodes = [], more = 0, command, id }) {
  const li = make("li", id && where.step === id ? "target" : "");
  if (amount) li.append(make("span", "money", amount));
  if (sign) li.append(make("span", "sign " + sign, { bad: "✖ ", warn: "▲ ", good: "✔ ", now: "● " }[sign]));
  const head = make("b", "", id ? undefined : title);
  if (id) head.append(link({ step: id }, title));
  li.append(head);
  for (const text of lines) if (text) li.append(make("div", "", text));
  if (nodes.length) {
    const at = make("div", "small");
    nodes.forEach((n, i) => at.append(i ? ", " : "", link({ node: n }, n)));
    if (more > 0) at.append(" and " + more + " more");
    li.append(at);
  }
  if (command) li.append(make("code", "small", command));
  return li;
}

function link(to, text) {
  const a = make("a", "", text);
  a.href = "#" + new URLSearchParams({ ...kept(), ...to });
  return a;
}

const first = (pods) => pods[0].split("/");
const whyPod = (pods) => "karpenter why pod " + first(pods)[1] + " -n " + first(pods)[0];

function wrong() {
  const h = world.head, out = [];
  for (const f of h.feeds || []) out.push(entry({ sign: "bad", title: "The API server no longer reports " + f.kind, lines: [f.why, "for " + age(f.since) + "; nothing is removed voluntarily meanwhile"] }));
  for (const p of h.pools) if (p.notReady) out.push(entry({ sign: "bad", title: "NodePool " + p.name + " gets no nodes", lines: [p.notReady], command: "kubectl describe nodepool " + p.name }));
  for (const w of world.waiting) out.push(entry({ sign: "bad", title: plural(w.count, "pod") + " of " + w.owner + (w.count === 1 ? " has" : " have") + " no place", lines: [w.why, several(w.pods, w.count) + ", for " + age(w.since)], command: whyPod(w.pods) }));
  for (const f of h.failed || []) out.push(entry({ sign: "warn", title: plural(f.count, "launch") + " failed within the hour" + (f.reason ? ": " + f.reason : ""), lines: [f.text, "last " + age(f.at) + " ago"] }));
  for (const x of world.held) if (x.saves && x.perDay > 0) out.push(entry({ sign: "warn", title: x.by + " block disruption", lines: [x.why], amount: money(x.perDay) + " a day not saved" }));
  const keepers = world.held.filter((x) => !x.saves), kept = keepers.reduce((sum, x) => sum + x.count, 0);
  if (kept) out.push(entry({ sign: "warn", title: plural(kept, "node") + " cannot be removed", amount: money(keepers.reduce((sum, x) => sum + x.perDay, 0)) + " a day", lines: ["held back by " + several(keepers.slice(0, 3).map((x) => x.by), keepers.length)] }));
  for (const p of h.pools) if (p.paused) out.push(entry({ sign: "warn", title: "NodePool " + p.name + " is paused", lines: [p.paused], command: "karpenter resume nodepool " + p.name }));
  if (h.unknown) out.push(entry({ sign: "warn", title: "The price of " + plural(h.unknown, "node") + " is not known yet" }));
  byId("wrong").className = (h.feeds || []).length + world.waiting.length + h.pools.filter((p) => p.notReady).length ? "bad" : "";
  if (!h.pools.length) out.push(entry({ sign: "warn", title: "There is no NodePool, so no node can come", lines: ["Apply a NodePool and its node class."], command: "kubectl apply -f nodepool.yaml" }));
  put(byId("wrong-title"), "Is anything wrong?" + (out.length ? " (" + out.length + ")" : ""));
  list("wrong", out.length ? out : [entry({ sign: "good", title: "No.", lines: ["Every pod has a place, no launch failed within the hour, and nothing blocks disruption."] })]);
}

const stages = { "waits for its second look": "is checked once more before it begins", "waits for what replaces its nodes": "waits until its new nodes are ready", "its nodes go": "its nodes drain and leave" };

function now() {
  const out = world.steps.map((s) => entry({ sign: "now", id: s.id, title: s.reason + ": " + (stages[s.stage] || s.stage), amount: s.savesDay > 0 ? "saves " + money(s.savesDay) + " a day" : s.savesDay < 0 ? "costs " + money(-s.savesDay) + " a day more" : "",
    lines: [s.text, plural(s.pods, "pod") + " would move" + (ahead(s.until) ? ", " + ahead(s.until) : "")], nodes: s.nodes.slice(0, 5), more: s.nodes.length - 5 }));
  for (const [mark, title] of [["starting", " start"], ["leaving", " drain and leave"]]) {
    const nodes = [...world.nodes.values()].filter((n) => (n.marks || "").split(", ").includes(mark));
    if (nodes.length) out.push(entry({ sign: "now", title: plural(nodes.length, "node") + title.replace(/^ (\w+)( and leave)?/, nodes.length === 1 ? (all, one, more) => " " + one + "s" + (more ? " and leaves" : "") : "$&"), lines: mark === "starting" ? ["the oldest since " + age(1000 * Math.min(...nodes.map((n) => n.created)))] : [], nodes: nodes.slice(0, 5).map((n) => n.name), more: nodes.length - 5 }));
  }
  for (const p of world.promised) out.push(entry({ sign: "now", title: plural(p.count, "pod") + " of " + p.owner + (p.count === 1 ? " waits" : " wait") + " for " + p.node, lines: [(p.boots ? "which starts; " : "") + several(p.pods, p.count) + ", for " + age(p.since)] }));
  put(byId("now-title"), "What happens now" + (out.length ? " (" + out.length + ")" : ""));
  const last = world.decisions.at(-1);
  lastHour();
  list("now", out.length ? out : [entry({ title: "Nothing is under way.", lines: [last ? "The last decision was " + age(last.at) + " ago: " + last.act + " " + last.about + "." : "Nothing was decided yet."] })]);
}

// acts are what decisions are called.
const acts = { planned: "plan made", opened: "node ordered", refused: "no place", placed: "pods placed", stepped: "step begun", heldBack: "held back", evicted: "pods evicted", launched: "launched", fellBack: "launch failed", repaired: "node repaired" };

function lastHour() {
  const since = Date.now() + skew - 3600e3, points = world.costs.filter((c) => new Date(c.at) > since);
  const sums = happened.map(([key, one]) => [points.reduce((n, c) => n + (c[key] || 0), 0), one]).filter(([n]) => n).map(([n, one]) => plural(n, one));
  const from = points[0], to = points.at(-1);
  const went = (what, a, b) => what + " " + (a === b ? "still " + a : a + " → " + b);
  put(byId("changed"), points.length < 2 ? "Known after 30 seconds." : (sums.join(", ") || "No launch, no step, no interruption") + ". " + went("Nodes", from.nodes || 0, to.nodes || 0) + ", " + went("cost", money(from.perHour), money(to.perHour)) + " an hour.");
  const notable = world.decisions.filter((d) => new Date(d.at) > since && /^(stepped|launched|fellBack|repaired|heldBack)$/.test(d.act));
  byId("latest").replaceChildren(...notable.slice(-3).reverse().map((d) => make("div", "one", new Date(d.at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) + " " + acts[d.act] + (d.text || d.reason ? ": " + (d.text || d.reason) : ""))));
}

// spent adds up what the fleet cost between a time and the last point, and the least that it could have cost.
function spent(since) {
  let cost = 0, least = 0, hours = 0;
  const points = world.costs;
  for (let i = 1; i < points.length; i++) {
    const from = Math.max(new Date(points[i - 1].at), since), to = new Date(points[i].at);
    const h = Math.min((to - from) / 3600e3, 1); // a longer gap is one in which no controller ran
    if (h <= 0) continue;
    hours += h;
    cost += h * points[i - 1].perHour;
    least += h * (points[i - 1].least || points[i - 1].target || points[i - 1].perHour);
  }
  return { cost, least, hours };
}

// causes are what would save money.
const causes = {
  fee: "the fee of EKS Auto Mode", empty: "remove empty nodes", fragmentation: "pack pods closer", machineTypes: "other instance types",
  purchase: "spot, or another architecture", doNotDisrupt: "without do-not-disrupt", pdb: "without PodDisruptionBudget",
  preferences: "without preferred affinity and spread", caution: "fewer safety margins of launches", open: "not explained further",
};

function totals() {
  const h = world.head;
  byId("notice").hidden = !h.notice;
  put(byId("notice"), h.notice || "");
  byId("commitments").hidden = !h.commitments;
  put(byId("commitments"), h.commitments || "");
  const known = h.savings || h.target, least = Math.max(0, h.perHour - (h.savings ? h.savings.gap : h.target ? h.movable - h.target : 0));
  const facts = [["now", money(h.perHour) + "/h", money(24 * h.perHour) + " a day"],
    [h.savings || !known ? "proven least" : "least found", known ? money(least) + "/h" : "–", known ? number((100 * (h.perHour - least)) / (h.perHour || 1)) + "% less" : "not known yet"]];
  for (const [name, hours] of [["last day", 24], ["last week", 168]]) {
    const s = spent(Date.now() + skew - hours * 3600e3);
    facts.push([name, s.hours ? money(s.cost) : "–", s.hours ? "least " + money(s.least) + (s.hours < hours - 1 ? ", " + age(Date.now() + skew - s.hours * 3600e3) + " seen" : "") : "after 15 seconds"]);
  }
  put(byId("use"), [h.others && h.others + " more nodes are not Karpenter's", plural(h.pods, "pod") + (h.waiting ? ", " + whole.format(h.waiting) + " without a node" : ""), h.nodes && "CPU requested " + percent(h.cpu) + " of " + number(h.cpu[1]) + ", memory " + percent(h.memory) + " of " + number(h.memory[1]) + " GiB"].filter(Boolean).join(" · "));
  byId("totals").replaceChildren(...facts.map(([name, value, more]) => {
    const pair = make("div");
    const dd = make("dd", "", value);
    dd.append(make("div", "small", more));
    pair.append(make("dt", "", name), dd);
    return pair;
  }));
  const line = (amount, text) => { const e = make("div", "saving"); e.title = text; e.append(make("span", "", text), make("span", "money", amount)); return e; };
  const parts = (h.savings?.parts || []).map((p) => line(money(p.perDay) + " a day", (causes[p.cause] || p.cause) + (p.by.length ? ": " + several(p.by.slice(0, 2), p.by.length + (p.more || 0)) : "")));
  if (!h.savings && known && h.perHour > least) parts.push(line(money(24 * (h.perHour - least)) + " a day", "move every pod that may move"));
  const shown = parts.slice(0, 3);
  const top = world.held[0];
  if (top) shown.push(line(top.saves ? money(top.perDay) + " a day not saved" : plural(top.count, "node") + ", " + money(top.perDay) + " a day", "held back most by " + top.by));
  if (!shown.length) shown.push(line("", !h.nodes ? "There is no node yet." : known ? "Nothing: it costs as little as it can." : "Known some minutes after a start."));
  put(byId("basis"), "Money is at list prices, without Savings Plans, reserved instances and discounts." + (h.savings ? " The least was proven " + age(h.savings.at) + " ago" + (h.others ? ", with nodes that are not Karpenter's." : ".") : ""));
  byId("savings").replaceChildren(...shown);
}

function lists() {
  totals();
  wrong();
  now();
  put(byId("held-title"), "Who holds nodes back" + (world.held.length ? " (" + world.held.length + ")" : ""));
  list("held", world.held.map((x) => entry({ title: x.by, amount: x.saves ? money(x.perDay) + " a day not saved" : plural(x.count, "node") + " for " + money(x.perDay) + " a day", lines: [x.why], nodes: x.nodes, more: x.count - x.nodes.length })), "Nothing is held back.");
  list("pools", world.head.pools.map((p) => {
    const li = entry({ title: "", amount: money(p.perHour) + "/h", lines: [plural(p.nodes, "node"), p.notReady, p.paused] });
    li.querySelector("b").append(link({ filter: p.name, node: "" }, p.name));
    return li;
  }), "There is no NodePool.");
  list("decisions", world.decisions.slice().reverse().map((d) => {
    const li = make("li");
    li.append(make("span", "money", d.perHour === "-" ? "" : d.perHour + " $/h"));
    const at = make("time", "small", new Date(d.at).toLocaleString() + " ");
    at.dateTime = d.at;
    li.append(at, make("span", "act", acts[d.act] || d.act), make("b", "", d.about === "-" ? "" : " " + d.about));
    if (d.reason || d.text) li.append(make("div", "", [d.reason, d.text].filter(Boolean).join(": ")));
    return li;
  }), "Nothing was decided yet.");
  put(byId("decisions-title"), "Decisions" + (world.decisions.length ? " (" + world.decisions.length + ")" : ""));
  chart();
}

const happened = [["launched", "launch"], ["steps", "step"], ["interrupted", "interruption"], ["failed", "failed launch"]];
const measures = { perHour: (x) => money(x) + "/h", nodes: (x) => plural(x, "node"), pods: (x) => plural(x, "pod"), wait: (x) => age(Date.now() + skew - 1000 * x) };

function chart() {
  const hours = { hour: 1, day: 24, week: 168 }[byId("range").value], measure = byId("measure").value, isCost = measure === "perHour";
  const least = (c) => c.least || c.target || 0, value = (c) => c[measure] || 0, say = measures[measure];
  const points = world.costs.filter((c) => new Date(c.at) > Date.now() + skew - hours * 3600e3);
  const svg = byId("chart"), legend = byId("legend");
  if (points.length < 2) {
    svg.replaceChildren();
    legend.textContent = "The line begins after 30 seconds.";
    return;
  }
  legend.replaceChildren();
  const from = new Date(points[0].at), to = new Date(points.at(-1).at);
  const most = Math.max(1e-9, ...points.map((c) => Math.max(value(c), isCost ? least(c) : 0)));
  const x = (c) => ((600 * (new Date(c.at) - from)) / (to - from)).toFixed(1);
  const shape = (tag, name, attributes) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    e.setAttribute("class", name);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    return e;
  };
  const shapes = [];
  for (const [name, of, text] of [["cost", value, byId("measure").selectedOptions[0].text], ["target", least, "least"]]) {
    const at = points.filter((c) => of === value || isCost && least(c) > 0);
    if (at.length < 2) continue;
    shapes.push(shape("polyline", "line " + name, { points: at.map((c) => x(c) + "," + (62 - (58 * of(c)) / most).toFixed(1)).join(" ") }));
    legend.append(make("span", "key " + name), text);
  }
  const told = [];
  points.forEach((c, i) => {
    if (!c.paused) return;
    const left = i ? Number(x(points[i - 1])) : 0;
    shapes.unshift(shape("rect", "span-paused", { x: left, y: 0, width: Math.max(2, x(c) - left), height: 62 }));
  });
  if (points.some((c) => c.paused)) told.push(["", "paused where shaded"]);
  happened.forEach(([key, text]) => {
    const sum = points.reduce((n, c) => n + (c[key] || 0), 0);
    if (sum) told.push(["key mark-" + key, plural(sum, text)]);
    for (const c of points) if (c[key]) shapes.push(shape("rect", "mark-" + key, { x: x(c) - 1, y: 62, width: 4, height: 8 }));
  });
  svg.replaceChildren(...shapes);
  svg.setAttribute("aria-label", byId("measure").selectedOptions[0].text + " since " + from.toLocaleString() + ": " + say(value(points[0])) + " then, " + say(value(points.at(-1))) + " now, at most " + say(Math.max(...points.map(value))));
  for (const [name, text] of told) legend.append(name ? make("span", name) : " · ", text);
  legend.append(" · 0 to " + say(most) + " since " + (hours > 24 ? from.toLocaleString() : from.toLocaleTimeString()));
}

// ---- where the reader is: in the address, so that it can be sent to others ----

const selects = { group: "", colour: "capacityType", sort: "perHour", range: "day", measure: "perHour" };
const where = { node: "", pod: "", step: "" };

// kept is what of the choices differs from the start.
function kept() {
  const out = {};
  for (const [name, usual] of Object.entries(selects)) if (byId(name).value !== usual) out[name] = byId(name).value;
  if (byId("filter").value) out.filter = byId("filter").value;
  return out;
}

function remember() {
  const to = kept();
  for (const [name, value] of Object.entries(where)) if (value) to[name] = value;
  const hash = new URLSearchParams(to).toString();
  if (location.hash.slice(1) !== hash) history.replaceState(null, "", hash ? "#" + hash : location.pathname);
}

function goThere() {
  const text = location.hash.slice(1);
  if (text && !text.includes("=")) return; // a link to a part of the page
  const at = new URLSearchParams(text);
  for (const [name, usual] of Object.entries(selects)) {
    byId(name).value = at.get(name) ?? usual;
    if (!byId(name).value && usual) byId(name).value = usual;
  }
  byId("filter").value = at.get("filter") || "";
  for (const name of Object.keys(where)) where[name] = at.get(name) || "";
  if (at.get("pool")) byId("filter").value = at.get("pool");
  fleet.active = where.node;
  opened.reveal = Boolean(where.node || where.pod);
  stale.nodes = stale.lists = true;
  if (world.head) draw();
  opened.open(where.node || where.pod);
}

// ---- the fleet: only the rows that can be seen are elements ----

let height = 36; // of a row, as page.css says
const fleet = { order: [], active: "", slots: [] };
const rows = byId("rows");

const orders = {
  perHour: (a, b) => b.perHour - a.perHour,
  cpu: (a, b) => part(b.cpu) - part(a.cpu),
  memory: (a, b) => part(b.memory) - part(a.memory),
  pods: (a, b) => b.pods - a.pods,
  age: (a, b) => b.created - a.created,
  name: () => 0,
  marks: (a, b) => (a.marks ? 0 : 1) - (b.marks ? 0 : 1) || (a.marks || "").localeCompare(b.marks || ""),
};

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

function arrange() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (n) => {
    const text = [n.name, n.claim, n.pool, n.type, n.zone, n.capacityType, n.arch, n.marks, n.by].join(" ").toLowerCase();
    return words.every((w) => text.includes(w));
  };
  const by = orders[byId("sort").value];
  fleet.order = [...world.nodes.values()].filter((n) => !words.length || fits(n)).sort((a, b) => by(a, b) || compare(a.name, b.name));
  height = innerWidth <= 700 ? 96 : innerWidth <= 1100 ? 68 : 36;
  byId("space").style.height = rows.style.height = fleet.order.length * height + "px";
  put(byId("shown"), fleet.order.length === world.nodes.size ? plural(world.nodes.size, "node") : whole.format(fleet.order.length) + " of " + plural(world.nodes.size, "node"));
  const empty = !fleet.order.length;
  for (const id of ["rows", "keys", "mapkey"]) byId(id).hidden = empty;
  document.querySelector(".columns").hidden = empty;
  byId("empty").hidden = !empty;
  put(byId("empty"), world.nodes.size ? "No node matches the filter: Esc in its field clears it." : "No nodes yet. Karpenter launches one when a pod has no place: kubectl scale deployment NAME --replicas=3");
  map();
  scroll();
}

// ---- the fleet as a map: a block for each node, made once and changed only where the node did ----

const blocks = new Map();

function map() {
  const nodes = fleet.order, into = byId("map");
  const group = byId("group").value, colour = byId("colour").value;
  const tally = (key) => {
    const out = new Map();
    for (const n of nodes) {
      const t = out.get(n[key] || "unknown") || { nodes: 0, perHour: 0 };
      t.nodes++;
      t.perHour += n.perHour;
      out.set(n[key] || "unknown", t);
    }
    return [...out].sort((a, b) => b[1].perHour - a[1].perHour || compare(a[0], b[0]));
  };
  const names = tally(colour).map(([name]) => name);
  const ink = (name) => "var(--c" + Math.min(7, names.indexOf(name)) + ")";
  const total = nodes.reduce((sum, n) => sum + n.perHour, 0);
  const share = (t) => plural(t.nodes, "node") + ", " + money(t.perHour) + "/h" + (total ? " (" + Math.round((100 * t.perHour) / total) + "%)" : "");
  const key = tally(colour).slice(0, 8).map(([name, t], i, all) => {
    const k = make("span", "key");
    k.style.setProperty("--ink", ink(name));
    return [k, (i === 7 && names.length > 8 ? "others" : name + ": " + share(t))];
  });
  byId("colours").replaceChildren(...key.flat());
  const unit = Math.max(9, Math.min(56, Math.sqrt((0.55 * (into.clientWidth || 1000) * 250) / Math.max(1, nodes.length))));
  const mean = total / Math.max(1, nodes.length) || 1;
  const groups = new Map(group ? tally(group).map(([name, t]) => [name, { title: name + ": " + share(t), of: [] }]) : [["", { of: [] }]]);
  for (const n of nodes) groups.get(group ? n[group] || "unknown" : "").of.push(block(n, unit * Math.min(2, Math.max(0.5, Math.sqrt((n.perHour || mean) / mean))), ink(n[colour] || "unknown")));
  for (const [name, b] of blocks) if (!world.nodes.has(name)) { b.remove(); blocks.delete(name); }
  const signature = JSON.stringify([group, [...groups].map(([, g]) => [g.title, g.of.map((b) => b.name)])]);
  if (into.signature !== signature) {
    into.signature = signature;
    into.replaceChildren(...[...groups.values()].flatMap((g) => {
      const all = make("div", "blocks");
      all.append(...g.of);
      return g.title ? [make("h3", "", g.title), all] : [all];
    }));
  }
  press();
}

function block(n, side, ink) {
  let b = blocks.get(n.name);
  if (!b) {
    b = make("button", "block");
    b.type = "button";
    b.name = n.name;
    b.tabIndex = -1;
    b.setAttribute("aria-pressed", "false");
    blocks.set(n.name, b);
  }
  const look = [Math.round(side), ink, Math.round(100 * Math.min(1, Math.max(part(n.cpu), part(n.memory))))].join();
  if (b.look !== look) {
    b.look = look;
    b.style.width = b.style.height = Math.round(side) + "px";
    b.style.setProperty("--ink", ink);
    b.style.setProperty("--fill", look.split(",").pop() + "%");
  }
  if (b.of !== n) { // a node that changed is another object
    b.of = n;
    b.classList.toggle("odd", Boolean(n.marks));
    b.title = describe(n);
    b.setAttribute("aria-label", b.title);
  }
  return b;
}

// press marks the block of the chosen node; Tab leads to it, or to the first.
function press() {
  const is = blocks.get(fleet.active) || blocks.get(fleet.order[0]?.name);
  if (press.was && press.was !== is) { press.was.tabIndex = -1; press.was.setAttribute("aria-pressed", "false"); }
  press.was = is;
  if (is) { is.tabIndex = 0; is.setAttribute("aria-pressed", is.name === fleet.active); }
}

byId("map").addEventListener("click", (event) => { opened.reveal = true; if (event.target.name) choose(fleet.order.findIndex((n) => n.name === event.target.name)); });
byId("map").addEventListener("keydown", (event) => {
  const all = [...byId("map").querySelectorAll(".block")], step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const to = all[Math.max(0, Math.min(all.length - 1, all.indexOf(event.target) + step))];
  to.tabIndex = 0;
  to.focus();
  if (to !== event.target) event.target.tabIndex = -1;
  press.was = to;
});

// ---- the fleet as a list ----

function newRow() {
  const e = make("div", "row");
  e.id = "row-" + fleet.slots.length;
  e.setAttribute("role", "option");
  const meter = (name) => {
    const m = make("span", "meter " + name), u = make("u");
    u.append(make("i"));
    m.append(make("b"), u);
    return m;
  };
  e.append(make("span"), make("span"), make("span"), make("span"), make("span"), make("span", "n"), meter("cpu"), meter("memory"), make("span", "n"), make("span", "n"), make("span", "mark"));
  e.addEventListener("click", () => choose(e.index));
  fleet.slots.push(e);
  rows.append(e);
  return e;
}

function fill(e, n, index) {
  const [name, pool, type, zone, bought, price, cpu, memory, pods, since, marks] = e.children;
  e.index = index;
  e.hidden = false;
  e.style.transform = "translateY(" + index * height + "px)";
  put(name, n.name);
  put(pool, n.pool);
  put(type, n.type);
  put(zone, n.zone);
  put(bought, n.capacityType);
  put(price, n.perHour ? "$" + n.perHour.toFixed(4) : "?");
  for (const [meter, share, unit] of [[cpu, n.cpu, "CPUs"], [memory, n.memory, "GiB"]]) {
    put(meter.firstChild, percent(share));
    meter.lastChild.firstChild.style.width = Math.min(100, 100 * part(share)) + "%";
    meter.title = room(share, unit);
  }
  put(pods, String(n.pods));
  put(since, age(1000 * n.created));
  put(marks, [n.marks, n.by].filter(Boolean).join(" by "));
  marks.className = n.by ? "mark held" : n.marks.includes("leaving") ? "mark goes" : "mark";
  e.setAttribute("aria-setsize", fleet.order.length);
  e.setAttribute("aria-posinset", index + 1);
  const active = n.name === fleet.active;
  e.setAttribute("aria-selected", active);
  if (active) rows.setAttribute("aria-activedescendant", e.id);
}

const room = (share, unit) => number(share[0]) + " of " + number(share[1]) + " " + unit + " requested, " + number(Math.max(0, share[1] - share[0])) + " free";
const describe = (n) => [n.name, "pool " + n.pool, n.type, n.zone, n.capacityType, (n.perHour ? money(n.perHour, 4) : "unknown price") + " an hour", "CPU " + percent(n.cpu), "memory " + percent(n.memory), plural(n.pods, "pod"), n.marks, n.held].filter(Boolean).join(", ");

function scroll() {
  const first = Math.max(0, Math.floor(rows.scrollTop / height) - 4);
  const count = Math.min(fleet.order.length - first, Math.ceil(rows.clientHeight / height) + 8);
  rows.removeAttribute("aria-activedescendant");
  for (let i = 0; i < count; i++) fill(fleet.slots[i] || newRow(), fleet.order[first + i], first + i);
  for (let i = Math.max(0, count); i < fleet.slots.length; i++) fleet.slots[i].hidden = true;
}

function choose(index) {
  if (!fleet.order.length || index < 0 && !fleet.active) index = 0;
  if (!fleet.order.length) return;
  index = Math.max(0, Math.min(fleet.order.length - 1, index));
  fleet.active = fleet.order[index].name;
  const top = index * height;
  if (top < rows.scrollTop) rows.scrollTop = top;
  else if (top + height > rows.scrollTop + rows.clientHeight) rows.scrollTop = top + height - rows.clientHeight;
  scroll();
  press();
  where.node = fleet.active;
  where.pod = "";
  remember();
  opened.open(where.node);
}

// ---- one node, opened: what the picture has of it at once, and the rest when the server has answered ----

const opened = {
  name: "", more: null, leaves: null, asked: 0, timer: 0, reveal: false,
  open(name) {
    if (name === this.name && this.more) return;
    this.name = name;
    this.more = this.leaves = null;
    this.show();
    clearTimeout(this.timer);
    if (name) this.timer = setTimeout(() => this.fetch(), 120);
  },
  // look asks again after five seconds, while something is open.
  look() {
    if (this.name && this.more && Date.now() - this.asked > 5000) this.fetch();
  },
  async fetch() {
    const name = this.name;
    this.asked = Date.now();
    try {
      const answer = await ask("picture?" + new URLSearchParams(where.pod && !where.node ? { pod: name } : { node: name }), "application/json");
      const more = answer.ok ? await answer.json() : { gone: (await answer.text()).trim() };
      if (this.name !== name) return;
      this.more = more;
      this.show();
      if (more.gone || this.leaves) return;
      this.leaves = "planning …";
      const plan = await ask("picture?" + new URLSearchParams({ leave: more.name }), "application/json");
      const leaves = plan.ok ? await plan.json() : (await plan.text()).trim();
      if (this.name === name) { this.leaves = leaves; this.show(); }
    } catch { /* the stream says that the server has gone */ }
  },
  // ifItLeft says what would happen if the node left now.
  ifItLeft() {
    const l = this.leaves, out = [make("h3", "", "What would go with it")], line = (text) => out.push(make("div", "", text));
    if (!l || typeof l === "string") return line(l || "planning …"), out;
    if (l.step) line("A decided step removes it: " + l.step + (l.with.length ? "; with " + l.with.join(", ") : "") + ".");
    for (const p of l.stuck) line(p.pod + (p.pods > 1 ? " and " + (p.pods - 1) + " more" : "") + " would have no place: " + p.why);
    for (const p of l.places.slice(0, 6)) line(plural(p.pods, "pod") + " would move to " + (p.node || "new: " + p.what + ", " + money(p.perHour, 4) + "/h"));
    if (l.places.length > 6) line(plural(l.places.length - 6, "further node") + " would take pods.");
    if (!l.places.length && !l.stuck.length) line("No pod would have to move.");
    if (l.ends) line(plural(l.ends, "pod") + " would end with it, such as those of DaemonSets.");
    if (!l.stuck.length) line("The fleet would cost " + money(Math.abs(l.perHour), 4) + " an hour " + (l.perHour > 0 ? "more." : "less."));
    return out;
  },
  close() {
    fleet.active = where.node = where.pod = "";
    remember();
    this.open("");
    scroll();
    press();
  },
  show() {
    const into = byId("detail"), more = this.more;
    if (!this.name) return into.replaceChildren();
    const n = world.nodes.get(more?.name || this.name);
    const close = make("button", "end", "Close");
    close.addEventListener("click", () => this.close());
    const head = make("div", "bar-head");
    head.append(make("b", "", n ? n.name + " (NodeClaim " + n.claim + ")" : this.name), close);
    const out = [head];
    if (n) out.push(make("div", "", [n.type, n.arch, n.zone, n.capacityType, "NodePool " + n.pool, n.perHour ? money(n.perHour, 4) + "/h" : "price not known", "age " + age(1000 * n.created)].filter(Boolean).join(" · ")),
      make("div", "", room(n.cpu, "CPUs") + "; " + room(n.memory, "GiB") + "; " + plural(n.pods, "pod") + (n.marks ? "; " + n.marks : "")));
    if (!n && !more?.gone && !world.head) out.push(make("div", "", "loading …"));
    if (more?.gone) out.push(make("div", "", where.pod ? "This pod is on no node of Karpenter's: karpenter why pod " + where.pod.split("/")[1] + " -n " + where.pod.split("/")[0] + " says more." : "It is gone, or was never here."));
    const reasons = more?.stays?.length ? more.stays : n?.held ? [n.held] : [];
    if (reasons.length) out.push(make("h3", "", "Why it stays"), ...reasons.map((r) => make("div", "", r)));
    if (more?.pods) {
      out.push(...this.ifItLeft());
      if (more.expires) out.push(make("div", "", "expires " + new Date(more.expires).toLocaleString()));
      if (more.conditions.length) out.push(make("h3", "", "Conditions of the claim"), ...more.conditions.map((c) => make("div", "", c.type + "=" + c.status + " for " + age(c.since) + (c.message ? ": " + c.message : ""))));
      out.push(make("h3", "", "Pods"), this.table(["pod", "workload", "CPU", "GiB", "age"], more.pods.map((p) => [link({ pod: p.name }, p.name), p.owner, number(p.cpu), number(p.memory), age(1000 * p.since)])));
      if (more.more) out.push(make("div", "small", more.more + " more are not listed"));
      if (more.decisions.length) out.push(make("h3", "", "What was decided about it"), this.table(["when", "what", "why"], more.decisions.map((d) => [new Date(d.at).toLocaleString(), d.act, [d.reason, d.text].filter(Boolean).join(": ")])));
      out.push(make("code", "small", "karpenter why node " + more.name));
    }
    into.replaceChildren(...out);
    if (this.reveal && more) {
      this.reveal = false;
      into.scrollIntoView({ block: "nearest" });
    }
  },
  table(names, lines) {
    const box = make("div", "scroll"), t = make("table"), head = make("tr");
    box.tabIndex = 0;
    head.append(...names.map((x) => make("th", "", x)));
    t.append(head, ...lines.map((cells) => { const tr = make("tr"); tr.append(...cells.map((x) => { const td = make("td"); td.append(x); return td; })); return tr; }));
    box.append(t);
    return box;
  },
};

rows.addEventListener("scroll", () => { still = performance.now() + 200; requestAnimationFrame(scroll); }, { passive: true });
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
  typing = setTimeout(() => { rows.scrollTop = 0; stale.nodes = true; remember(); draw(); }, 60);
});
for (const name of Object.keys(selects)) byId(name).addEventListener("change", () => { rows.scrollTop = 0; stale.nodes = stale.lists = true; remember(); draw(); });
addEventListener("hashchange", goThere);
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
    remember();
    draw();
    rows.focus();
  } else if (event.key === "Escape" && opened.name) opened.close();
});
setInterval(() => { if (world.head) { stale.lists = true; draw(); } }, 10000);
goThere();
follow();
