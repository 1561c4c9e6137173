// The messages of the shown conversation, and the page's first words while there are none.

import { announce, byId, h } from "./dom.js";
import { MessageView } from "./message.js";
import * as tree from "./tree.js";

const STARTS = [
  "Once upon a time, there was a little fox who",
  "Explain how a bicycle stays upright.",
  "Write a function that reverses the words of a sentence, in Python.",
  "What should I ask a model to find out how good it is?",
];
/** So near to the end counts as the end: the view follows what is written. */
const NEAR = 80;

/** Shows the path of a conversation and follows what is written. */
export class Transcript {
  #views = new Map();
  #shown = null;
  #follow = true;

  constructor(chat, { start }) {
    this.chat = chat;
    this.start = start;
    this.box = byId("transcript");
    this.scroller = byId("scroller");
    this.down = byId("to-end");
    this.scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.down.addEventListener("click", () => this.toEnd());
    // Whatever grows (text, an opened fold, the window), the end stays in sight if it was.
    new ResizeObserver(() => this.#resized()).observe(this.box);
    chat.addEventListener("open", () => this.draw());
    chat.addEventListener("path", () => this.draw());
    chat.addEventListener("models", () => this.draw());
    chat.addEventListener("node", ({ detail }) => this.#grown(detail));
  }

  draw() {
    const { current } = this.chat;
    if (this.#shown !== current) {
      this.#views.clear();
      this.#follow = true;
      this.#shown = current;
    }
    const path = tree.pathTo(current);
    const views = path.map((node) => this.#view(node));
    const ids = new Set(path.map(({ id }) => id));
    for (const id of this.#views.keys()) if (!ids.has(id)) this.#views.delete(id);
    const focus = this.#focus();
    this.box.replaceChildren(...(views.length > 0 ? views.map(({ el }) => el) : [this.#welcome()]));
    this.box.classList.toggle("empty", views.length === 0);
    focus();
    if (this.#follow) this.toEnd();
  }

  /** Remembers where the focus is; the function puts it back, or on what stands in its place (another version's button). */
  #focus() {
    const active = document.activeElement;
    const at = [...this.box.children].findIndex((el) => el.contains(active));
    return () => {
      if (at < 0) return;
      const place = this.box.children[at];
      const same = active.dataset.act ? place?.querySelector(`[data-act="${active.dataset.act}"]:enabled`) : null;
      (active.isConnected ? active : (same ?? place))?.focus({ preventScroll: true });
    };
  }

  #view(node) {
    let view = this.#views.get(node.id);
    if (view && view.node === node) view.draw();
    else {
      view = new MessageView(this.chat, this.chat.current, node);
      this.#views.set(node.id, view);
    }
    return view;
  }

  #welcome() {
    const model = this.chat.models.find(({ id }) => id === this.chat.model);
    const context = tree.contextOf(model);
    const starts = STARTS.map((text) =>
      h("li", null, h("button", { type: "button", on: { click: () => this.start(text) } }, text)),
    );
    return h(
      "section",
      { class: "welcome" },
      h("h2", null, model?.id ?? "hanzo"),
      h(
        "p",
        { class: "quiet" },
        model
          ? `Served from ${location.host}${context ? `, ${context.toLocaleString("en")} tokens of context` : ""}.`
          : "Looking for the server …",
      ),
      h("ul", null, starts),
    );
  }

  #grown(node) {
    const view = this.#views.get(node.id);
    if (!view || view.node !== node) return;
    view.grow();
    if (node.state !== "waiting" && node.state !== "writing") this.#ended(node);
  }

  #ended(node) {
    if (node.state === "failed") return; // The note is an alert of its own.
    const words = node.content.replace(/\s+/g, " ").slice(0, 2000);
    announce(node.state === "stopped" ? "Stopped." : words || "The reply is there.");
  }

  #resized() {
    if (this.#follow) this.toEnd();
    // The field below stands in line with the text, whatever room the scroll bar takes.
    byId("below").style.setProperty("--gutter", `${this.scroller.offsetWidth - this.scroller.clientWidth}px`);
  }

  #scrolled() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    this.#follow = scrollTop + clientHeight > scrollHeight - NEAR;
    this.down.hidden = this.#follow;
  }

  toEnd() {
    this.#follow = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  /** Moves the focus `step` messages on. */
  move(step) {
    const all = [...this.box.querySelectorAll(".message")];
    const at = all.indexOf(document.activeElement?.closest?.(".message"));
    const next = all[at < 0 ? all.length - 1 : Math.max(0, Math.min(all.length - 1, at + step))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }

  /** The last message of this role on the path. */
  last(role) {
    const node = tree.pathTo(this.chat.current).findLast((other) => other.role === role);
    return node ? this.#views.get(node.id) : null;
  }
}
