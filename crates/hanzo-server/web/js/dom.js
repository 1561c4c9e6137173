// Building DOM without markup: text becomes text nodes, so nothing that a model or a user wrote is ever parsed as HTML.

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "selected", "indeterminate"]);

/**
 * An element. `props`: `class`, `on` (listeners by event), `data` (data-* by name), DOM properties, and attributes; a
 * value of `null`, `undefined` or `false` leaves the attribute out. Children: nodes, strings, arrays of them; empty ones
 * are skipped.
 */
export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined) continue;
    if (name === "class") el.className = value;
    else if (name === "on") for (const [type, fn] of Object.entries(value)) el.addEventListener(type, fn);
    else if (name === "data") Object.assign(el.dataset, value);
    else if (PROPERTIES.has(name)) el[name] = value;
    else if (value !== false) el.setAttribute(name, value === true ? "" : String(value));
  }
  append(el, children);
  return el;
}

function append(el, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(el, child);
    else if (child !== null && child !== undefined && child !== false && child !== "") el.append(child);
  }
}

/** The element of the document with this id, which the page's own markup is known to have. */
export const byId = (id) => document.getElementById(id);

/** Calls `fn` at most once a frame, however often the returned function is called. */
export function perFrame(fn) {
  let pending = false;
  return () => {
    if (pending) return;
    pending = true;
    // A hidden tab has no frames; a reply that ends there must still be shown when the tab comes back.
    const later = document.hidden ? (f) => setTimeout(f, 250) : requestAnimationFrame;
    later(() => {
      pending = false;
      fn();
    });
  };
}

/** Puts text on the clipboard; resolves to whether that worked (it needs a secure context or a user gesture). */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "unseen", value: text, "aria-hidden": "true" });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** Says something to screen readers without moving the focus. */
export function announce(text) {
  const region = byId("announcer");
  region.textContent = "";
  // A region that changes twice within one task is read once or not at all.
  setTimeout(() => {
    region.textContent = text;
  }, 60);
}

/** Offers text as a file. */
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
