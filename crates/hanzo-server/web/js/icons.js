// Line icons on a 16-unit grid, built as SVG elements.

const SVG = "http://www.w3.org/2000/svg";

const PATHS = {
  send: "M8 13V3M4 7l4-4 4 4",
  stop: "M4.5 4.5h7v7h-7z",
  plus: "M8 3v10M3 8h10",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  check: "M3 8.5 6.5 12 13 4.5",
  edit: "M3 13l.7-3L10.5 3.2l2.3 2.3L6 12.3 3 13z",
  again: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.5 9h6l.5-9",
  left: "M10 3 5 8l5 5",
  right: "M6 3l5 5-5 5",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  tune: "M2.5 5h6M12.5 5h1M2.5 11h1M7.5 11h6M10.5 3v4M5.5 9v4",
  engine: "M2 9h2.5l2-5 3 8.5 2-5.5 1 2H14",
  theme: "M13 9.5A5.5 5.5 0 1 1 6.5 3 4.5 4.5 0 0 0 13 9.5z",
  help: "M6 6a2 2 0 1 1 2.7 1.9c-.5.2-.7.6-.7 1.1v.5M8 12v.2",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  attach: "M12.5 7.5 7.6 12.4a3 3 0 0 1-4.2-4.2L8.7 2.9a2 2 0 0 1 2.8 2.8L6.4 10.8a.9.9 0 0 1-1.3-1.3l4.6-4.6",
  close: "M4 4l8 8M12 4l-8 8",
  export: "M8 10V2.5M5 5.5l3-3 3 3M3 10v3.5h10V10",
  import: "M8 2.5V10M5 7l3 3 3-3M3 10v3.5h10V10",
  tokens: "M2.5 5h4M8.5 5h5M2.5 8h2M6.5 8h7M2.5 11h6M10.5 11h3",
  tool: "M9.5 6.5 3 13M9 3.5a3 3 0 0 1 4-.5l-2 2 .5 1.5 1.5.5 2-2",
};

/** The icon of this name, hidden from screen readers: the button around it carries the name. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}
