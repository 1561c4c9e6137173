// One message on the page: who says it, what it says, the figures in the margin, and what can be done with it.

import { copyText, h, perFrame } from "./dom.js";
import { icon } from "./icons.js";
import { MarkdownView } from "./markdown/dom.js";
import { tokenView } from "./tokens.js";
import * as tree from "./tree.js";

const seconds = (ms) => (ms < 10_000 ? `${(ms / 1000).toFixed(2)} s` : `${Math.round(ms / 1000)} s`);
const speed = (n) => (n < 100 ? n.toFixed(1) : Math.round(n).toString());
const grouped = (n) => n.toLocaleString("en").replaceAll(",", "\u202f");
const WHO = { user: "You", assistant: "Reply", tool: "Tool" };

/** The view of a message. `chat` does what its buttons ask for; `conversation` is where it stands. */
export class MessageView {
  #tokensShown = false;
  #editing = false;
  #kept = {};

  constructor(chat, conversation, node) {
    this.chat = chat;
    this.conversation = conversation;
    this.node = node;
    this.margin = h("dl", { class: "figures" });
    this.text = h("div", { class: "md" });
    this.markdown = new MarkdownView(this.text);
    this.body = h("div", { class: "body" });
    this.actions = h("div", { class: "actions", role: "group", "aria-label": "Message actions" });
    const who = h("h2", { class: "who" }, node.role === "tool" ? `Tool · ${node.name}` : WHO[node.role]);
    this.el = h(
      "article",
      { class: `message ${node.role}`, tabindex: -1, data: { id: node.id } },
      h("header", null, who, this.margin),
      this.body,
      this.actions,
    );
    this.grow = perFrame(() => this.draw());
    this.draw();
  }

  /** Shows the message as it is now. */
  draw() {
    const { node } = this;
    if (this.#editing) return;
    const writing = node.state === "waiting" || node.state === "writing";
    this.el.classList.toggle("writing", writing);
    this.el.setAttribute("aria-busy", String(writing));
    if (node.role === "assistant") this.#assistant(writing);
    else this.#plain();
    this.#figures();
    this.actions.replaceChildren(...(writing ? [] : this.#buttons()));
  }

  #plain() {
    this.#show(this.#once("plain", () => plainParts(this.node)));
  }

  #assistant(writing) {
    const { node } = this;
    const parts = [];
    if (node.reasoning) parts.push(this.#reasoning(writing));
    if (this.#tokensShown && node.tokens.length > 0) parts.push(tokenView(node.tokens));
    else if (node.content) {
      this.markdown.update(node.content);
      parts.push(this.text);
    }
    if (node.calls.length > 0) parts.push(this.#calls(writing));
    if (node.state === "waiting")
      parts.push(this.#once("waiting", () => h("p", { class: "pulse" }, "Waiting for the first token")));
    parts.push(...this.#notes());
    this.#show(parts);
  }

  // Only what differs is touched: a selection, an open fold or a half-typed result stays as it is.
  #show(parts) {
    const shown = this.body.childNodes;
    if (parts.length !== shown.length || parts.some((part, i) => shown[i] !== part))
      this.body.replaceChildren(...parts);
  }

  #once(name, make) {
    this.#kept[name] ??= make();
    return this.#kept[name];
  }

  #reasoning(writing) {
    const { node } = this;
    const kept = this.#once("reasoning", () => {
      const title = h("span", null);
      const inside = h("div", { class: "md" });
      return {
        title,
        view: new MarkdownView(inside),
        el: h("details", { class: "reasoning" }, h("summary", null, title), inside),
      };
    });
    const thinking = writing && node.content === "" && node.calls.length === 0;
    kept.title.textContent = thinking
      ? "Reasoning …"
      : `Reasoned${node.stats.reasoned ? ` for ${seconds(node.stats.reasoned)}` : ""}`;
    kept.el.classList.toggle("pulse", thinking);
    kept.view.update(node.reasoning);
    return kept.el;
  }

  #calls(writing) {
    const { node } = this;
    const answered = tree.children(this.conversation, node.id).some((child) => child.role === "tool");
    const key = JSON.stringify([node.calls, writing, answered]);
    if (this.#kept.callsKey === key) return this.#kept.calls;
    const results = [];
    const cards = node.calls.map((call, i) => {
      const result = h("textarea", {
        rows: 2,
        "aria-label": `Result of ${call.name}`,
        placeholder: "What the tool gives back",
      });
      results[i] = result;
      return h(
        "div",
        { class: "call" },
        h("p", null, icon("tool"), h("b", null, call.name || "…")),
        h("pre", { tabindex: 0 }, pretty(call.arguments)),
        writing || answered ? null : result,
      );
    });
    const send = h(
      "button",
      {
        class: "plain",
        type: "button",
        on: {
          click: () =>
            this.chat.answer(
              node,
              results.map((r) => r.value),
            ),
        },
      },
      "Send results",
    );
    this.#kept.callsKey = key;
    this.#kept.calls = h(
      "section",
      { class: "calls", "aria-label": "Tool calls" },
      cards,
      writing || answered ? null : send,
    );
    return this.#kept.calls;
  }

  /** What is worth a word beside the reply: why it ended, and what the server did differently from what was asked. */
  #notes() {
    const { node } = this;
    const key = JSON.stringify([node.state, node.finish, node.error, node.notes]);
    if (this.#kept.notesKey !== key) {
      this.#kept.notesKey = key;
      const words = [...(node.notes ?? []), endOf(node)].filter(Boolean);
      this.#kept.notes = words.map((text) => h("p", { class: "note" }, text));
      if (node.state === "failed") this.#kept.notes.push(failureNote(this.chat, node));
    }
    return this.#kept.notes;
  }

  #figures() {
    const { node } = this;
    const rows = [];
    const figure = (name, value, title) => rows.push(h("div", { title }, h("dt", null, name), h("dd", null, value)));
    if (node.role === "assistant") {
      const { stats } = node;
      if (node.model) figure("model", node.model, node.model);
      if (stats.speed) figure("tok/s", speed(stats.speed), "Tokens a second after the first, as the page saw them");
      if (stats.first !== undefined) figure("first", seconds(stats.first), "From sending to the first token");
      if (stats.count)
        figure(
          "tokens",
          grouped(stats.count),
          stats.reasoning ? `Of these ${stats.reasoning} of reasoning` : "Tokens of the reply",
        );
      if (stats.prompt !== undefined)
        figure("prompt", grouped(stats.prompt), "Tokens of the conversation before the reply");
      if (stats.cached) figure("cached", grouped(stats.cached), "Tokens of the prompt that were in the prefix cache");
    }
    this.margin.replaceChildren(...rows);
  }

  #buttons() {
    const { node, chat } = this;
    const button = (name, label, act, more) =>
      h(
        "button",
        {
          type: "button",
          class: "tiny",
          title: label,
          "aria-label": label,
          data: { act: name },
          on: { click: act },
          ...more,
        },
        icon(name),
      );
    const buttons = [];
    const all = tree.siblings(this.conversation, node);
    if (all.length > 1) {
      const at = all.indexOf(node);
      buttons.push(
        h(
          "span",
          { class: "versions" },
          button("left", "Earlier version", () => chat.choose(all[at - 1]), { disabled: at === 0 }),
          h("span", { "aria-label": `Version ${at + 1} of ${all.length}` }, `${at + 1}/${all.length}`),
          button("right", "Later version", () => chat.choose(all[at + 1]), { disabled: at === all.length - 1 }),
        ),
      );
    }
    buttons.push(this.#copyButton());
    if (node.role === "user") buttons.push(button("edit", "Edit and send again", () => this.edit()));
    if (node.role === "assistant") {
      buttons.push(button("again", "Make the reply again", () => chat.again(node)));
      if (node.tokens.length > 0) {
        const toggle = () => {
          this.#tokensShown = !this.#tokensShown;
          this.draw();
        };
        buttons.push(button("tokens", "Token probabilities", toggle, { "aria-pressed": String(this.#tokensShown) }));
      }
    }
    buttons.push(button("trash", "Delete this and what follows", () => chat.removeMessage(node)));
    return buttons;
  }

  #copyButton() {
    const button = h(
      "button",
      { type: "button", class: "tiny", title: "Copy", "aria-label": "Copy", data: { act: "copy" } },
      icon("copy"),
    );
    button.addEventListener("click", async () => {
      const done = await copyText(this.node.content);
      button.replaceChildren(icon(done ? "check" : "close"));
      setTimeout(() => button.replaceChildren(icon("copy")), 1600);
    });
    return button;
  }

  /** Turns a user's message into a field. */
  edit() {
    const { node, chat } = this;
    const area = h("textarea", { class: "editing", value: node.content, "aria-label": "Edit the message", rows: 3 });
    this.#editing = true;
    const back = () => {
      this.#editing = false;
      this.draw();
      this.el.focus();
    };
    const send = () => {
      if (area.value.trim() === "" && !node.attachments?.length) return;
      this.#editing = false;
      chat.edit(node, area.value);
    };
    area.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Escape") {
        event.stopPropagation();
        back();
      } else if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        send();
      }
    });
    this.body.replaceChildren(
      area,
      h(
        "div",
        { class: "row" },
        h("button", { class: "plain", type: "button", on: { click: back } }, "Cancel"),
        h("button", { class: "main", type: "button", on: { click: send } }, "Send"),
      ),
    );
    this.actions.replaceChildren();
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}

/** What a person typed is shown as typed, behind its files; what a tool gave, as source. */
function plainParts(node) {
  if (node.role === "tool") return [h("pre", { class: "result", tabindex: 0 }, node.content)];
  const files = (node.attachments ?? []).map(({ name, text }) => {
    const size = h("span", { class: "quiet" }, ` ${grouped(text.length)} characters`);
    return h(
      "details",
      { class: "attached" },
      h("summary", null, icon("file"), name, size),
      h("pre", { tabindex: 0 }, text),
    );
  });
  return [...files, h("p", { class: "typed" }, node.content)];
}

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

/** Why a reply ended, where that is not as expected. */
function endOf(node) {
  if (node.state === "stopped") return "Stopped.";
  if (node.state !== "done") return null;
  if (node.finish === "length") return "Cut off: the limit of tokens, or the end of the context, is reached.";
  if (node.finish === "content_filter") return "Ended by a filter.";
  return node.content || node.reasoning || node.calls.length > 0 ? null : "The model said nothing.";
}

const ADVICE = {
  gone: "Nothing is lost: send again when it is back.",
  broken: "What had arrived is kept.",
  context: "Start a new conversation, or delete or shorten earlier messages.",
  busy: "The server has as much to do as it takes on.",
  auth: "Give an API key, then try again.",
};

function failureNote(chat, node) {
  const { kind, message, retryAfter } = node.error;
  const advice = kind === "busy" && retryAfter ? `Try again in ${retryAfter} s.` : ADVICE[kind];
  const retry = h("button", { class: "plain", type: "button", on: { click: () => chat.again(node) } }, "Try again");
  return h(
    "div",
    { class: "failure", role: "alert", data: { kind } },
    h("p", null, message),
    advice ? h("p", { class: "quiet" }, advice) : null,
    kind === "context" ? null : retry,
  );
}
