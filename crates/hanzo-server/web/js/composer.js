// Where a message is written: a field that grows, files that go with it, and the button that sends or stops.

import { byId, h } from "./dom.js";
import { icon } from "./icons.js";

const FILE_LIMIT = 256 * 1024;
const ALL_LIMIT = 1024 * 1024;

/** The text of a file, or an `Error`: too large, or no text. */
export async function readText(file) {
  if (file.size > FILE_LIMIT)
    throw new Error(`${file.name} has ${Math.ceil(file.size / 1024)} KiB; a file may have ${FILE_LIMIT / 1024}.`);
  const bytes = await file.arrayBuffer();
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error(`${file.name} is not UTF-8 text.`);
  }
  if (text.includes("\0")) throw new Error(`${file.name} is not a text file.`);
  return text.replaceAll("\r\n", "\n");
}

/** The form below the transcript. */
export class Composer {
  #files = [];

  constructor(chat, { trouble }) {
    this.chat = chat;
    this.trouble = trouble;
    this.field = byId("message");
    this.list = byId("files");
    this.button = byId("send");
    this.form = byId("composer");
    const picker = byId("file");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (chat.busy) chat.stop();
      else this.#send();
    });
    this.field.addEventListener("input", () => this.#fit());
    this.field.addEventListener("keydown", (event) => this.#key(event));
    byId("attach").addEventListener("click", () => picker.click());
    picker.addEventListener("change", () => {
      this.#attach([...picker.files]);
      picker.value = "";
    });
    this.#drops();
    chat.addEventListener("busy", () => this.#button());
    chat.addEventListener("open", () => this.#button());
    this.#button();
  }

  #key(event) {
    // While an input method composes, Enter takes its suggestion.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.chat.busy) this.#send();
  }

  #send() {
    const text = this.field.value;
    if (text.trim() === "" && this.#files.length === 0) return;
    const files = this.#files;
    this.set("");
    this.#files = [];
    this.#chips();
    this.chat.send(text, files);
  }

  /** Puts text into the field and the cursor behind it. */
  set(text) {
    this.field.value = text;
    this.#fit();
  }

  focus() {
    this.field.focus();
  }

  #fit() {
    this.field.style.blockSize = "auto";
    this.field.style.blockSize = `${this.field.scrollHeight}px`;
  }

  #button() {
    const { busy } = this.chat;
    this.button.replaceChildren(icon(busy ? "stop" : "send"));
    this.button.setAttribute("aria-label", busy ? "Stop the reply" : "Send");
    this.button.title = busy ? "Stop (Esc)" : "Send (Enter)";
    this.button.classList.toggle("stop", busy);
  }

  async #attach(files) {
    for (const file of files) {
      try {
        const text = await readText(file);
        const size = this.#files.reduce((sum, other) => sum + other.text.length, text.length);
        if (size > ALL_LIMIT) throw new Error(`${file.name}: all files together may have ${ALL_LIMIT / 1024} KiB.`);
        this.#files.push({ name: file.name, text });
      } catch (error) {
        this.trouble(error);
      }
    }
    this.#chips();
    this.focus();
  }

  #chips() {
    const chips = this.#files.map((file, i) => {
      const remove = () => {
        this.#files.splice(i, 1);
        this.#chips();
        this.focus();
      };
      return h(
        "li",
        null,
        icon("file"),
        h("span", null, file.name),
        h(
          "button",
          { class: "tiny", type: "button", "aria-label": `Leave out ${file.name}`, on: { click: remove } },
          icon("close"),
        ),
      );
    });
    this.list.replaceChildren(...chips);
  }

  #drops() {
    const over = (on) => document.body.classList.toggle("dropping", on);
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      over(true);
    });
    addEventListener("dragleave", (event) => event.relatedTarget === null && over(false));
    addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      over(false);
      this.#attach([...event.dataTransfer.files]);
    });
  }
}
