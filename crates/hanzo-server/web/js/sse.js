// Server-sent events out of a stream of text, whatever the pieces it arrives in.

/** Feeds on text and gives whole events: `{ event, data }`. Comments, ids and retry times are left out. */
export class SseParser {
  #rest = "";
  #event = "";
  #data = [];

  /** The events that `text` completes. */
  push(text) {
    const events = [];
    this.#rest += text;
    let from = 0;
    for (;;) {
      const end = this.#lineEnd(from);
      if (!end) break;
      this.#line(this.#rest.slice(from, end.at), events);
      from = end.next;
    }
    this.#rest = this.#rest.slice(from);
    return events;
  }

  // A line ends with CR, LF or both; a CR at the very end may be the first half of both.
  #lineEnd(from) {
    for (let at = from; at < this.#rest.length; at += 1) {
      const c = this.#rest[at];
      if (c === "\n") return { at, next: at + 1 };
      if (c === "\r") {
        if (at + 1 === this.#rest.length) return null;
        return { at, next: this.#rest[at + 1] === "\n" ? at + 2 : at + 1 };
      }
    }
    return null;
  }

  #line(line, events) {
    if (line === "") {
      if (this.#data.length > 0) events.push({ event: this.#event || "message", data: this.#data.join("\n") });
      this.#event = "";
      this.#data = [];
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#event = value;
  }
}
