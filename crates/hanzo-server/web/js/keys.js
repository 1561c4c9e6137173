// Keyboard shortcuts, in one table that the help sheet shows too.

import { byId, h } from "./dom.js";
import { preferences } from "./store.js";

const typing = (el) => el?.matches?.("input, textarea, select, [contenteditable]") ?? false;

/**
 * Listens for shortcuts. `actions`: by name, what a shortcut does. Single letters work while no field has the focus, and
 * can be switched off (people who speak to their machine type letters by accident).
 */
export class Keys {
  constructor(actions) {
    this.actions = actions;
    this.letters = preferences.read("letters", true);
    document.addEventListener("keydown", (event) => this.#key(event));
    const box = byId("letters");
    box.checked = this.letters;
    box.addEventListener("change", () => {
      this.letters = box.checked;
      preferences.write("letters", this.letters);
    });
    byId("shortcuts").append(
      ...SHORTCUTS.map(([keys, , words]) =>
        h(
          "div",
          null,
          h(
            "dt",
            null,
            keys.split(" ").map((key) => h("kbd", null, key)),
          ),
          h("dd", null, words),
        ),
      ),
    );
  }

  #key(event) {
    if (event.defaultPrevented || event.isComposing || document.querySelector("dialog:modal")) return;
    const name = nameOf(event);
    const found = SHORTCUTS.find(([keys, action]) => action && keys === name);
    if (!found) return;
    const single = name.length === 1;
    if (single && (!this.letters || typing(event.target))) return;
    if (this.actions[found[1]]() === false) return;
    event.preventDefault();
  }
}

function nameOf(event) {
  if (event.key === "Escape") return "Esc";
  if ((event.ctrlKey || event.metaKey) && event.shiftKey) return `Ctrl ⇧ ${event.key.toUpperCase()}`;
  if (event.ctrlKey || event.metaKey) return `Ctrl ${event.key.toUpperCase()}`;
  return event.altKey ? "" : event.key;
}

// Keys as shown, the action (none: the field's own doing), what it does.
const SHORTCUTS = [
  ["Enter", null, "Send"],
  ["⇧ Enter", null, "New line"],
  ["Esc", "stop", "Stop the reply"],
  ["/", "write", "Go to the message field"],
  ["Ctrl K", "search", "Find a conversation"],
  ["n", "start", "New conversation"],
  ["j", "next", "Next message"],
  ["k", "previous", "Previous message"],
  ["e", "edit", "Edit your last message"],
  ["r", "again", "Make the last reply again"],
  ["c", "copy", "Copy the last reply"],
  ["s", "panel", "Settings of the conversation"],
  ["g", "engine", "Engine, and back"],
  ["t", "theme", "Light or dark"],
  ["?", "help", "This sheet"],
];
