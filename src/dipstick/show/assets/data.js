// Opens what pack.py packed, and reduces it to what a screen of so many columns can show.
"use strict";

async function unpack(text) {
  const raw = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const opened = new Map();
  const ints = (number) => {
    if (!opened.has(number)) opened.set(number, restore(bytes.subarray(4 + length), ...head.arrays[number]));
    return opened.get(number);
  };
  const times = (number) => Float64Array.from(ints(number), (ticks) => ticks * head.tick_s);
  const values = (number, step) => Float32Array.from(ints(number), (v) => (v === head.absent ? NaN : v * step));
  return { head, ints, times, values };
}

// Byte planes back to numbers, differences back to values; both wrap round as they did when packed.
function restore(bytes, offset, count, size) {
  const out = size === 2 ? new Uint16Array(count) : new Uint32Array(count);
  let before = 0;
  for (let i = 0; i < count; i++) {
    let step = 0;
    for (let plane = 0; plane < size; plane++) step += bytes[offset + plane * count + i] * 2 ** (8 * plane);
    before = size === 2 ? (before + step) & 0xffff : (before + step) >>> 0;
    out[i] = before;
  }
  return out;
}

const NOTHING = 4294967295; // pack.numbers: not known

function cellsOf(data, packed, step) {
  if (!packed) return null;
  const t0 = data.times(packed.t0), length = data.times(packed.len);
  const low = data.values(packed.low, step), other = (number) => (number === undefined ? low : data.values(number, step));
  return {
    t0, t1: t0.map((t, i) => t + length[i]), low, high: other(packed.high), mean: other(packed.mean),
    site: packed.site === undefined ? null : data.ints(packed.site), column: packed.column_s,
  };
}

// The first cell that ends after t.
function firstAfter(cells, t) {
  let a = 0, b = cells.t1.length;
  while (a < b) {
    const m = (a + b) >> 1;
    if (cells.t1[m] > t) b = m; else a = m + 1;
  }
  return a;
}

// The cell that holds t, or -1.
function cellAt(cells, t) {
  const i = firstAfter(cells, t);
  return i < cells.t0.length && cells.t0[i] <= t ? i : -1;
}

// Least, most and mean of each of `columns` columns of [a, b], and how many cells touch it; where nothing is known, the
// least is above the most.
function reduce(cells, a, b, columns) {
  const low = new Float32Array(columns).fill(Infinity), high = new Float32Array(columns).fill(-Infinity);
  const sum = new Float64Array(columns), weight = new Float64Array(columns), many = new Uint16Array(columns);
  const scale = columns / (b - a), { t0, t1, low: least, high: most, mean } = cells, length = t0.length;
  for (let i = firstAfter(cells, a); i < length && t0[i] < b; i++) {
    const lower = least[i], upper = most[i], middle = mean[i], count = lower === upper ? 1 : 8;
    if (lower !== lower) continue; // NaN: not measured
    const start = Math.max(0, (t0[i] - a) * scale), end = Math.min(columns, (t1[i] - a) * scale);
    const from = start | 0, to = Math.min(columns - 1, Math.max(from, Math.ceil(end) - 1));
    for (let c = from; c <= to; c++) {
      if (lower < low[c]) low[c] = lower;
      if (upper > high[c]) high[c] = upper;
      const part = Math.max(1e-9, Math.min(end, c + 1) - Math.max(start, c));
      sum[c] += part * middle;
      weight[c] += part;
      many[c] += count;
    }
  }
  for (let c = 0; c < columns; c++) sum[c] /= weight[c];
  return { low, high, mean: sum, many };
}

// Stretches of one code, at least a pixel wide: what is narrower shares a pixel, and the widest code gets it.
function stretches(cells, a, b, pixels, draw) {
  const scale = pixels / (b - a), share = new Float64Array(64);
  let pixel = -1, used = false;
  const flush = () => {
    if (!used) return;
    let best = 0;
    for (let c = 1; c < share.length; c++) if (share[c] > share[best]) best = c;
    draw(pixel, pixel + 1, best);
    share.fill(0);
    used = false;
  };
  for (let i = firstAfter(cells, a); i < cells.t0.length && cells.t0[i] < b; i++) {
    const from = Math.max(0, (cells.t0[i] - a) * scale), to = Math.min(pixels, (cells.t1[i] - a) * scale);
    if (to - from >= 1) {
      flush();
      draw(from, to, cells.low[i], i);
      continue;
    }
    const at = Math.floor(from);
    if (at !== pixel) { flush(); pixel = at; }
    share[cells.low[i]] += to - from;
    used = true;
  }
  flush();
}
