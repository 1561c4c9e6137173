// Puts the page together: the parts, what belongs to none of them (dialogs, banner, theme, address), and the start.

import * as api from "./api.js";
import { Chat } from "./chat.js";
import { Composer } from "./composer.js";
import { announce, byId, copyText, h } from "./dom.js";
import { EngineView } from "./engine.js";
import { icon } from "./icons.js";
import { Keys } from "./keys.js";
import { Panel } from "./panel.js";
import { Sidebar } from "./sidebar.js";
import { Store } from "./store.js";
import { Transcript } from "./transcript.js";
import { contextOf, pathTo } from "./tree.js";

const RETRY_EVERY = 3000;

for (const el of document.querySelectorAll("[data-icon]")) el.prepend(icon(el.dataset.icon));

const store = await Store.open();
const chat = new Chat(store);
const transcript = new Transcript(chat, { start: (text) => start(text) });
const composer = new Composer(chat, { trouble });
const sidebar = new Sidebar(chat, { confirm: ask, trouble });
const panel = new Panel(chat);
const engine = new EngineView();
const picker = byId("model");

function start(text) {
  composer.set(text);
  composer.focus();
}

// Dialogs.

/** Asks; resolves to whether the answer was yes. */
function ask(question, more, yes) {
  const dialog = byId("ask");
  byId("ask-title").textContent = question;
  byId("ask-more").textContent = more;
  byId("ask-yes").textContent = yes;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

function askKey() {
  const dialog = byId("key-dialog");
  if (dialog.open) return;
  byId("key").value = api.apiKey.get();
  dialog.returnValue = "";
  dialog.showModal();
}

byId("key-dialog").addEventListener("close", (event) => {
  if (event.target.returnValue !== "yes") return;
  api.apiKey.set(byId("key").value.trim(), byId("key-keep").checked);
  connect();
});
byId("key-button").addEventListener("click", askKey);
byId("help-button").addEventListener("click", () => byId("help").showModal());
for (const dialog of document.querySelectorAll("dialog")) {
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}

// Trouble: a line above the composer; a missing key asks for it, a server that is gone is looked for.

const banner = byId("banner");
let looking = null;

function trouble(error, kind = "error") {
  if (error.kind === "auth") askKey();
  if (error.kind === "gone") lookForServer();
  // A reply that failed says so itself.
  if (error.kind && error.kind !== "gone") return;
  tell(error.message, kind);
}

function tell(words, kind) {
  byId("banner-text").textContent = words;
  banner.dataset.kind = kind;
  banner.hidden = false;
  if (kind === "note") setTimeout(() => tellDone(words), 6000);
}

function tellDone(words) {
  if (byId("banner-text").textContent === words) banner.hidden = true;
}

byId("banner-close").addEventListener("click", () => {
  banner.hidden = true;
});

function lookForServer() {
  if (looking) return;
  looking = setInterval(async () => {
    if (!(await api.alive())) return;
    clearInterval(looking);
    looking = null;
    tell("The server is back.", "note");
    connect();
  }, RETRY_EVERY);
}

chat.addEventListener("trouble", ({ detail }) => trouble(detail));

// Model and defaults.

async function connect() {
  try {
    await chat.loadModels();
  } catch (error) {
    if (error.kind) tell(error.message, "error");
    trouble(error);
    return;
  }
  if (!looking && banner.dataset.kind === "error") banner.hidden = true;
  if (chat.models.length === 0) tell("The server has no model loaded.", "error");
  panel.defaults(await api.props().catch(() => null));
}

function drawModels() {
  picker.replaceChildren(...chat.models.map(({ id }) => h("option", { value: id, selected: id === chat.model }, id)));
  picker.disabled = chat.models.length < 2;
}

/** How much of the model's context the conversation takes, as far as the last reply told. */
function drawRoom() {
  const stats = pathTo(chat.current).findLast((node) => node.stats?.prompt !== undefined)?.stats;
  const size = contextOf(chat.models.find(({ id }) => id === chat.model));
  const used = stats ? stats.prompt + (stats.completion ?? 0) : 0;
  byId("room").textContent =
    used > 0 && size ? `${used.toLocaleString("en")} of ${size.toLocaleString("en")} tokens` : "";
}

for (const type of ["models", "open", "path", "busy"]) chat.addEventListener(type, drawRoom);

picker.addEventListener("change", () => {
  chat.configure({ model: picker.value });
  transcript.draw();
});
for (const type of ["models", "open"]) chat.addEventListener(type, drawModels);

// The address tells what is shown: #/c/ID, #/engine, or nothing for a new conversation.

function address() {
  return Object.keys(chat.current.nodes).length > 0 ? `#/c/${chat.current.id}` : "#/";
}

async function route() {
  const onEngine = location.hash === "#/engine";
  document.body.dataset.view = onEngine ? "engine" : "chat";
  byId("engine-link").setAttribute("aria-current", onEngine ? "page" : "false");
  byId("chat-view").hidden = onEngine;
  byId("engine-view").hidden = !onEngine;
  closeDrawer();
  if (onEngine) {
    engine.show();
    document.title = "Engine · hanzo";
    return;
  }
  engine.hide();
  const id = /^#\/c\/(\w+)$/.exec(location.hash)?.[1];
  if (id && !(await chat.open(id))) {
    tell("That conversation is not in this browser.", "error");
    location.replace("#/");
  } else if (!id && Object.keys(chat.current.nodes).length > 0) chat.startNew();
  titled();
}

function titled() {
  const title = chat.current.title || "New conversation";
  byId("title").textContent = title;
  document.title = `${title} · hanzo`;
  if (document.body.dataset.view === "chat" && location.hash !== address()) history.replaceState(null, "", address());
}

addEventListener("hashchange", route);
for (const type of ["open", "path", "title"]) chat.addEventListener(type, titled);

function startNew() {
  chat.startNew();
  if (location.hash === "#/engine") {
    history.pushState(null, "", "#/");
    route();
  }
  closeDrawer();
  composer.focus();
}

byId("new").addEventListener("click", startNew);

// Drawer (phone), panel, theme.

function toggleClass(name, button) {
  const on = document.body.classList.toggle(name);
  button.setAttribute("aria-expanded", String(on));
  return on;
}

function closeDrawer() {
  document.body.classList.remove("drawer");
  byId("menu").setAttribute("aria-expanded", "false");
}

function togglePanel() {
  if (toggleClass("panel-open", byId("tune"))) panel.system.focus();
  else byId("tune").focus();
}

byId("menu").addEventListener("click", () => toggleClass("drawer", byId("menu")) && byId("search").focus());
byId("shade").addEventListener("click", () => {
  closeDrawer();
  document.body.classList.remove("panel-open");
});
byId("tune").addEventListener("click", togglePanel);
byId("panel-close").addEventListener("click", togglePanel);

const dark = matchMedia("(prefers-color-scheme: dark)");

/** Switches; what equals the system's preference is not kept, so that it is followed again. */
function toggleTheme() {
  const root = document.documentElement;
  const next = (root.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark" ? "light" : "dark";
  const chosen = next === (dark.matches ? "dark" : "light") ? null : next;
  if (chosen) root.dataset.theme = chosen;
  else delete root.dataset.theme;
  try {
    if (chosen) localStorage.setItem("hanzo.theme", chosen);
    else localStorage.removeItem("hanzo.theme");
  } catch {
    // It holds for this tab.
  }
  announce(next === "dark" ? "Dark" : "Light");
}

byId("theme").addEventListener("click", toggleTheme);

// Keyboard.

/** An action that has its place beside the conversation only. */
const inChat = (action) => () => (document.body.dataset.view === "chat" ? action() : false);

new Keys({
  stop() {
    if (document.body.classList.contains("panel-open") && byId("panel").contains(document.activeElement)) togglePanel();
    else if (document.body.classList.contains("drawer")) closeDrawer();
    else if (chat.busy) chat.stop();
    else return false;
  },
  write: inChat(() => composer.focus()),
  search() {
    document.body.classList.add("drawer");
    byId("search").focus();
  },
  start: startNew,
  next: inChat(() => transcript.move(1)),
  previous: inChat(() => transcript.move(-1)),
  edit: inChat(() => transcript.last("user")?.edit()),
  again: inChat(() => {
    const view = transcript.last("assistant");
    if (view) chat.again(view.node);
  }),
  copy: inChat(async () => {
    const view = transcript.last("assistant");
    if (view) announce((await copyText(view.node.content)) ? "Copied" : "Could not copy");
  }),
  panel: inChat(togglePanel),
  engine() {
    location.hash = document.body.dataset.view === "engine" ? address() : "#/engine";
  },
  theme: toggleTheme,
  help: () => byId("help").showModal(),
});

// The start.

if (!store.lasting)
  tell("This browser keeps nothing for this page: conversations are lost when the tab closes.", "error");
drawModels();
transcript.draw();
await sidebar.load();
await route();
if (document.body.dataset.view === "chat" && matchMedia("(pointer: fine)").matches) composer.focus();
document.documentElement.dataset.ready = "";
await connect();
