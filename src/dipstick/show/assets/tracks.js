// Tracks on one time axis: uPlot draws lines, axes and the shared cursor; lanes are painted in its draw hook.
"use strict";

const LINES = ["#4477aa", "#ee6677", "#228833", "#aa3377", "#66ccee", "#ccbb44", "#888888", "#996633"];
const LABELS = 116, RIGHT = 14, BAND = 4;

const THEMES = {
  light: { fg: "#1d2126", soft: "#5c6670", line: "#d9dee3", mark: "rgba(230,159,0,.22)", edge: "#e69f00", bg: "#ffffff" },
  dark: { fg: "#e6e9ec", soft: "#9aa5b0", line: "#333a41", mark: "rgba(230,159,0,.30)", edge: "#e69f00", bg: "#14171a" },
};

// 12.5 s, 90 s, 1:02:30
function clock(t) {
  if (t < 6000 || t % 1) return `${+t.toFixed(4)} s`;
  return `${Math.floor(t / 3600)}:${String(Math.floor((t % 3600) / 60)).padStart(2, "0")}:${String(Math.floor(t % 60)).padStart(2, "0")}`;
}

class Tracks {
  constructor(root, head) {
    this.root = root;
    this.plots = [];
    this.marks = [];
    this.span(head);
    this.view = this.all();
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.theme = this.dark.matches ? THEMES.dark : THEMES.light;
    this.dark.addEventListener("change", () => this.dress(this.dark.matches ? "dark" : "light"));
    this.shown = new Set(this.head.gpus.map((_, i) => i).slice(0, 8));
    addEventListener("pointerdown", () => { this.isHeld = true; }, true);
    for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => { this.isHeld = false; }, true);
    new ResizeObserver(() => this.resize()).observe(root);
    addEventListener("beforeprint", () => { this.dress("light"); this.resize(680); });
    addEventListener("afterprint", () => { this.dress(this.dark.matches ? "dark" : "light"); this.resize(); });
  }

  span(head) {
    this.head = head;
    this.whole = [Math.min(0, head.window[0]), Math.max(head.seconds, head.window[1], 0.001)];
  }

  all() {
    return this.head.window[1] > this.head.window[0] ? [...this.head.window] : [...this.whole];
  }

  // Other data: the tracks are built anew under the same view. One that showed all shows all, one at the end stays at the end,
  // any other stays where it is; so do the cursor, the marks and which GPUs are hidden.
  take(head, later, build) {
    const [a, b] = this.view.map((t) => t - later), was = this.all(), end = this.whole[1] - later;
    const cursors = this.plots.map(({ plot }) => plot.cursor.left), hidden = new Set(this.head.gpus.filter((_, i) => !this.shown.has(i)).map((g) => g.label));
    const isAll = Math.abs(this.view[0] - was[0]) < 1e-3 && Math.abs(this.view[1] - was[1]) < 1e-3, isAtEnd = b >= end - 1e-3;
    const isSame = JSON.stringify(head.gpus) === JSON.stringify(this.head.gpus);
    for (const { plot, watch } of this.plots) { watch.disconnect(); plot.destroy(); }
    this.plots = [];
    this.root.replaceChildren();
    this.span(head);
    if (!isSame) this.shown = new Set(head.gpus.map((_, i) => i).filter((i) => !hidden.has(head.gpus[i].label)).slice(0, 8));
    this.view = isAll ? this.all() : isAtEnd ? [this.whole[1] - (b - a), this.whole[1]] : [a, b];
    this.marks = this.marks.map((mark) => mark.map((t) => t - later));
    build();
    this.draw();
    const left = cursors.find((x) => x >= 0);
    if (left !== undefined) requestAnimationFrame(() => { for (const { plot } of this.plots) plot.setCursor({ left, top: 8 }, true, false); });
  }

  // Once no mouse button is down: a drag must not lose the plot that it began on.
  async idle() {
    while (this.isHeld) await new Promise((done) => { addEventListener("pointerup", done, { once: true }); addEventListener("blur", done, { once: true }); });
  }

  dress(name) {
    this.theme = THEMES[name];
    for (const { plot } of this.plots) plot.redraw(false, true);
  }

  get width() {
    return Math.max(320, Math.floor(this.root.clientWidth));
  }

  // Of the screen, for the time axis.
  get columns() {
    return Math.max(1, this.width - LABELS - RIGHT);
  }

  resize(width = this.width) {
    if (width === this.drawnWidth) return;
    this.drawnWidth = width;
    for (const { plot, height, data } of this.plots) {
      plot.setSize({ width, height });
      plot.setData(data(plot));
    }
  }

  // --- one track ---

  frame(title, label) {
    const figure = document.createElement("figure"), head = document.createElement("figcaption");
    const name = document.createElement("span"), values = document.createElement("span");
    figure.className = "track";
    figure.setAttribute("role", "group");
    figure.setAttribute("aria-label", label || title);
    name.textContent = title;
    values.className = "values";
    head.append(name, values);
    figure.append(head);
    this.root.append(figure);
    return { figure, values };
  }

  add(title, label, height, own, paint, values, pick) {
    const { figure, values: readout } = this.frame(title, label);
    const axis = { stroke: () => this.theme.soft, grid: { stroke: () => this.theme.line, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const plot = new uPlot({
      width: this.width, height, legend: { show: false }, padding: [4, RIGHT, 0, 0],
      cursor: { sync: { key: "time", scales: ["x", null] }, drag: { x: true, y: false, setScale: false }, points: { show: false }, y: false },
      ...own,
      scales: { x: { time: false, range: () => this.view }, ...own.scales },
      axes: [own.times ? { ...axis, size: 22, space: 76, values: (_, ticks) => ticks.map(clock) } : { ...axis, size: 4, space: 76, values: () => [] }, { ...axis, size: LABELS, ...own.y }],
      hooks: {
        drawClear: [(u) => this.paintMarks(u)],
        draw: paint ? [(u) => paint(u)] : [],
        setSelect: [(u) => this.selected(u)],
        setCursor: [(u) => { readout.textContent = u.cursor.left >= 0 ? values(u.posToVal(u.cursor.left, "x")) : ""; }],
      },
    }, own.data, figure);
    const track = { plot, height, data: own.refresh, seen: true, stale: false };
    this.plots.push(track);
    track.watch = new IntersectionObserver(([entry]) => { // what is out of sight is drawn when it comes into sight
      track.seen = entry.isIntersecting;
      if (track.seen && track.stale) this.draw();
    }, { rootMargin: "200px" });
    track.watch.observe(figure);
    this.listen(plot, pick);
    return plot;
  }

  listen(plot, pick) {
    const over = plot.over;
    let down = null;
    over.addEventListener("mousedown", (e) => { down = [e.clientX, e.shiftKey ? this.view : null]; if (e.shiftKey) e.stopImmediatePropagation(); }, true);
    over.addEventListener("mousemove", (e) => {
      if (!down || !down[1] || !(e.buttons & 1)) return;
      const [a, b] = down[1], by = ((down[0] - e.clientX) / over.clientWidth) * (b - a);
      this.zoom(a + by, b + by);
    });
    over.addEventListener("click", (e) => {
      if (!pick || !down || Math.abs(e.clientX - down[0]) > 3) return;
      const box = over.getBoundingClientRect();
      pick(plot.posToVal(e.clientX - box.left, "x"), plot.posToVal(e.clientY - box.top, "y"));
    });
    over.addEventListener("dblclick", () => this.zoom(...this.head.window));
    over.addEventListener("wheel", (e) => {
      const sideways = Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey;
      if (!sideways && !e.ctrlKey && !e.metaKey) return; // the page scrolls
      e.preventDefault();
      const [a, b] = this.view, at = plot.posToVal(plot.cursor.left >= 0 ? plot.cursor.left : 0, "x");
      if (sideways) return this.zoom(a + ((e.deltaX || e.deltaY) / over.clientWidth) * (b - a), b + ((e.deltaX || e.deltaY) / over.clientWidth) * (b - a));
      const by = Math.exp(Math.max(-1, Math.min(1, e.deltaY / 100)) * 0.25);
      this.zoom(at - (at - a) * by, at + (b - at) * by);
    }, { passive: false });
  }

  selected(u) {
    if (u.select.width < 4) return;
    const a = u.posToVal(u.select.left, "x"), b = u.posToVal(u.select.left + u.select.width, "x");
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.zoom(a, b);
  }

  paintMarks(u) {
    const { ctx, bbox } = u;
    ctx.save();
    for (const [a, b] of this.marks) {
      const from = Math.max(bbox.left, u.valToPos(a, "x", true)), to = Math.min(bbox.left + bbox.width, u.valToPos(b, "x", true));
      if (to < bbox.left || from > bbox.left + bbox.width) continue;
      ctx.fillStyle = this.theme.mark;
      ctx.fillRect(from, bbox.top, Math.max(2, to - from), bbox.height);
    }
    ctx.restore();
  }

  // --- where the view is ---

  zoom(a, b) {
    const least = 0.002, [first, last] = this.whole;
    let length = Math.min(Math.max(b - a, least), last - first);
    const start = Math.max(first, Math.min((a + b) / 2 - length / 2, last - length));
    this.view = [start, start + length];
    this.draw();
    this.root.dispatchEvent(new CustomEvent("view", { detail: this.view }));
  }

  // `more`: of the same view, so what stands at the cursor is read again.
  draw(more = false) {
    this.isMore ||= more;
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      for (const track of this.plots) {
        track.stale = !track.seen;
        if (track.seen) track.plot.setData(track.data(track.plot));
        const { left, top } = track.plot.cursor;
        if (this.isMore && left >= 0) track.plot.setCursor({ left, top }, true, false);
      }
      this.isMore = false;
      this.root.dataset.drawn = this.view.map((t) => t.toFixed(4)).join(" ");
    });
  }

  // --- lines ---

  // uPlot would stroke 2,000 points a GPU; without a graphics card that takes a second for 8 GPUs. A column of the screen is
  // one rectangle from its least to its most instead, written into pixels of ours, which shows the same and takes milliseconds.
  lines(chart, cells, labels) {
    const digits = chart.step >= 1 ? 0 : 1;
    const read = (t) => this.visible(cells).slice(0, 8).map((i) => {
      const c = cells[i], at = cellAt(c, t), known = at >= 0 && !Number.isNaN(c.low[at]);
      const value = known ? (c.low[at] === c.high[at] ? c.low[at].toFixed(digits) : `${c.mean[at].toFixed(digits)} (${c.low[at].toFixed(digits)} to ${c.high[at].toFixed(digits)})`) : "–";
      return `${labels[i]} ${value} ${chart.unit}`;
    }).join("   ");
    const most = cells.reduce((m, c) => (c ? c.high.reduce((n, v) => (v > n ? v : n), m) : m), 1e-9);
    const top = chart.top === null ? most * 1.05 : chart.top * 1.02;
    const means = chart.means.map((mean, i) => (cells[i] ? `${labels[i]}: mean ${mean} ${chart.unit}` : null)).filter(Boolean).join(", ");
    const pale = new Pixels(), solid = new Pixels();
    const height = chart.key === "util" ? 150 : chart.last ? 96 : 78;
    this.add(`${chart.label}, ${chart.unit}`, `${chart.label}: ${means}`, height, {
      times: chart.key === "util" || chart.last,
      data: [this.view.slice(), [null, null]],
      refresh: () => [this.view.slice(), [null, null]],
      scales: { y: { range: [0, top] } },
      series: [{}, { points: { show: false } }],
      y: { values: (_, ticks) => ticks.map((t) => `${+t.toFixed(2)}`) },
    }, (u) => this.paintLines(u, cells, top, pale, solid), read, null);
  }

  visible(cells) {
    return cells.map((c, i) => i).filter((i) => cells[i] && this.shown.has(i));
  }

  // A column of few samples is drawn from its least to its most. One of many would be a block in every column: there the mean
  // is the line, and least to most is a pale band behind all lines.
  paintLines(u, cells, top, pale, solid) {
    const { ctx, bbox } = u, columns = Math.max(1, Math.round(bbox.width / devicePixelRatio)), wide = Math.ceil(columns / BAND);
    const y = (v) => bbox.height * (1 - Math.min(v, top) / top);
    pale.begin(wide, bbox.height);
    solid.begin(columns, bbox.height);
    for (const i of this.visible(cells)) {
      const reduced = reduce(cells[i], this.view[0], this.view[1], columns), colour = LINES[i % LINES.length];
      this.band(pale, reduced, y, word(colour, 33));
      this.line(solid, reduced, y, word(colour));
    }
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    pale.put(ctx, bbox.left, bbox.top, (wide * BAND * bbox.width) / columns);
    solid.put(ctx, bbox.left, bbox.top, bbox.width);
    ctx.restore();
  }

  band(pale, { low, high, many }, y, colour) { // a quarter of the columns is enough for what is pale
    for (let c = 0; c < many.length; c += BAND) {
      let least = Infinity, most = -Infinity;
      for (let k = c; k < Math.min(c + BAND, many.length); k++) if (many[k] > 6) { least = Math.min(least, low[k]); most = Math.max(most, high[k]); }
      if (least <= most) pale.tint(c / BAND, Math.round(y(most)), Math.max(Math.round(y(least)), Math.round(y(most)) + 1), colour);
    }
  }

  line(solid, { low, high, mean, many }, y, colour) {
    const thick = 1.25 * devicePixelRatio;
    let least = NaN, most = NaN; // of what was drawn in the column before, to join the two; NaN: nothing
    for (let c = 0; c < many.length; c++) {
      if (low[c] > high[c]) { least = most = NaN; continue; }
      const dense = many[c] > 6, from = dense ? mean[c] : low[c], to = dense ? mean[c] : high[c];
      const upper = Math.round(y(to < least ? least : to) - thick / 2), lower = Math.round(y(from > most ? most : from) + thick / 2);
      solid.fill(c, c + 1, upper, Math.max(lower, upper + 1), colour);
      least = from;
      most = to;
    }
  }

  // --- lanes ---

  lanes(title, names, rows, times, paintRow, read, pick) {
    const height = (times ? 28 : 10) + Math.max(1, names.length) * rows;
    this.add(title, `${title}: ${names.join(", ")}`, height, {
      times,
      data: [this.view.slice(), [null, null]],
      refresh: () => [this.view.slice(), [null, null]],
      scales: { y: { range: [0, names.length], dir: -1 } },
      series: [{}, { points: { show: false } }],
      y: { splits: () => names.map((_, i) => i + 0.5), values: () => names, grid: { show: false }, gap: 6 },
    }, (u) => {
      const { ctx, bbox } = u, ratio = devicePixelRatio, row = bbox.height / Math.max(1, names.length);
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      names.forEach((_, i) => paintRow(ctx, i, bbox.left, bbox.top + i * row + ratio, bbox.width, row - 2 * ratio, u));
      ctx.restore();
    }, read, (t, y) => pick(t, Math.max(0, Math.min(names.length - 1, Math.floor(y)))));
  }

  // Coloured stretches of codes, with their names where there is room.
  codes(ctx, cells, inks, left, top, width, height, u) {
    const ratio = devicePixelRatio, names = [], at = Math.round(top), high = Math.round(height);
    const words = inks.map((ink) => word(ink.hex)), solid = (u.pixels ||= new Pixels());
    solid.begin(Math.round(width), high);
    stretches(cells, this.view[0], this.view[1], width, (from, to, code) => {
      const ink = inks[code];
      if (!ink) return;
      const start = Math.round(from), end = Math.round(to) - (to - from > 3 * ratio ? Math.floor(ratio) : 0);
      solid.fill(start, Math.max(start + 1, end), 0, high, words[code]);
      if (to - from > 16 * ratio) names.push([ink, from, (to - from) / ratio]);
    });
    solid.put(ctx, left, at, Math.round(width));
    ctx.font = `${10.5 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    for (const [ink, from, room] of names) {
      ctx.fillStyle = ink.text;
      ctx.fillText(room > 6.4 * (ink.label.length + 1) ? ink.label : ink.letter, left + from + 4 * ratio, top + height / 2);
    }
  }

  // Boxes with a start and a length; narrow ones are a line of one pixel.
  boxes(ctx, t0, length, rows, row, colour, left, top, width, height) {
    const [a, b] = this.view, scale = width / (b - a), ratio = devicePixelRatio;
    let last = -1;
    for (let i = 0; i < t0.length; i++) {
      if (rows[i] !== row || t0[i] > b || t0[i] + length[i] < a) continue;
      const from = Math.max(-1, (t0[i] - a) * scale), to = Math.min(width + 1, (t0[i] + length[i] - a) * scale);
      if (to - from < 1 && Math.floor(to) === last) continue; // the pixel has its line already
      ctx.fillStyle = colour(i);
      ctx.fillRect(left + from, top, Math.max(ratio, to - from - (to - from > 4 * ratio ? ratio : 0)), height);
      last = Math.floor(to);
    }
  }
}
