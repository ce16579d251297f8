// What the colours of a picture mean.

import { gradient } from "./colours.js";
import { formatNumber, h } from "./dom.js";
import { ticks } from "./plot.js";

export class ColourBar {
  constructor(element) {
    this.element = element;
  }

  show({ range, table, name, unit }) {
    const strip = h("div", { class: "strip" });
    strip.style.setProperty("background-image", gradient(table));
    const marks = ticks(range, 4).map((value) => {
      const mark = h("span", {}, formatNumber(value));
      const at = (value - range[0]) / (range[1] - range[0]);
      mark.style.setProperty("left", `${(100 * at).toFixed(2)}%`);
      // Numbers at the ends stay over the strip.
      if (at < 0.1) mark.classList.add("first");
      if (at > 0.9) mark.classList.add("last");
      return mark;
    });
    this.element.replaceChildren(strip, h("div", { class: "marks" }, ...marks), h("p", {}, unit ? `${name} (${unit})` : name));
  }

  clear() {
    this.element.replaceChildren();
  }
}
