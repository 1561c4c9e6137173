// Shows Markdown: the tree of `block.js` as elements. All text becomes text nodes.

import { copyText, h } from "../dom.js";
import { highlight } from "../highlight.js";
import { icon } from "../icons.js";
import { MarkdownStream } from "./stream.js";

/** Deeper inline nesting than this is shown as plain text: the tree may be as deep as a stranger wants. */
const DEEPEST = 48;

/** An element that shows a growing Markdown text: `update(text)` touches only what changed. */
export class MarkdownView {
  #stream = new MarkdownStream();

  constructor(el) {
    this.el = el;
  }

  update(text) {
    const { keep, blocks } = this.#stream.update(text.replaceAll("\r\n", "\n"));
    while (this.el.childNodes.length > keep) this.el.lastChild.remove();
    this.el.append(...blocks.map(block));
  }
}

function block(node) {
  switch (node.t) {
    case "p":
      return h("p", null, inlines(node.c, 0));
    case "h":
      // The page has an h1 and each message an h2.
      return h(`h${Math.min(6, node.level + 2)}`, { class: `md-h${node.level}` }, inlines(node.c, 0));
    case "code":
      return code(node);
    case "quote":
      return h("blockquote", null, node.c.map(block));
    case "list":
      return list(node);
    case "table":
      return table(node);
    case "math":
      return h("pre", { class: "math" }, node.text);
    default:
      return h("hr");
  }
}

function code({ lang, text }) {
  const label = h("span", { class: "said" }, "Copy");
  const button = h("button", { class: "copy", type: "button", "aria-label": "Copy code" }, icon("copy"), label);
  button.addEventListener("click", async () => {
    label.textContent = (await copyText(text)) ? "Copied" : "Could not copy";
    setTimeout(() => {
      label.textContent = "Copy";
    }, 1600);
  });
  const pieces = highlight(text, lang).map(({ kind, text: piece }) =>
    kind ? h("span", { class: `hl-${kind}` }, piece) : piece,
  );
  return h(
    "figure",
    { class: "code" },
    h("figcaption", null, h("span", null, lang || "text"), button),
    // A region that scrolls must be reachable by keyboard.
    h("pre", { tabindex: 0, role: "region", "aria-label": `Code${lang ? `, ${lang}` : ""}` }, h("code", null, pieces)),
  );
}

function list({ start, tight, items }) {
  const props = { class: tight ? "tight" : null, start: start !== null && start !== 1 ? start : null };
  return h(
    start === null ? "ul" : "ol",
    props,
    items.map(({ task, c }) => {
      const box =
        task === null
          ? null
          : h("input", { type: "checkbox", checked: task, disabled: true, "aria-label": task ? "done" : "to do" });
      return h("li", { class: task === null ? null : "task" }, box, c.map(block));
    }),
  );
}

function table({ align, head, rows }) {
  const cell = (tag) => (content, i) =>
    h(tag, { class: align[i] ? `to-${align[i]}` : null, scope: tag === "th" ? "col" : null }, inlines(content, 0));
  return h(
    "div",
    { class: "table", tabindex: 0, role: "region", "aria-label": "Table" },
    h(
      "table",
      null,
      h("thead", null, h("tr", null, head.map(cell("th")))),
      h(
        "tbody",
        null,
        rows.map((row) => h("tr", null, row.map(cell("td")))),
      ),
    ),
  );
}

function inlines(nodes, depth) {
  return nodes.map((node) => (typeof node === "string" ? node : inline(node, depth)));
}

function inline(node, depth) {
  if (node.t === "br") return h("br");
  if (node.t === "code") return h("code", null, node.text);
  if (node.t === "math") return h("span", { class: "math" }, node.text);
  if (depth > DEEPEST) return plainText(node);
  const inside = inlines(node.c, depth + 1);
  if (node.t !== "a") return h(node.t, null, inside);
  return h("a", { href: node.href, title: node.href, target: "_blank", rel: "noopener noreferrer nofollow" }, inside);
}

/** The text of a node, without recursion. */
function plainText(node) {
  const out = [];
  const todo = [node];
  while (todo.length > 0) {
    const next = todo.pop();
    if (typeof next === "string") out.push(next);
    else if (next.t === "br") out.push("\n");
    else if (next.text !== undefined) out.push(next.text);
    else todo.push(...next.c.toReversed());
  }
  return out.join("");
}
