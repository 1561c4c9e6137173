// A conversation: a tree of messages, because a reply can be made again and a question asked differently without losing
// what was there. No DOM, no storage: plain data that survives JSON.
//
// Conversation: { id, title, named, created, updated, model, system, params, tools, nodes: { id: Node }, leaf }.
// Node: { id, parent, role: "user" | "assistant" | "tool", content, created } and for
//   user: attachments [{ name, text }]; tool: callId, name;
//   assistant: model, reasoning, calls [{ id, name, arguments }], state, finish, stats, tokens, error.

export const FORMAT = "hanzo-conversations-1";
const ROLES = ["user", "assistant", "tool"];
const TITLE_LENGTH = 60;

/** Ids need only be unique in this browser; `crypto.randomUUID` would need a secure context, which a LAN address is not. */
export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(36).padStart(2, "0")).join("");
}

/** An empty conversation that takes model, system prompt, sampling and tools from `like`. */
export function newConversation(like = {}) {
  const now = Date.now();
  return {
    id: newId(),
    title: "",
    named: false,
    created: now,
    updated: now,
    model: like.model ?? null,
    system: like.system ?? "",
    params: { ...like.params },
    tools: like.tools ?? "",
    nodes: {},
    leaf: null,
  };
}

/** Adds a message under `parent` (`null`: at the start) and makes it the end of the shown path. */
export function addNode(conversation, parent, node) {
  const whole = { id: newId(), parent, created: Date.now(), content: "", ...node };
  conversation.nodes[whole.id] = whole;
  conversation.leaf = whole.id;
  conversation.updated = whole.created;
  if (!conversation.named && conversation.title === "" && whole.role === "user") conversation.title = titleOf(whole);
  return whole;
}

/** A title out of the first words of a message. */
export function titleOf({ content, attachments }) {
  const text = content.replace(/\s+/g, " ").trim() || attachments?.[0]?.name || "";
  if (text.length <= TITLE_LENGTH) return text;
  const cut = text.slice(0, TITLE_LENGTH);
  return `${cut.slice(0, Math.max(cut.lastIndexOf(" "), TITLE_LENGTH - 15))}…`;
}

/** Tokens that a model of `/v1/models` can hold, where the server tells. */
export function contextOf(model) {
  return model?.max_model_len ?? model?.meta?.n_ctx ?? model?.context_length ?? null;
}

/** The messages from the first to `leaf`. */
export function pathTo(conversation, leaf = conversation.leaf) {
  const path = [];
  for (let node = conversation.nodes[leaf]; node; node = conversation.nodes[node.parent]) path.push(node);
  return path.reverse();
}

/** The messages that stand in the place of `node`, itself included, oldest first. */
export function siblings(conversation, node) {
  return children(conversation, node.parent).filter((other) => other.role === node.role);
}

/** The messages that follow `parent`, oldest first. */
export function children(conversation, parent) {
  return Object.values(conversation.nodes)
    .filter((node) => node.parent === parent)
    .sort((a, b) => a.created - b.created);
}

/** Shows the branch of `node`: the latest messages below it. */
export function show(conversation, node) {
  let last = node;
  for (let below = [node]; below.length > 0; below = children(conversation, last.id)) last = below[below.length - 1];
  conversation.leaf = last.id;
}

/** Removes `node` and all that follows it; what is shown then is a sibling's branch, or ends at the parent. */
export function removeBranch(conversation, node) {
  const doomed = [node.id];
  for (let i = 0; i < doomed.length; i += 1) doomed.push(...children(conversation, doomed[i]).map(({ id }) => id));
  const others = siblings(conversation, node).filter((other) => other.id !== node.id);
  for (const id of doomed) delete conversation.nodes[id];
  const next = others[others.length - 1] ?? null;
  if (next) show(conversation, next);
  else conversation.leaf = node.parent;
  conversation.updated = Date.now();
}

/** The text of a user's message as the model gets it: attached files first, each fenced and named. */
export function withAttachments({ content, attachments = [] }) {
  const files = attachments.map(({ name, text }) => {
    const ticks = Math.max(2, ...Array.from(text.matchAll(/`+/g), (run) => run[0].length)) + 1;
    const fence = "`".repeat(Math.min(ticks, 64));
    return `File \`${name.replaceAll("`", "'")}\`:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
  });
  return [...files, content].filter((part) => part !== "").join("\n\n");
}

/**
 * The conversation up to `leaf` as `/v1/chat/completions` takes it. Replies that say nothing (failed ones) are left out; the
 * user's messages around them become one, since many templates want the speakers to take turns.
 */
export function toMessages(conversation, leaf) {
  const messages = [];
  if (conversation.system.trim() !== "") messages.push({ role: "system", content: conversation.system });
  for (const node of pathTo(conversation, leaf)) {
    const before = messages.at(-1);
    if (node.role === "user" && before?.role === "user") before.content += `\n\n${withAttachments(node)}`;
    else if (node.role === "user") messages.push({ role: "user", content: withAttachments(node) });
    else if (node.role === "tool")
      messages.push({ role: "tool", tool_call_id: node.callId, name: node.name, content: node.content });
    else if (node.content !== "" || node.calls?.length > 0) messages.push(assistantMessage(node));
  }
  return messages;
}

function assistantMessage(node) {
  const message = { role: "assistant", content: node.content };
  if (node.reasoning) message.reasoning_content = node.reasoning;
  if (node.calls?.length > 0) {
    message.tool_calls = node.calls.map(({ id, name, arguments: args }) => ({
      id,
      type: "function",
      function: { name, arguments: args },
    }));
  }
  return message;
}

/** The file that exported conversations are. */
export function exportJson(conversations) {
  return `${JSON.stringify({ format: FORMAT, conversations }, null, 1)}\n`;
}

/** The conversations of an exported file, with new ids. Throws an `Error` that says what is wrong, and where. */
export function importJson(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON: ${error.message}`);
  }
  if (file?.format !== FORMAT)
    throw new Error(`This file is not an export of conversations (no "format": "${FORMAT}").`);
  if (!Array.isArray(file.conversations)) throw new Error('"conversations" is not a list.');
  return file.conversations.map((conversation, i) => checked(conversation, `conversations[${i}]`));
}

/** A copy of `from` that holds only what a conversation may, or an error. */
function checked(from, where) {
  const field = (object, name, type, missing, at) => {
    const value = object[name];
    if (value === undefined || value === null) return missing;
    if (typeof value !== type) throw new Error(`${at}.${name} is not a ${type}.`);
    return value;
  };
  if (typeof from !== "object" || from === null) throw new Error(`${where} is not a conversation.`);
  const out = newConversation();
  for (const name of ["title", "system", "tools"]) out[name] = field(from, name, "string", "", where);
  out.named = field(from, "named", "boolean", false, where);
  for (const name of ["created", "updated"]) out[name] = field(from, name, "number", out[name], where);
  out.model = field(from, "model", "string", null, where);
  out.params = plain(field(from, "params", "object", {}, where));
  const nodes = field(from, "nodes", "object", {}, where);
  for (const [id, node] of Object.entries(nodes)) out.nodes[id] = checkedNode(id, node, nodes, `${where}.nodes.${id}`);
  breakCycles(out, where);
  const leaf = field(from, "leaf", "string", null, where);
  if (leaf !== null && !Object.hasOwn(nodes, leaf)) throw new Error(`${where}.leaf names no message.`);
  out.leaf = leaf ?? children(out, null).at(-1)?.id ?? null;
  return out;
}

function checkedNode(id, node, nodes, where) {
  if (!/^\w{1,64}$/.test(id) || id === "__proto__") throw new Error(`${where}: not an id.`);
  if (typeof node !== "object" || node === null || !ROLES.includes(node.role))
    throw new Error(`${where}.role is none of ${ROLES.join(", ")}.`);
  const parent = node.parent ?? null;
  if (parent !== null && !(typeof parent === "string" && Object.hasOwn(nodes, parent)))
    throw new Error(`${where}.parent names no message.`);
  if (typeof node.content !== "string") throw new Error(`${where}.content is not a string.`);
  const strings = (list, names) =>
    (Array.isArray(list) ? list : []).map((item) =>
      Object.fromEntries(names.map((name) => [name, String(item?.[name] ?? "")])),
    );
  const out = { id, parent, role: node.role, content: node.content, created: Number(node.created) || 0 };
  if (node.role === "user") out.attachments = strings(node.attachments, ["name", "text"]);
  else if (node.role === "tool")
    Object.assign(out, { callId: String(node.callId ?? ""), name: String(node.name ?? "") });
  else {
    Object.assign(out, { state: "done", model: typeof node.model === "string" ? node.model : null });
    out.reasoning = typeof node.reasoning === "string" ? node.reasoning : "";
    out.calls = strings(node.calls, ["id", "name", "arguments"]);
    out.finish = typeof node.finish === "string" ? node.finish : null;
    out.stats = plain(node.stats ?? {});
    out.tokens = checkedTokens(node.tokens);
  }
  return out;
}

/** Tokens as `tokens.js` shows them: `[text, logprob, [[text, logprob], …]]`. */
function checkedTokens(tokens) {
  const pair = (p) => Array.isArray(p) && typeof p[0] === "string" && typeof p[1] === "number";
  if (!Array.isArray(tokens)) return [];
  return tokens
    .filter(pair)
    .map(([text, logprob, tops]) => [
      text,
      logprob,
      (Array.isArray(tops) ? tops : []).filter(pair).map(([t, l]) => [t, l]),
    ]);
}

/** Numbers, strings and lists of strings of an object, nothing else. */
function plain(object) {
  const fine = (v) =>
    typeof v === "number" || typeof v === "string" || (Array.isArray(v) && v.every((x) => typeof x === "string"));
  return Object.fromEntries(Object.entries(object ?? {}).filter(([k, v]) => k !== "__proto__" && fine(v)));
}

function breakCycles(conversation, where) {
  for (const start of Object.values(conversation.nodes)) {
    let steps = 0;
    for (let node = start; node; node = conversation.nodes[node.parent]) {
      steps += 1;
      if (steps > 10_000)
        throw new Error(`${where}: the messages form a circle, or more than 10 000 follow each other.`);
    }
  }
}
