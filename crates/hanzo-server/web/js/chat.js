// What the page does with conversations: sends, stops, makes again, edits, keeps. It holds the state and tells of changes by
// events; `message.js` and the others show them.
//
// Events: `list` (headings changed), `open` (another conversation is shown), `path` (its messages changed), `node` (one
// message grew; detail: the node), `busy` (a reply began or ended), `trouble` (detail: an ApiError or Error).

import * as api from "./api.js";
import { readTools, requestBody } from "./params.js";
import { Reply } from "./reply.js";
import { preferences } from "./store.js";
import * as tree from "./tree.js";

/** How often a reply that is being written is kept, in milliseconds. */
const KEEP_EVERY = 1500;

export class Chat extends EventTarget {
  #running = new Map();
  #removed = new Set();

  constructor(store) {
    super();
    this.store = store;
    this.models = [];
    this.current = tree.newConversation(preferences.read("last", {}));
    this.logprobs = preferences.read("logprobs", false);
    store.addEventListener("change", ({ detail }) => this.#changedElsewhere(detail));
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  /** Whether a reply of the shown conversation is being written. */
  get busy() {
    return this.#running.has(this.current.id);
  }

  /** Whether any conversation with this id is being replied to. */
  isBusy(id) {
    return this.#running.has(id);
  }

  /** The model that the next reply comes from: the conversation's if it is served, else the first. */
  get model() {
    const ids = this.models.map(({ id }) => id);
    return ids.includes(this.current.model) ? this.current.model : (ids[0] ?? this.current.model);
  }

  async loadModels() {
    this.models = await api.models();
    this.#tell("models");
  }

  startNew() {
    this.current = tree.newConversation({ ...preferences.read("last", {}), model: this.current.model });
    this.#tell("open");
  }

  async open(id) {
    if (id === this.current.id) return true;
    const running = this.#running.get(id);
    const conversation = running?.conversation ?? (await this.store.get(id));
    if (!conversation) return false;
    if (!running) recover(conversation);
    this.current = conversation;
    this.#tell("open");
    return true;
  }

  async keep(conversation = this.current) {
    if (Object.keys(conversation.nodes).length === 0 || this.#removed.has(conversation.id)) return;
    try {
      await this.store.put(conversation);
    } catch (error) {
      this.#tell(
        "trouble",
        new Error(`The conversation could not be kept in the browser: ${error?.message ?? "no room"}`),
      );
    }
    this.#tell("list");
  }

  /** Sends a message at the end of the conversation. */
  async send(content, attachments) {
    tree.addNode(this.current, this.current.leaf, { role: "user", content, attachments });
    await this.reply(this.current.leaf);
  }

  /** Sends a message again, differently: a branch beside the old one. */
  async edit(node, content) {
    tree.addNode(this.current, node.parent, { role: "user", content, attachments: node.attachments });
    await this.reply(this.current.leaf);
  }

  /** Another reply in the place of `node`. */
  async again(node) {
    await this.reply(node.parent);
  }

  /** Answers the calls of a reply and lets the model go on. `results`: one text a call. */
  async answer(node, results) {
    let parent = node.id;
    for (const [i, { id, name }] of node.calls.entries()) {
      parent = tree.addNode(this.current, parent, { role: "tool", callId: id, name, content: results[i] }).id;
    }
    await this.reply(parent);
  }

  /** Lets the model write after the message `parent`. */
  async reply(parent) {
    const conversation = this.current;
    // A reply that is still being written makes room for the one that is asked for now.
    const earlier = this.#running.get(conversation.id);
    earlier?.controller.abort();
    await earlier?.ended;
    let body;
    try {
      const tools = readTools(conversation.tools);
      const messages = tree.toMessages(conversation, parent);
      body = requestBody({ model: this.model, messages, params: conversation.params, tools, logprobs: this.logprobs });
    } catch (error) {
      this.#tell("path");
      this.#tell("trouble", error);
      return;
    }
    const node = tree.addNode(conversation, parent, { role: "assistant", model: body.model });
    const controller = new AbortController();
    const reply = new Reply(node);
    const ended = this.#receive(reply, body, controller, conversation);
    this.#running.set(conversation.id, { conversation, controller, ended });
    this.#tell("path");
    this.#tell("busy");
    await this.keep(conversation);
    await ended;
    await this.keep(conversation);
  }

  async #receive(reply, body, controller, conversation) {
    let kept = performance.now();
    try {
      for await (const chunk of api.chat(body, controller.signal)) {
        reply.take(chunk);
        this.#tell("node", reply.node);
        if (performance.now() - kept > KEEP_EVERY) {
          kept = performance.now();
          this.keep(conversation);
        }
      }
      reply.end("done");
    } catch (error) {
      if (controller.signal.aborted) reply.end("stopped");
      else {
        reply.end("failed", error);
        this.#tell("trouble", error);
      }
    }
    this.#running.delete(conversation.id);
    this.#tell("node", reply.node);
    this.#tell("busy");
  }

  stop() {
    this.#running.get(this.current.id)?.controller.abort();
  }

  /** Shows the branch of another message in the place of one. */
  async choose(node) {
    tree.show(this.current, node);
    this.#tell("path");
    await this.keep();
  }

  async removeMessage(node) {
    tree.removeBranch(this.current, node);
    this.#tell("path");
    await this.keep();
    if (Object.keys(this.current.nodes).length === 0) await this.remove(this.current.id);
  }

  async rename(id, title) {
    const conversation =
      id === this.current.id ? this.current : (this.#running.get(id)?.conversation ?? (await this.store.get(id)));
    if (!conversation) return;
    conversation.title = title;
    conversation.named = true;
    await this.keep(conversation);
    if (conversation === this.current) this.#tell("title");
  }

  async remove(id) {
    this.#removed.add(id);
    this.#running.get(id)?.controller.abort();
    await this.store.remove(id);
    if (id === this.current.id) this.startNew();
    this.#tell("list");
  }

  /** Changes settings of the shown conversation; new ones start with the same. */
  async configure(change) {
    Object.assign(this.current, change);
    const { model, system, params, tools } = this.current;
    preferences.write("last", { model, system, params, tools });
    await this.keep();
  }

  setLogprobs(on) {
    this.logprobs = on;
    preferences.write("logprobs", on);
    this.#tell("logprobs");
  }

  /** Takes in an exported file; gives how many conversations it held. */
  async import(text) {
    const conversations = tree.importJson(text);
    for (const conversation of conversations) await this.store.put(conversation);
    this.#tell("list");
    return conversations.length;
  }

  async #changedElsewhere(id) {
    this.#tell("list");
    if (id !== this.current.id || this.busy) return;
    const conversation = await this.store.get(id);
    if (!conversation) this.startNew();
    else {
      this.current = conversation;
      this.#tell("path");
    }
  }
}

/** A reply that was being written when its page went away will not go on. */
function recover(conversation) {
  for (const node of Object.values(conversation.nodes)) {
    if (node.state === "waiting" || node.state === "writing") node.state = "stopped";
  }
}
