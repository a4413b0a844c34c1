// Puts the tracks on the page and wires what can be clicked: verdicts, receipts, spans, GPUs, keys.
"use strict";

const SECONDS = (s) => (s < 0.0995 ? `${(1000 * s).toFixed(s < 0.001 ? 1 : 0)} ms` : s < 1 ? `${s.toFixed(2)} s` : s < 100 ? `${s.toFixed(1)} s` : `${Math.round(s)} s`);
const AT = (t) => `${t.toFixed(t < 1000 ? 2 : 1)} s`;
const KNOWN = (n) => n !== undefined && n !== NOTHING;
const MANY = (n) => n.toLocaleString("en-US");

class Page {
  constructor(data) {
    this.root = document.getElementById("tracks");
    this.said = document.getElementById("picked");
    this.range = document.getElementById("range");
    this.receipts = [];
    this.tracks = new Tracks(this.root, data.head);
    this.open(data);
    this.buttons();
    this.verdicts(document.querySelectorAll(".card"));
    this.keys();
    this.root.addEventListener("view", (e) => this.tell(e.detail));
    this.tell(this.tracks.view);
    this.tracks.draw();
    document.documentElement.dataset.ready = "yes";
  }

  // Puts the tracks of some data on the page.
  open(data) {
    this.data = data;
    this.head = data.head;
    this.starts = this.phases = this.states = null;
    this.lines();
    this.stateLanes();
    this.phaseLanes();
    this.jobLanes();
    this.eventLanes();
    this.chips();
  }

  // The same for more data of the same recording; what the reader has in view stays there. `later`: by how many seconds
  // t = 0 has moved forward.
  take(data, later) {
    const lane = this.phases ? this.phases.lane : 0;
    this.root.style.minHeight = `${this.root.offsetHeight}px`; // or the page would jump while it has no tracks
    this.tracks.take(data.head, later, () => this.open(data));
    this.root.style.minHeight = "";
    if (this.phases && lane < this.phases.names.length) this.phases.lane = lane;
    document.getElementById("near").hidden = !this.head.typical;
    this.tell(this.tracks.view);
  }

  // What was clicked: a heading and facts, always as text.
  pick(heading, facts) {
    const list = document.createElement("dl"), title = document.createElement("strong");
    title.textContent = heading;
    for (const [name, value] of facts) {
      if (value === null || value === undefined || value === "") continue;
      const term = document.createElement("dt"), said = document.createElement("dd");
      term.textContent = name;
      said.textContent = value;
      list.append(term, said);
    }
    this.said.replaceChildren(title, list);
  }

  tell([a, b]) {
    this.range.textContent = `${AT(a)} to ${AT(b)} (${SECONDS(b - a)})`;
  }

  // The cells of every signal, state and phase, and where a header of the same tracks has theirs.
  tracked() {
    const signals = Object.entries(this.signals).flatMap(([key, lines]) => lines.map((cells, i) => ({
      cells, step: this.head.signals.find((s) => s.key === key).step, of: (head) => head.signals.find((s) => s.key === key)?.lines[i],
    })));
    const lanes = (key, all) => (all || []).map((cells, i) => ({ cells, step: 1, of: (head) => head[key][i] }));
    return [...signals, ...lanes("states", this.states), ...lanes("ranks", this.phases?.cells)].filter(({ cells }) => cells);
  }

  // The phase that j and k go on from is the same after its cells were changed.
  keepPhase(change) {
    const phases = this.phases, was = phases && phases.at >= 0 ? phases.cells[phases.lane] : null;
    const middle = was ? (was.t0[phases.at] + was.t1[phases.at]) / 2 : 0;
    change();
    if (was) phases.at = cellAt(phases.cells[phases.lane], middle);
  }

  lines() {
    const labels = this.head.gpus.map((g) => g.label);
    this.signals = {};
    for (const chart of this.head.signals) {
      chart.last = chart === this.head.signals.at(-1);
      this.signals[chart.key] = chart.lines.map((line) => cellsOf(this.data, line, chart.step));
      this.tracks.lines(chart, this.signals[chart.key], labels);
    }
  }

  stateLanes() {
    const cells = this.head.states.map((s) => cellsOf(this.data, s, 1)), inks = this.head.inks.state;
    if (!cells.length) return;
    const names = this.head.gpus.map((g) => g.label);
    this.tracks.lanes("state of each GPU", names, names.length > 16 ? 10 : 18, false,
      (ctx, i, ...box) => this.tracks.codes(ctx, cells[i], inks, ...box),
      (t) => this.read(names, cells, inks, t),
      (t, i) => this.pickCode(cells[i], t, inks, `${names[i]}, state`, []));
    this.states = cells;
  }

  phaseLanes() {
    const ranks = this.head.ranks, inks = this.head.inks.phase;
    if (!ranks.length) return;
    const cells = ranks.map((r) => cellsOf(this.data, r, 1)), names = ranks.map((r) => `rank ${r.rank}`);
    this.phases = { cells, names, inks, lane: 0, at: -1 };
    this.tracks.lanes("phase of each rank", names, names.length > 16 ? 10 : 18, true,
      (ctx, i, ...box) => this.tracks.codes(ctx, cells[i], inks, ...box),
      (t) => this.read(names, cells, inks, t),
      (t, i) => this.pickPhase(i, cellAt(cells[i], t)));
  }

  read(names, cells, inks, t) {
    return names.slice(0, 8).map((name, i) => {
      const at = cellAt(cells[i], t);
      return `${name} ${at < 0 ? "–" : inks[cells[i].low[at]].label}`;
    }).join("   ");
  }

  pickCode(cells, t, inks, what, more) {
    const i = cellAt(cells, t);
    if (i < 0) return this.pick(`${what} at ${AT(t)}: nothing recorded`, []);
    const ink = inks[cells.low[i]];
    this.mark(cells.t0[i], cells.t1[i]);
    this.pick(`${what}: ${ink.label}`, [["from", AT(cells.t0[i])], ["for", SECONDS(cells.t1[i] - cells.t0[i])], ["meaning", ink.meaning], ...more]);
  }

  pickPhase(lane, i) {
    const { cells, names, inks } = this.phases;
    if (i < 0) return this.pick(`${names[lane]}: nothing recorded there`, []);
    Object.assign(this.phases, { lane, at: i });
    const site = this.siteOf(cells[lane], i), step = this.stepAt(cells[lane].t0[i]);
    const crossed = site ? this.head.handoffs.filter((h) => h.file && site.place === `${h.file}${h.line === null ? "" : `:${h.line}`}`) : [];
    this.pickCode(cells[lane], (cells[lane].t0[i] + cells[lane].t1[i]) / 2, inks, names[lane], [
      ["step", step], ["span", site && site.name], ["code", site ? site.place || "file and line were not recorded" : null],
      ...Object.entries(site ? site.facts : {}), ["origin", site && site.origin],
      ...crossed.map((h) => ["crossed", this.crossing(h)]),
    ]);
  }

  crossing(h) {
    const items = h.items === null ? "" : `${MANY(h.items)} items, `, bytes = h.bytes === null ? "size not recorded" : `${MANY(h.bytes)} bytes`;
    return `${h.from || "?"} → ${h.to || "?"}: ${h.types || "types not recorded"}, ${items}${bytes} in ${MANY(h.times)} hand-overs (${[h.transport, h.device].filter(Boolean).join(", ") || "transport not recorded"})`;
  }

  siteOf(cells, i) {
    return cells.site && KNOWN(cells.site[i]) ? this.head.sites[cells.site[i]] : null;
  }

  stepAt(t) {
    const starts = this.starts || (this.starts = this.data.times(this.head.steps));
    let n = -1;
    while (n + 1 < starts.length && starts[n + 1] <= t) n++;
    return n < 0 ? null : `${n + 1} of ${starts.length}`;
  }

  jobLanes() {
    const jobs = this.head.jobs;
    if (!jobs) return;
    const d = this.data, t0 = d.times(jobs.t0), length = d.times(jobs.len), lane = d.ints(jobs.lane);
    const queued = d.ints(jobs.queued_ms), step = d.ints(jobs.step), bytes = d.ints(jobs.bytes), result = d.ints(jobs.result);
    const names = jobs.workers.map((w) => `worker ${w.pid}`), shown = ["#e69f00", "#b87a00"];
    const text = (column, i) => (column && column.at[i] >= 0 ? column.texts[column.at[i]] : null);
    const title = `reward jobs of each worker${jobs.all > t0.length ? ` (${MANY(t0.length)} of ${MANY(jobs.all)}: the longest, and all near receipts)` : ""}`;
    const find = (t, i) => {
      let best = -1;
      for (let j = 0; j < t0.length; j++) if (lane[j] === i && t0[j] <= t + 1e-4 && (best < 0 || t0[j] > t0[best])) best = j;
      return best >= 0 && t0[best] + length[best] >= t - (this.tracks.view[1] - this.tracks.view[0]) / 400 ? best : -1;
    };
    this.tracks.lanes(title, names, names.length > 16 ? 8 : 14, false,
      (ctx, i, ...box) => this.tracks.boxes(ctx, t0, length, lane, i, (j) => shown[j % 2], ...box),
      (t) => names.slice(0, 6).map((name, i) => { const j = find(t, i); return j < 0 ? "" : `${name} ${text(jobs.job, j) ? `job ${text(jobs.job, j)}` : "busy"}`; }).filter(Boolean).join("   "),
      (t, i) => {
        const j = find(t, i);
        if (j < 0) return this.pick(`${names[i]} (rank ${jobs.workers[i].rank}) is idle at ${AT(t)}`, []);
        this.mark(t0[j], t0[j] + length[j]);
        this.pick(`reward job ${text(jobs.job, j) || ""} of ${names[i]}, rank ${jobs.workers[i].rank}`, [
          ["from", AT(t0[j])], ["for", SECONDS(length[j])], ["waited in the queue", KNOWN(queued[j]) ? SECONDS(queued[j] / 1000) : "not recorded"],
          ["step", KNOWN(step[j]) ? step[j] : null], ["payload", KNOWN(bytes[j]) ? `${MANY(bytes[j])} bytes` : "size not recorded"], ["types", text(jobs.types, j) || "not recorded"],
          ["result", KNOWN(result[j]) ? `${MANY(result[j])} bytes` : null], ["detail", text(jobs.detail, j)],
        ]);
      });
  }

  // Dips, spikes and named events, a row each.
  eventLanes() {
    const d = this.data, events = this.head.events, dips = this.head.marks.dips, spikes = this.head.marks.spikes;
    const rows = [], dt0 = d.times(dips.t0), dlen = d.times(dips.len), work = d.ints(dips.work), depth = d.values(dips.depth, 0.1), gpu = d.ints(dips.gpu), phase = d.ints(dips.phase);
    const dip = (i) => { this.mark(dt0[i], dt0[i] + dlen[i]); this.pick(`dip of ${work[i] ? "work" : "utilization"}${KNOWN(gpu[i]) ? `, ${this.head.gpus[gpu[i]].label}` : ""}`, [["from", AT(dt0[i])], ["for", SECONDS(dlen[i])], ["depth", `${depth[i].toFixed(0)} points`], ["mostly in", dips.phases[phase[i]] || "no known phase"]]); };
    const row = (name, t0, length, of, colour, pick) => rows.push({ name, t0, length, of, colour, pick });
    const all = (n) => new Uint8Array(n);
    if (dt0.length) {
      row("dips of util", dt0, dlen, work, () => "#0072b2", dip);
      row("dips of work", dt0, dlen, work.map((w) => 1 - w), () => "#d55e00", dip);
    }
    const known = spikes.filter((s) => s.t0 !== null && s.t1 !== null).sort((a, b) => a.t0 - b.t0);
    if (known.length) {
      row("memory spikes", Float64Array.from(known, (s) => s.t0), Float64Array.from(known, (s) => s.t1 - s.t0), all(known.length), (i) => (known[i].by ? "#0072b2" : "#d55e00"),
        (i) => { const s = known[i]; this.mark(s.t0, s.t1); this.pick(`spike of memory access${KNOWN(s.gpu) && s.gpu >= 0 ? `, ${this.head.gpus[s.gpu].label}` : ""}`, [["from", AT(s.t0)], ["for", SECONDS(s.t1 - s.t0)], ["peak", s.peak === null ? null : `${s.peak} %`], ["in", s.phase], ["explained by", s.by || "nothing known"]]); });
    }
    if (events) {
      const t0 = d.times(events.t0), length = d.times(events.len), lane = d.ints(events.lane), rank = d.ints(events.rank), step = d.ints(events.step);
      events.names.forEach((name, n) => {
        const ink = this.head.inks.phase.find((i) => i.key === name);
        row(name.replaceAll("_", " "), t0, length, lane.map((l) => (l === n ? 0 : 1)), () => (ink ? ink.hex : "#777777"),
          (i) => { this.mark(t0[i], t0[i] + length[i]); this.pick(`event ${name}`, [["from", AT(t0[i])], ["for", SECONDS(length[i])], ["rank", KNOWN(rank[i]) ? rank[i] : null], ["step", KNOWN(step[i]) ? step[i] : null], ["detail", events.detail && events.detail.at[i] >= 0 ? events.detail.texts[events.detail.at[i]] : null]]); });
      });
    }
    if (!rows.length) return;
    const nearest = (r, t) => {
      let best = -1, least = (this.tracks.view[1] - this.tracks.view[0]) / 100;
      for (let i = 0; i < r.t0.length; i++) {
        const away = r.of[i] ? Infinity : Math.max(r.t0[i] - t, t - r.t0[i] - r.length[i], 0);
        if (away < least) { best = i; least = away; }
      }
      return best;
    };
    this.rows = rows;
    this.tracks.lanes("dips, spikes and events", rows.map((r) => r.name), 15, true,
      (ctx, i, ...box) => this.tracks.boxes(ctx, rows[i].t0, rows[i].length, rows[i].of, 0, rows[i].colour, ...box),
      () => "",
      (t, i) => { const found = nearest(rows[i], t); return found < 0 ? this.pick(`${rows[i].name}: none near ${AT(t)}`, []) : rows[i].pick(found); });
  }

  mark(a, b) {
    this.tracks.marks = [[a, b]];
    this.tracks.draw();
  }

  // --- buttons ---

  buttons() {
    const on = (id, act) => document.getElementById(id).addEventListener("click", act);
    on("all", () => this.tracks.zoom(...this.head.window));
    on("in", () => this.by(0.5));
    on("out", () => this.by(2));
    on("back", () => this.pan(-0.5));
    on("on", () => this.pan(0.5));
    const near = document.getElementById("near");
    near.hidden = !this.head.typical;
    near.addEventListener("click", () => this.tracks.zoom(...this.head.typical));
    document.getElementById("before").addEventListener("click", () => this.receipt(-1));
    document.getElementById("after").addEventListener("click", () => this.receipt(1));
  }

  chips() {
    const list = document.getElementById("gpus");
    if (list.dataset.gpus === JSON.stringify(this.head.gpus)) return;
    list.dataset.gpus = JSON.stringify(this.head.gpus);
    list.replaceChildren();
    this.head.gpus.forEach((g, i) => {
      const chip = document.createElement("button"), dot = document.createElement("i");
      dot.style.background = LINES[i % LINES.length];
      chip.append(dot, document.createTextNode(g.label));
      chip.setAttribute("aria-pressed", String(this.tracks.shown.has(i)));
      chip.addEventListener("click", () => {
        if (!this.tracks.shown.delete(i)) this.tracks.shown.add(i);
        chip.setAttribute("aria-pressed", String(this.tracks.shown.has(i)));
        this.tracks.draw();
      });
      list.append(chip);
    });
  }

  by(factor) {
    const [a, b] = this.tracks.view, middle = (a + b) / 2;
    this.tracks.zoom(middle - ((b - a) * factor) / 2, middle + ((b - a) * factor) / 2);
  }

  pan(share) {
    const [a, b] = this.tracks.view;
    this.tracks.zoom(a + share * (b - a), b + share * (b - a));
  }

  // --- verdicts and their receipts ---

  verdicts(cards) {
    for (const card of cards) {
      const places = [...card.querySelectorAll("button[data-t0]")];
      places.forEach((button, i) => button.addEventListener("click", (e) => { e.stopPropagation(); this.show(card, places, i); }));
      const first = card.querySelector("button.show");
      if (!first) continue;
      first.addEventListener("click", (e) => { e.stopPropagation(); this.show(card, places, 0); });
      card.addEventListener("click", (e) => {
        if (e.target.closest("details, summary, button, a, code") || String(getSelection())) return;
        this.show(card, places, 0);
      });
    }
  }

  show(card, places, i) {
    const to = () => document.getElementById("timeline").scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    if (!places.length) {
      this.from = card;
      this.tracks.marks = [];
      this.tracks.zoom(...(this.head.typical || this.head.window));
      this.pick(card.querySelector("h3").textContent.trim(), [["receipts", "about the whole run, not a place in it"], ["shown", this.head.typical ? "typical steps" : "the whole run"]]);
      return to();
    }
    this.receipts = places;
    this.current = i;
    this.from = card;
    document.getElementById("steps").hidden = places.length < 2;
    const t0 = Number(places[i].dataset.t0), t1 = Number(places[i].dataset.t1), margin = Math.max(0.5, 0.6 * (t1 - t0));
    this.tracks.marks = places.map((p) => [Number(p.dataset.t0), Number(p.dataset.t1)]);
    this.tracks.zoom(t0 - margin, t1 + margin);
    this.pick(`receipt ${i + 1} of ${places.length}: ${card.querySelector("h3").textContent.trim()}`, [["evidence", places[i].dataset.text], ["where", places[i].dataset.where]]);
    to();
  }

  receipt(step) {
    const many = this.receipts.length;
    if (many) this.show(this.from, this.receipts, (this.current + step + many) % many);
  }

  // --- keys, while the tracks have the focus ---

  keys() {
    const acts = {
      ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), ArrowUp: () => this.by(0.7), ArrowDown: () => this.by(1 / 0.7),
      "+": () => this.by(0.5), "=": () => this.by(0.5), "-": () => this.by(2), 0: () => this.tracks.zoom(...this.head.window), Home: () => this.tracks.zoom(...this.head.window),
      n: () => this.receipt(1), p: () => this.receipt(-1), j: () => this.nextPhase(1), k: () => this.nextPhase(-1), l: () => this.nextLane(),
      Escape: () => { this.tracks.marks = []; this.tracks.draw(); if (this.from) this.from.querySelector("button").focus(); },
    };
    this.root.addEventListener("keydown", (e) => {
      const act = e.ctrlKey || e.metaKey || e.altKey ? null : acts[e.key];
      if (!act) return;
      e.preventDefault();
      act();
    });
  }

  nextLane() {
    if (!this.phases) return;
    this.phases.lane = (this.phases.lane + 1) % this.phases.names.length;
    this.phases.at = -1;
    this.nextPhase(1);
  }

  nextPhase(by) {
    if (!this.phases) return;
    const cells = this.phases.cells[this.phases.lane], [a, b] = this.tracks.view;
    const from = this.phases.at < 0 ? firstAfter(cells, a) : this.phases.at + by;
    const at = Math.max(0, Math.min(cells.t0.length - 1, from));
    this.pickPhase(this.phases.lane, at);
    if (cells.t0[at] < a || cells.t1[at] > b) this.tracks.zoom(cells.t0[at] - (b - a) / 3, cells.t0[at] + (2 * (b - a)) / 3);
  }
}

async function start() {
  const said = document.getElementById("picked");
  try {
    return new Page(await unpack(document.getElementById("data").textContent));
  } catch (error) {
    said.textContent = `This browser can't draw the tracks (${error.message}); the tables below hold the same numbers.`;
    console.error(error);
    return null;
  }
}

const started = document.getElementById("data") ? start() : Promise.resolve(null);
