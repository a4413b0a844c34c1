// Fetches from the server what the page holds too coarsely for what is in view, and puts it in the place of the page's columns.
// Where the server can't be asked any more, the columns stay.
"use strict";

const STILL_MS = 150, NEAR_ENOUGH = 1.5, POINTS = [200, 8000];

class Fine {
  constructor(page) {
    this.page = page;
    this.said = document.getElementById("fine");
    this.held = null; // the stretch that is spliced in: from a to b, in columns of `column` seconds (0: every sample)
    page.root.addEventListener("view", () => this.look());
    this.look();
  }

  // Once the view has stood still for a moment.
  look() {
    this.say();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), STILL_MS);
  }

  // The widest column of the page's tracks; 0: nothing was thinned.
  get coarsest() {
    return Math.max(0, ...this.page.tracked().map(({ cells }) => cells.column));
  }

  get pixel() {
    const [a, b] = this.page.tracks.view;
    return (b - a) / this.page.tracks.columns;
  }

  holds([a, b]) {
    const [first, last] = this.page.tracks.whole;
    return Boolean(this.held) && this.held.a <= Math.max(a, first) + 1e-3 && Math.min(b, last) - 1e-3 <= this.held.b;
  }

  wanted() {
    const [a, b] = this.page.tracks.view, near = NEAR_ENOUGH * this.pixel, longest = this.page.head.longest;
    if (!longest || b - a > longest || this.coarsest <= near || (this.holds([a, b]) && this.held.column <= near)) return null;
    const margin = Math.min((b - a) / 2, (longest - (b - a)) / 2), points = 4 * this.page.tracks.columns;
    return [Math.max(0, Math.ceil(1000 * (a - margin))), Math.floor(1000 * (b + margin)), Math.max(POINTS[0], Math.min(POINTS[1], points))];
  }

  // One at a time; the view that there is after it counts, not those between.
  async ask() {
    const wanted = this.isAsking ? null : this.wanted();
    if (!wanted) return this.say();
    const view = String(this.page.tracks.view), version = this.version;
    this.isAsking = true;
    this.say();
    try {
      const [from, to, points] = wanted, answer = await fetch(`/range?version=${version}&from=${from}&to=${to}&points=${points}`);
      const opened = answer.ok ? await unpack(await answer.text()) : null;
      if (opened && version === this.version) this.take(opened);
    } catch { /* the page's own columns do */ }
    this.isAsking = false;
    this.say();
    if (view !== String(this.page.tracks.view) || version !== this.version) this.look();
  }

  get version() {
    return document.documentElement.dataset.version;
  }

  take({ head, ints, times, values }) {
    const parts = this.page.tracked().map(({ of, step }) => cellsOf({ ints, times, values }, of(head), step));
    this.held = { a: head.range[0], b: head.range[1], parts, column: Math.max(0, ...parts.map((part) => (part ? part.column : 0))) };
    this.show();
  }

  show() {
    const { a, b, parts } = this.held;
    this.page.keepPhase(() => this.page.tracked().forEach(({ cells }, i) => {
      if (cells.column && parts[i]) Object.assign(cells, splice(cells.whole ||= { ...cells }, parts[i], a, b));
    }));
    this.page.tracks.draw(true);
  }

  // After a newer page: what was held stays in view until it is fetched again. Its sites were numbered for the older page.
  renew(later, end) {
    if (this.held && !later && this.held.parts.length === this.page.tracked().length) {
      this.held.b = Math.min(this.held.b, end);
      for (const part of this.held.parts) if (part && part.site) part.site.fill(NOTHING);
      this.show();
    }
    this.held = null;
    this.look();
  }

  say() {
    const coarsest = this.coarsest, isHeld = this.holds(this.page.tracks.view), column = isHeld ? this.held.column : coarsest;
    const text = !coarsest ? "" : column ? `thinned: columns of ${SECONDS(column)}${this.isAsking ? ", fetching more" : ""}` : "full resolution";
    if (this.said.textContent !== text) this.said.textContent = text;
  }
}

// The cells of `whole`, but from a to b those of `part`; what reaches over an edge is cut there.
function splice(whole, part, a, b) {
  const first = firstAfter(whole, a), head = first + Number(whole.t0[first] < a), until = before(whole, b), tail = until - Number(until > 0 && whole.t1[until - 1] > b);
  const from = firstAfter(part, a), to = Math.max(from, before(part, b)), joined = {};
  for (const key of ["t0", "t1", "low", "high", "mean", "site"]) {
    if (!whole[key]) { joined[key] = null; continue; }
    const middle = part[key].subarray(from, to), out = new whole[key].constructor(head + middle.length + whole[key].length - tail);
    out.set(whole[key].subarray(0, head));
    out.set(middle, head);
    out.set(whole[key].subarray(tail), head + middle.length);
    joined[key] = out;
  }
  const { t0, t1 } = joined, end = head + to - from;
  if (head > 0) t1[head - 1] = Math.min(t1[head - 1], a);
  if (to > from) { t0[head] = Math.max(t0[head], a); t1[end - 1] = Math.min(t1[end - 1], b); }
  if (end < t0.length) t0[end] = Math.max(t0[end], b);
  return joined;
}

// How many cells begin before t.
function before(cells, t) {
  let a = 0, b = cells.t0.length;
  while (a < b) {
    const m = (a + b) >> 1;
    if (cells.t0[m] < t) a = m + 1; else b = m;
  }
  return a;
}
