// The token view of a reply: every token tinted by how unlikely it was, its alternatives on demand.

import { byId, h } from "./dom.js";

/** Five shades by probability; the reader's eye goes to the last. */
const SHADES = [0.9, 0.6, 0.3, 0.1];

const percent = (p) =>
  p >= 0.9995
    ? "100 %"
    : p >= 0.01
      ? `${(100 * p).toFixed(1)} %`
      : p >= 0.0001
        ? `${(100 * p).toFixed(3)} %`
        : "< 0.01 %";

/** A token's text with what cannot be seen made visible. */
function visible(text) {
  if (text === "") return "∅";
  return text
    .replaceAll("\n", "⏎")
    .replaceAll("\t", "⇥")
    .replace(/^ +| +$/g, (spaces) => "·".repeat(spaces.length));
}

/** The tokens of a reply as one paragraph; arrows move between them, hovering or focus shows the alternatives. */
export function tokenView(tokens) {
  const spans = tokens.map(([text, logprob], i) => {
    const p = Math.exp(logprob);
    const shade = SHADES.findIndex((least) => p >= least);
    return h(
      "span",
      {
        class: `tok s${shade < 0 ? SHADES.length : shade}`,
        tabindex: i === 0 ? 0 : -1,
        role: "button",
        "aria-label": `${visible(text)}, ${percent(p)}`,
        data: { i: String(i) },
      },
      text === "" ? "∅" : text.replaceAll("\n", "⏎\n"),
    );
  });
  const box = h("div", { class: "tokens", role: "group", "aria-label": "Tokens by probability" }, spans);
  const show = (span) => popover(span, tokens[Number(span.dataset.i)]);
  const token = (event) => event.target.closest?.(".tok");
  box.addEventListener("pointerover", (event) => token(event) && show(token(event)));
  box.addEventListener("pointerleave", hidePopover);
  box.addEventListener("click", (event) => token(event) && show(token(event)));
  box.addEventListener("focusin", (event) => token(event) && show(token(event)));
  box.addEventListener("focusout", hidePopover);
  box.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const from = token(event);
    const to = from && step ? spans[Number(from.dataset.i) + step] : null;
    if (event.key === "Escape") hidePopover();
    if (!to) return;
    event.preventDefault();
    from.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  });
  const shades = Array.from({ length: SHADES.length + 1 }, (_, i) => h("i", { class: `s${i}` }));
  return h("div", null, h("p", { class: "tokens-legend", "aria-hidden": "true" }, "likely", shades, "unlikely"), box);
}

function popover(span, [text, logprob, alternatives]) {
  const box = byId("alternatives");
  const rows = alternatives.length > 0 ? alternatives : [[text, logprob]];
  const chosenAmong = rows.some(([other]) => other === text);
  const all = chosenAmong ? rows : [...rows, [text, logprob]];
  box.replaceChildren(
    h("p", { class: "quiet" }, `log-probability ${logprob.toFixed(3)}`),
    h(
      "table",
      null,
      all.map(([other, l]) => {
        const bar = h("i", { class: "bar" });
        bar.style.inlineSize = `${Math.max(1, 100 * Math.exp(l))}%`;
        return h(
          "tr",
          { class: other === text ? "chosen" : null },
          h("th", { scope: "row" }, visible(other)),
          h("td", { class: "track" }, bar),
          h("td", null, percent(Math.exp(l))),
        );
      }),
    ),
  );
  box.hidden = false;
  const at = span.getClientRects()[0];
  const width = box.offsetWidth;
  const below = at.bottom + 6 + box.offsetHeight < innerHeight;
  box.style.insetInlineStart = `${Math.max(8, Math.min(at.left, innerWidth - width - 8))}px`;
  box.style.insetBlockStart = `${below ? at.bottom + 6 : at.top - box.offsetHeight - 6}px`;
}

function hidePopover() {
  byId("alternatives").hidden = true;
}
