// Colours of values: 256 per map, as bytes for the graphics card and as a gradient for bars.

const VIRIDIS = // every eighth colour of van der Walt's and Smith's map
  "440154 470d60 48186a 482374 472d7b 453781 424086 3e4989 3b528b 375b8d 33638d 2f6b8e 2c728e 297a8e 26828e 23898e " +
  "21918c 1f988b 1fa088 22a785 28ae80 32b67a 3fbc73 4ec36b 5ec962 70cf57 84d44b 98d83e addc30 c2df23 d8e219 ece51b fde725";

/** Colours between those given, evenly spaced. */
function between(colours, mix) {
  const table = new Uint8Array(256 * 4);
  for (let k = 0; k < 256; k += 1) {
    const place = (k / 255) * (colours.length - 1);
    const left = Math.min(Math.floor(place), colours.length - 2);
    table.set([...mix(colours[left], colours[left + 1], place - left), 255], 4 * k);
  }
  return table;
}

const linear = (a, b, t) => a.map((from, c) => from + t * (b[c] - from));

/** sRGB bytes of a colour in Ottosson's OKLab, in which equal steps look equal. */
function fromOklab([lightness, a, b]) {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((x) => 255 * Math.min(1, Math.max(0, x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055)));
}

const hex = (text) => [0, 2, 4].map((k) => parseInt(text.slice(k, k + 2), 16));

/** For fields. */
export const sequential = between(VIRIDIS.split(" ").map(hex), linear);

/** For differences: blue below zero, orange above, both equally dark, and white at zero. */
export const diverging = between(
  [[0.4, -0.02, -0.13], [0.68, -0.04, -0.1], [0.975, 0, 0], [0.68, 0.09, 0.1], [0.4, 0.09, 0.075]],
  (a, b, t) => fromOklab(linear(a, b, t)),
);

/** The colour of a value, as bytes. */
export function colourOf(value, [low, high], table) {
  const k = Math.round(255 * Math.min(1, Math.max(0, (value - low) / (high - low))));
  return table.subarray(4 * k, 4 * k + 3);
}

/** The map as a CSS gradient from left to right. */
export function gradient(table) {
  const stops = [];
  for (let k = 0; k <= 255; k += 15) stops.push(`rgb(${table.subarray(4 * k, 4 * k + 3).join(" ")})`);
  return `linear-gradient(to right, ${stops.join(", ")})`;
}
