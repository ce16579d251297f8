// Curves with axes as a drawing: cuts, series, bands, observations.

import { formatNumber, h, svg } from "./dom.js";

const MARGIN = { left: 54, right: 14, top: 12, bottom: 34 };

/** Round numbers within a range, about as many as asked. */
export function ticks([low, high], count = 5) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) found.push(k * step);
  return found;
}

/** A range with a little air at both ends. */
export function aired([low, high], share = 0.06) {
  const by = share * (high - low);
  return [low - by, high + by];
}

export class Plot {
  /** curves: see `show`; the plot fills its element and keeps its height. */
  constructor(stage, { label, height = 260, pointed = () => {} }) {
    Object.assign(this, { stage, label, height, pointed, content: null });
    this.drawing = svg("svg", { role: "img", "aria-label": label, class: "plot" });
    this.key = h("ul", { class: "key" });
    stage.replaceChildren(this.drawing, this.key);
    this.resize = new ResizeObserver(() => this.draw());
    this.resize.observe(stage);
    this.drawing.addEventListener("pointermove", (event) => this.pointed(this.toSpace(event)));
    this.drawing.addEventListener("pointerleave", () => this.pointed(null));
  }

  remove() {
    this.resize.disconnect();
    this.stage.replaceChildren();
  }

  /**
   * content: {x: range, y: range, xLabel, yLabel, curves: [{name, x, y, class}], bands: [{name, x, low, high}],
   *   dots: [{x, y}]}; classes are those of the style sheet.
   */
  show(content) {
    this.content = content;
    this.draw();
  }

  draw() {
    const width = this.stage.clientWidth;
    if (!this.content || !width) return;
    const { x, y, xLabel, yLabel, curves = [], bands = [], dots = [] } = this.content;
    const { height } = this;
    const right = width - MARGIN.right;
    const bottom = height - MARGIN.bottom;
    this.toX = (value) => MARGIN.left + ((value - x[0]) / (x[1] - x[0])) * (right - MARGIN.left);
    this.toY = (value) => bottom - ((value - y[0]) / (y[1] - y[0])) * (bottom - MARGIN.top);
    this.toSpace = (event) => {
      const box = this.drawing.getBoundingClientRect();
      return [
        x[0] + ((event.clientX - box.left - MARGIN.left) / (right - MARGIN.left)) * (x[1] - x[0]),
        y[0] + ((bottom - event.clientY + box.top) / (bottom - MARGIN.top)) * (y[1] - y[0]),
      ];
    };
    const axes = [
      ...ticks(y, 4).flatMap((value) => [
        svg("line", { class: "grid", x1: MARGIN.left, x2: right, y1: this.toY(value), y2: this.toY(value) }),
        svg("text", { class: "tick", x: MARGIN.left - 8, y: this.toY(value) + 4, "text-anchor": "end" }, formatNumber(value)),
      ]),
      ...ticks(x, Math.max(2, Math.floor(width / 90))).map((value) =>
        svg("text", { class: "tick", x: this.toX(value), y: bottom + 17, "text-anchor": "middle" }, formatNumber(value))),
      svg("text", { class: "axis", x: right, y: height - 3, "text-anchor": "end" }, xLabel ?? ""),
      svg("text", { class: "axis", x: MARGIN.left, y: MARGIN.top - 2 }, yLabel ?? ""),
    ];
    const path = (xs, ys) => Array.from(xs, (at, k) => `${this.toX(at).toFixed(1)},${this.toY(ys[k]).toFixed(1)}`);
    const shapes = [
      ...bands.map((band) => svg("path", {
        class: "band", d: pieces(band).map((part) => `M${path(part.x, part.high).join("L")}L${path(part.x, part.low).reverse().join("L")}Z`).join(""),
      })),
      ...curves.map((curve) => svg("path", { class: `curve ${curve.class}`, d: gapped(curve, path) })),
      ...dots.map((dot) => svg("circle", { class: "dot", cx: this.toX(dot.x), cy: this.toY(dot.y), r: 4.5 })),
    ];
    // Curves may leave a range that was fixed by others.
    const clip = svg("svg", { x: MARGIN.left, y: MARGIN.top - 6, width: Math.max(0, right - MARGIN.left), height: bottom - MARGIN.top + 12,
      viewBox: `${MARGIN.left} ${MARGIN.top - 6} ${Math.max(1, right - MARGIN.left)} ${bottom - MARGIN.top + 12}` }, ...shapes);
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.drawing.setAttribute("height", height);
    this.drawing.replaceChildren(...axes, clip);
    const named = [...curves, ...bands.map((band) => ({ ...band, class: "band" }))].filter((each) => each.name);
    this.key.replaceChildren(...named.map((each) => h("li", { class: each.class }, each.name)));
  }
}

/** The parts of a band in which it has values. */
function pieces({ x, low, high }) {
  const found = [];
  let part = null;
  low.forEach((value, k) => {
    if (!Number.isFinite(value)) part = null;
    else {
      if (!part) found.push(part = { x: [], low: [], high: [] });
      part.x.push(x[k]);
      part.low.push(value);
      part.high.push(high[k]);
    }
  });
  return found;
}

/** The path of a curve, which stops where it has no values. */
function gapped({ x, y }, path) {
  const points = path(x, y);
  let open = false;
  return points.map((point, k) => {
    const there = Number.isFinite(y[k]);
    const piece = there ? `${open ? "L" : "M"}${point}` : "";
    open = there;
    return piece;
  }).join("");
}
