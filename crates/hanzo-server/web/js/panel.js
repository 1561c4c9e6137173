// The panel of a conversation's settings: system prompt, sampling, tools, token probabilities.

import { byId, h } from "./dom.js";
import { PARAMS, readParam, readTools, showParam } from "./params.js";

/** The panel. `defaults` are the server's, by parameter; they stand in the empty fields. */
export class Panel {
  #fields = new Map();

  constructor(chat) {
    this.chat = chat;
    this.system = byId("system");
    this.tools = byId("tools");
    this.logprobs = byId("logprobs");
    byId("params").append(...PARAMS.map((param) => this.#row(param)));
    this.system.addEventListener("change", () => chat.configure({ system: this.system.value }));
    this.tools.addEventListener("change", () => this.#toolsChanged());
    this.logprobs.addEventListener("change", () => chat.setLogprobs(this.logprobs.checked));
    byId("reset").addEventListener("click", () => {
      chat.configure({ params: {} });
      this.draw();
    });
    chat.addEventListener("open", () => this.draw());
    this.draw();
  }

  #row(param) {
    const id = `p-${param.key}`;
    const props = { id, "aria-describedby": `${id}-hint` };
    let field;
    if (param.kind === "choice")
      field = h(
        "select",
        props,
        h("option", { value: "" }, "default"),
        param.choices.map((choice) => h("option", { value: choice }, choice)),
      );
    else if (param.kind === "lines") field = h("textarea", { ...props, rows: 2 });
    else
      field = h("input", {
        ...props,
        inputmode: param.kind === "integer" ? "numeric" : "decimal",
        placeholder: "default",
        autocomplete: "off",
      });
    const hint = h("small", { id: `${id}-hint` }, param.hint);
    field.addEventListener("change", () => this.#changed(param, field, hint));
    if (field.tagName === "INPUT") field.addEventListener("keydown", (event) => this.#step(event, param, field));
    this.#fields.set(param.key, { param, field, hint });
    return h("div", { class: "param" }, h("label", { for: id }, param.label), field, hint);
  }

  #changed(param, field, hint) {
    const { value, error } = readParam(param, field.value);
    field.setAttribute("aria-invalid", String(error !== undefined));
    hint.textContent = error ? `${error} Not used.` : param.hint;
    const params = { ...this.chat.current.params };
    delete params[param.key];
    if (value !== undefined) params[param.key] = value;
    this.chat.configure({ params });
  }

  // Arrow keys step, as in a number field, which would throw away what it cannot read.
  #step(event, param, field) {
    const direction = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!direction) return;
    event.preventDefault();
    const now = Number(field.value === "" ? field.placeholder : field.value);
    const next = Math.min(
      param.max,
      Math.max(param.min, (Number.isFinite(now) ? now : param.min) + direction * param.step),
    );
    field.value = String(Number(next.toFixed(6)));
    field.dispatchEvent(new Event("change"));
  }

  #toolsChanged() {
    let error = null;
    try {
      readTools(this.tools.value);
    } catch (e) {
      error = e.message;
    }
    this.tools.setAttribute("aria-invalid", String(error !== null));
    byId("tools-hint").textContent = error ?? "JSON: a list of functions. Calls are shown; you give their results.";
    this.chat.configure({ tools: this.tools.value });
  }

  /** Takes the server's defaults out of `/props`. */
  defaults(props) {
    const settings = props?.default_generation_settings?.params ?? props?.default_generation_settings ?? {};
    for (const { param, field } of this.#fields.values()) {
      const value = settings[param.from ?? param.key] ?? settings[param.key];
      const known = typeof value === "number" && !(param.min > value);
      if (field.tagName === "INPUT") field.placeholder = known ? String(Number(value.toFixed(4))) : "default";
    }
  }

  draw() {
    const { current } = this.chat;
    this.system.value = current.system;
    this.tools.value = current.tools;
    this.logprobs.checked = this.chat.logprobs;
    for (const { param, field, hint } of this.#fields.values()) {
      field.value = showParam(param, current.params[param.key]);
      field.setAttribute("aria-invalid", "false");
      hint.textContent = param.hint;
    }
  }
}
