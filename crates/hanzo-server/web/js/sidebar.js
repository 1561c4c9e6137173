// The list of conversations: find, open, rename, delete, export, import.

import { byId, download, h } from "./dom.js";
import { icon } from "./icons.js";
import { exportJson } from "./tree.js";

const DAY = 86_400_000;

/** Under which heading a time stands. */
export function ageOf(time, now = Date.now()) {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  if (time >= midnight) return "Today";
  if (time >= midnight - DAY) return "Yesterday";
  if (time >= midnight - 7 * DAY) return "This week";
  return new Date(time).toLocaleDateString("en", { month: "long", year: "numeric" });
}

/** The sidebar. `confirm` asks and resolves to yes or no; `trouble` shows an error or a note. */
export class Sidebar {
  #heads = [];
  #renaming = null;

  constructor(chat, { confirm, trouble }) {
    Object.assign(this, { chat, confirm, trouble });
    this.nav = byId("conversations");
    this.search = byId("search");
    this.search.addEventListener("input", () => this.draw());
    byId("export").addEventListener("click", () => this.#export());
    byId("import").addEventListener("click", () => byId("import-file").click());
    byId("import-file").addEventListener("change", (event) => this.#import(event.target));
    byId("delete-all").addEventListener("click", () => this.#deleteAll());
    for (const type of ["list", "open", "busy", "title"]) chat.addEventListener(type, () => this.load());
  }

  async load() {
    this.#heads = await this.chat.store.list();
    if (this.#renaming === null) this.draw();
  }

  draw() {
    const wanted = this.search.value.trim().toLowerCase();
    const heads = this.#heads.filter(({ title }) => title.toLowerCase().includes(wanted));
    const groups = new Map();
    for (const head of heads) {
      const age = ageOf(head.updated);
      groups.set(age, [...(groups.get(age) ?? []), head]);
    }
    const focused = document.activeElement?.closest?.("[data-conversation]")?.dataset.conversation;
    this.nav.replaceChildren(
      ...[...groups].map(([age, items]) =>
        h(
          "section",
          null,
          h("h3", null, age),
          h(
            "ul",
            null,
            items.map((head) => this.#item(head)),
          ),
        ),
      ),
      heads.length === 0 ? h("p", { class: "quiet" }, wanted ? "None has such a title." : "No conversations yet.") : "",
    );
    if (focused) this.nav.querySelector(`[data-conversation="${CSS.escape(focused)}"] a`)?.focus();
  }

  #item({ id, title }) {
    const name = title || "Untitled";
    const current = id === this.chat.current.id;
    const link = h("a", { href: `#/c/${id}`, "aria-current": current ? "page" : null, title: name }, name);
    const tiny = (picture, label, act) =>
      h(
        "button",
        { class: "tiny", type: "button", "aria-label": `${label} “${name}”`, title: label, on: { click: act } },
        icon(picture),
      );
    return h(
      "li",
      { class: this.chat.isBusy(id) ? "busy" : null, data: { conversation: id } },
      link,
      tiny("edit", "Rename", () => this.#rename(id, title)),
      tiny("export", "Export", () => this.#export(id)),
      tiny("trash", "Delete", () => this.#delete(id, name)),
    );
  }

  #rename(id, title) {
    const item = this.nav.querySelector(`[data-conversation="${CSS.escape(id)}"]`);
    const field = h("input", { value: title, "aria-label": "New title", maxlength: 200 });
    this.#renaming = id;
    let done = false;
    const finish = async (save) => {
      if (done) return;
      done = true;
      this.#renaming = null;
      if (save && field.value.trim() !== "") await this.chat.rename(id, field.value.trim());
      await this.load();
      this.nav.querySelector(`[data-conversation="${CSS.escape(id)}"] a`)?.focus();
    };
    field.addEventListener("keydown", (event) => {
      if (event.isComposing || (event.key !== "Enter" && event.key !== "Escape")) return;
      event.stopPropagation();
      finish(event.key === "Enter");
    });
    field.addEventListener("blur", () => finish(true));
    item.replaceChildren(field);
    field.select();
  }

  async #delete(id, name) {
    if (await this.confirm(`Delete “${name}”?`, "It cannot be brought back.", "Delete")) await this.chat.remove(id);
  }

  async #deleteAll() {
    const n = this.#heads.length;
    if (
      n === 0 ||
      !(await this.confirm(
        `Delete all ${n} conversations?`,
        "They cannot be brought back. Export them first to keep them.",
        "Delete all",
      ))
    )
      return;
    for (const { id } of this.#heads) await this.chat.remove(id);
  }

  async #export(id) {
    const conversations = id ? [await this.chat.store.get(id)].filter(Boolean) : await this.chat.store.all();
    const date = new Date().toISOString().slice(0, 10);
    download(
      `hanzo-${id ? "conversation" : "conversations"}-${date}.json`,
      "application/json",
      exportJson(conversations),
    );
  }

  async #import(input) {
    for (const file of input.files) {
      try {
        const n = await this.chat.import(await file.text());
        this.trouble(new Error(`${n} conversation${n === 1 ? "" : "s"} imported.`), "note");
      } catch (error) {
        this.trouble(new Error(`${file.name}: ${error.message}`));
      }
    }
    input.value = "";
  }
}
