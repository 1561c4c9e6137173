// A time chart of one or two lines, drawn as SVG.

import { h } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 40;
const BOTTOM = 22;
const TOP = 8;
const RIGHT = 8;

function s(tag, attributes, ...children) {
  const el = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) el.setAttribute(name, value);
  el.append(...children);
  return el;
}

/** A round step that divides `max` into about `parts`. */
export function niceStep(max, parts) {
  const rough = max / parts;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= rough * 0.999) ?? 10 * power;
}

/**
 * A chart. `series`: [{ name, key }], drawn from samples `{ at, [key]: number | null }`; `span`: the milliseconds shown;
 * `least`: the smallest top of the scale; `format`: a value as text.
 */
export class Chart {
  #samples = [];
  #now = 0;
  // A unit is a pixel: the drawing is made for the size that the page gives it.
  #width = 640;
  #height = 180;

  constructor({ title, series, span, least, format }) {
    Object.assign(this, { title, series, span, least, format });
    this.svg = s("svg", { class: "chart", role: "img" });
    this.tip = h("p", { class: "tip", hidden: true });
    const legend = h(
      "ul",
      { class: "legend" },
      series.map(({ name }, i) => h("li", { class: `line${i}` }, h("i"), name)),
    );
    this.el = h(
      "figure",
      { class: "chart-box" },
      h("figcaption", null, h("h3", null, title), series.length > 1 ? legend : null),
      this.svg,
      this.tip,
    );
    this.svg.addEventListener("pointermove", (event) => this.#point(event));
    this.svg.addEventListener("pointerleave", () => this.#unpoint());
    this.cursor = s("line", { class: "cursor", visibility: "hidden" });
  }

  draw(samples, now) {
    this.#samples = samples;
    this.#now = now;
    this.#width = this.svg.clientWidth || 640;
    this.#height = this.svg.clientHeight || 180;
    this.svg.setAttribute("viewBox", `0 0 ${this.#width} ${this.#height}`);
    const values = samples.flatMap((sample) => this.series.map(({ key }) => sample[key] ?? 0));
    const high = Math.max(this.least, ...values);
    const step = niceStep(high, 4);
    this.top = Math.ceil(high / step - 1e-9) * step;
    this.svg.replaceChildren(...this.#grid(step), ...this.series.flatMap((_, i) => this.#line(i)), this.cursor);
    const last = samples.at(-1);
    const words = this.series.map(({ name, key }) => `${name} ${this.#show(last?.[key], "unknown")}`);
    this.svg.setAttribute("aria-label", `${this.title}: ${words.join(", ")}`);
  }

  /** A value as text. A sample has none where the server did not answer, or has no such figure. */
  #show(value, missing) {
    return value === null || value === undefined ? missing : this.format(value);
  }

  #x(at) {
    return this.#width - RIGHT - ((this.#now - at) / this.span) * (this.#width - LEFT - RIGHT);
  }

  #y(value) {
    return this.#height - BOTTOM - (value / this.top) * (this.#height - BOTTOM - TOP);
  }

  #grid(step) {
    const out = [];
    for (let value = 0; value <= this.top * 1.001; value += step) {
      const y = this.#y(value);
      out.push(s("line", { class: "grid", x1: LEFT, x2: this.#width - RIGHT, y1: y, y2: y }));
      out.push(s("text", { x: LEFT - 6, y: y + 3.5, "text-anchor": "end" }, this.format(value)));
    }
    const minutes = this.span / 60_000;
    const every = this.#width < 420 ? 2 : 1;
    for (let m = 0; m <= minutes; m += every) {
      const anchor = m === 0 ? "end" : m === minutes ? "start" : "middle";
      out.push(
        s(
          "text",
          { x: this.#x(this.#now - m * 60_000), y: this.#height - 6, "text-anchor": anchor },
          m === 0 ? "now" : `−${m} min`,
        ),
      );
    }
    return out;
  }

  #line(i) {
    const { key } = this.series[i];
    const runs = [];
    let run = [];
    for (const sample of this.#samples) {
      if (sample[key] === null || sample[key] === undefined) {
        if (run.length > 0) runs.push(run);
        run = [];
      } else run.push(`${this.#x(sample.at).toFixed(1)},${this.#y(sample[key]).toFixed(1)}`);
    }
    if (run.length > 0) runs.push(run);
    const floor = this.#y(0).toFixed(1);
    return runs.flatMap((points) => {
      const line = s("path", { class: `line line${i}`, d: `M${points.join("L")}` });
      if (i > 0) return [line];
      const [first] = points[0].split(",");
      const [last] = points.at(-1).split(",");
      return [s("path", { class: "area line0", d: `M${first},${floor}L${points.join("L")}L${last},${floor}Z` }), line];
    });
  }

  #point(event) {
    const box = this.svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * this.#width;
    let nearest = null;
    for (const sample of this.#samples) {
      if (nearest === null || Math.abs(this.#x(sample.at) - x) < Math.abs(this.#x(nearest.at) - x)) nearest = sample;
    }
    if (nearest === null) return;
    const at = this.#x(nearest.at);
    this.cursor.setAttribute("x1", at);
    this.cursor.setAttribute("x2", at);
    this.cursor.setAttribute("y1", TOP);
    this.cursor.setAttribute("y2", this.#height - BOTTOM);
    this.cursor.setAttribute("visibility", "visible");
    const ago = Math.round((this.#now - nearest.at) / 1000);
    const words = this.series.map(({ name, key }) => `${name} ${this.#show(nearest[key], "–")}`);
    this.tip.textContent = `${ago === 0 ? "now" : `${ago} s ago`}: ${words.join(" · ")}`;
    this.tip.hidden = false;
  }

  #unpoint() {
    this.cursor.setAttribute("visibility", "hidden");
    this.tip.hidden = true;
  }
}
