// A picture of whole pixels, written by hand and put on a canvas at once: without a graphics card each rectangle that a canvas
// fills costs about a microsecond, and a screen of eight GPUs has 50,000 of them.
"use strict";

const WORDS = new Map();

// "#rrggbb" as ImageData has it in memory: red first, not multiplied by its opacity.
function word(hex, opacity = 255) {
  const key = hex + opacity;
  if (!WORDS.has(key)) WORDS.set(key, new Uint32Array(Uint8ClampedArray.from([1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).concat(opacity)).buffer)[0]);
  return WORDS.get(key);
}

// A see-through colour over another.
function over(colour, below) {
  const share = (colour >>> 24) / 255, rest = ((below >>> 24) / 255) * (1 - share), all = share + rest;
  const mix = (k) => Math.round((((colour >>> k) & 255) * share + ((below >>> k) & 255) * rest) / all) << k;
  return ((Math.round(255 * all) << 24) | mix(16) | mix(8) | mix(0)) >>> 0;
}

class Pixels {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.ctx = this.canvas.getContext("2d", { willReadFrequently: true }); // stays in memory, where it is written
  }

  // An empty picture. It is drawn as wide as asked, so a pixel may be a column of several.
  begin(...size) {
    const [width, height] = size.map((n) => Math.max(1, Math.round(n)));
    if (this.width !== width || this.height !== height) {
      [this.width, this.height] = [this.canvas.width, this.canvas.height] = [width, height];
      this.image = this.ctx.createImageData(width, height);
      this.words = new Uint32Array(this.image.data.buffer);
    } else this.words.fill(0);
  }

  fill(left, right, top, bottom, colour) {
    const { words, width } = this, from = Math.max(0, left), to = Math.min(width, right), end = Math.min(this.height, bottom);
    for (let y = Math.max(0, top); y < end; y++) for (let i = y * width + from, last = y * width + to; i < last; i++) words[i] = colour;
  }

  // One column of a see-through colour, over what is there; below a pixel mostly comes another of the same.
  tint(x, top, bottom, colour) {
    const { words, width } = this, end = Math.min(this.height, bottom);
    let was = 0, now = colour;
    for (let y = Math.max(0, top), i = y * width + x; y < end; y++, i += width) {
      if (words[i] !== was) {
        was = words[i];
        now = was ? over(colour, was) : colour;
      }
      words[i] = now;
    }
  }

  put(ctx, left, top, width) {
    this.ctx.putImageData(this.image, 0, 0);
    const smooth = ctx.imageSmoothingEnabled;
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(this.canvas, left, top, width, this.height);
    ctx.imageSmoothingEnabled = smooth;
  }
}
