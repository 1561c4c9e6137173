// Inline Markdown to a tree: emphasis by CommonMark's delimiter rules, code, links, strikes, breaks, math as source.
//
// A node is a string or `{ t, … }`: `code` {text}, `math` {text}, `em`/`strong`/`del` {c}, `a` {href, c}, `br`.
// Nothing here knows the DOM; raw HTML stays text. Work is linear in the text but for bounded look-ahead.

const PUNCTUATION = /[\p{P}\p{S}]/u;
const SPACE = /\s/u;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const ENTITIES = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  nbsp: "\u00a0",
  hellip: "…",
  mdash: "—",
  ndash: "–",
};
const LINK_LIMIT = 2048;
const TITLE_LIMIT = 512;
const NESTED_LINKS = 32;

/** The href to use for a link of the text, or `null` where it may not be followed: only the web and mail are. */
export function safeHref(href) {
  return /^(?:https?:\/\/|mailto:)[^\s\p{Cc}]+$/iu.test(href) ? href : null;
}

/** The inline nodes of `text`. */
export function parseInline(text) {
  return new Inline(text).run();
}

class Inline {
  constructor(text) {
    this.text = text;
    this.at = 0;
    // Items before grouping: strings, nodes, delimiter runs, bracket openers.
    this.items = [];
    this.brackets = [];
    this.unclosedTicks = new Set();
    this.unclosedMath = new Set();
  }

  run() {
    const { text } = this;
    const special = /[\\`*_~[\]!<&$\n]|https?:\/\//g;
    while (this.at < text.length) {
      special.lastIndex = this.at;
      const found = special.exec(text);
      if (!found) {
        this.push(text.slice(this.at));
        break;
      }
      if (found.index > this.at) this.push(text.slice(this.at, found.index));
      this.at = found.index;
      this.special(found[0]);
    }
    return group(this.items);
  }

  push(item) {
    this.items.push(item);
  }

  /** Takes `length` characters as they are. */
  literal(length) {
    this.push(this.text.slice(this.at, this.at + length));
    this.at += length;
  }

  special(c) {
    if (c === "\\") this.backslash();
    else if (c === "`") this.ticks();
    else if (c === "*" || c === "_" || c === "~") this.delimiters(c);
    else if (c === "[") this.open(1, false);
    else if (c === "!") this.text[this.at + 1] === "[" ? this.open(2, true) : this.literal(1);
    else if (c === "]") this.close();
    else if (c === "<") this.angle();
    else if (c === "&") this.entity();
    else if (c === "$") this.dollar();
    else if (c === "\n") this.newline();
    else this.bareUrl();
  }

  backslash() {
    const next = this.text[this.at + 1];
    if (next === "\n") {
      this.push({ t: "br" });
      this.at += 2;
    } else if (next === "(" || next === "[") {
      if (!this.math(next === "(" ? "\\(" : "\\[", next === "(" ? "\\)" : "\\]")) this.escaped(next);
    } else if (next !== undefined && ESCAPABLE.test(next)) {
      this.escaped(next);
    } else {
      this.literal(1);
    }
  }

  escaped(c) {
    this.push(c);
    this.at += 2;
  }

  /** Source between `open` and `close`, kept as written: emphasis inside a formula is not emphasis. */
  math(open, close) {
    if (this.unclosedMath.has(close)) return false;
    const end = this.text.indexOf(close, this.at + open.length);
    if (end < 0) {
      this.unclosedMath.add(close);
      return false;
    }
    if (end === this.at + open.length) return false;
    this.push({ t: "math", text: this.text.slice(this.at, end + close.length) });
    this.at = end + close.length;
    return true;
  }

  dollar() {
    const { text, at } = this;
    if (text[at + 1] === "$") {
      if (!this.math("$$", "$$")) this.literal(2);
      return;
    }
    // `$x$`, but not prices: no space inside the dollars, no digit after the closing one.
    const end = text.indexOf("$", at + 1);
    const inside = end < 0 || end - at > 256 ? "" : text.slice(at + 1, end);
    if (inside !== "" && !/^\s|\s$|\n/.test(inside) && !/[\w$]/.test(text[end + 1] ?? "")) {
      this.push({ t: "math", text: text.slice(at, end + 1) });
      this.at = end + 1;
    } else {
      this.literal(1);
    }
  }

  ticks() {
    const { text, at } = this;
    let length = 1;
    while (text[at + length] === "`") length += 1;
    const end = this.unclosedTicks.has(length) ? -1 : this.closingTicks(at + length, length);
    if (end < 0) {
      this.unclosedTicks.add(length);
      this.literal(length);
      return;
    }
    let code = text.slice(at + length, end).replaceAll("\n", " ");
    if (code.length > 2 && code.startsWith(" ") && code.endsWith(" ") && code.trim() !== "") code = code.slice(1, -1);
    this.push({ t: "code", text: code });
    this.at = end + length;
  }

  closingTicks(from, length) {
    for (let i = this.text.indexOf("`", from); i >= 0;) {
      let run = 1;
      while (this.text[i + run] === "`") run += 1;
      if (run === length) return i;
      i = this.text.indexOf("`", i + run);
    }
    return -1;
  }

  delimiters(c) {
    const { text, at } = this;
    let length = 1;
    while (text[at + length] === c) length += 1;
    if (c === "~" && length !== 2) {
      this.literal(length);
      return;
    }
    const before = at === 0 ? " " : text[at - 1];
    const after = text[at + length] ?? " ";
    const left = !SPACE.test(after) && (!PUNCTUATION.test(after) || SPACE.test(before) || PUNCTUATION.test(before));
    const right = !SPACE.test(before) && (!PUNCTUATION.test(before) || SPACE.test(after) || PUNCTUATION.test(after));
    const under = c === "_";
    this.push({
      t: "delim",
      c,
      length,
      original: length,
      opens: under ? left && (!right || PUNCTUATION.test(before)) : left,
      closes: under ? right && (!left || PUNCTUATION.test(after)) : right,
    });
    this.at += length;
  }

  open(length, image) {
    // Far-away openers are given up: nesting that deep is no text, and grouping would repeat for every level.
    if (this.brackets.length === NESTED_LINKS) this.brackets.shift();
    this.brackets.push({ index: this.items.length, image, active: true });
    this.literal(length);
  }

  close() {
    const opener = this.brackets.pop();
    const link = opener?.active ? this.destination(this.at + 1) : null;
    if (!link) {
      this.literal(1);
      return;
    }
    const inside = group(this.items.splice(opener.index).slice(1));
    const href = safeHref(link.href);
    // An image is a link to it: the page loads nothing from elsewhere. A link that may not be followed shows where it leads.
    const label = inside.length === 0 ? [link.href] : inside;
    if (href) this.push({ t: "a", href, c: label });
    else this.items.push(...inside, ` (${link.href})`);
    if (!opener.image) for (const earlier of this.brackets) earlier.active = false;
    this.at = link.end;
  }

  /** `(href "title")` at `from`, or `null`. */
  destination(from) {
    const { text } = this;
    if (text[from] !== "(") return null;
    let i = skipSpace(text, from + 1);
    let href = "";
    if (text[i] === "<") {
      const end = text.slice(i, i + LINK_LIMIT).search(/[>\n]/);
      if (end < 0 || text[i + end] !== ">") return null;
      href = text.slice(i + 1, i + end);
      i += end + 1;
    } else {
      let depth = 0;
      const start = i;
      for (; i < text.length && i - start < LINK_LIMIT; i += 1) {
        const c = text[i];
        if (SPACE.test(c)) break;
        if (c === "(") depth += 1;
        else if (c === ")" && depth === 0) break;
        else if (c === ")") depth -= 1;
        if (depth > NESTED_LINKS) return null;
      }
      if (depth !== 0 || i - start >= LINK_LIMIT) return null;
      href = text.slice(start, i);
    }
    i = skipSpace(text, i);
    if (text[i] === '"' || text[i] === "'") {
      const end = text.slice(i + 1, i + 1 + TITLE_LIMIT).indexOf(text[i]);
      if (end < 0) return null;
      i = skipSpace(text, i + end + 2);
    }
    return text[i] === ")" ? { href, end: i + 1 } : null;
  }

  angle() {
    const rest = this.text.slice(this.at, this.at + LINK_LIMIT);
    const lineBreak = /^<br\s{0,3}\/?>/i.exec(rest);
    if (lineBreak) {
      this.push({ t: "br" });
      this.at += lineBreak[0].length;
      return;
    }
    const auto = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/i.exec(rest);
    if (auto && safeHref(auto[1])) {
      this.push({ t: "a", href: auto[1], c: [auto[1]] });
      this.at += auto[0].length;
      return;
    }
    this.literal(1);
  }

  bareUrl() {
    const { text, at } = this;
    const before = at === 0 ? " " : text[at - 1];
    let url = /^https?:\/\/[^\s<>"`]*/.exec(text.slice(at, at + LINK_LIMIT))[0];
    url = url.replace(/[*_~]{1,4}$/, "");
    let spare = count(url, ")") - count(url, "(");
    for (let last = url.at(-1); (last === ")" && spare > 0) || ".,:;!?'*_~]".includes(last); last = url.at(-1)) {
      if (last === ")") spare -= 1;
      url = url.slice(0, -1);
    }
    if (/\w/.test(before) || !/^https?:\/\/[\w[]/.test(url)) {
      this.literal(/^https?:\/\//.exec(text.slice(at, at + 8))[0].length);
      return;
    }
    // Inside the text of a link, an address is part of that text.
    this.push(
      this.brackets.some((b) => b.active && !b.image) && this.closesAsLink(at + url.length)
        ? url
        : { t: "a", href: url, c: [url] },
    );
    this.at += url.length;
  }

  closesAsLink(from) {
    return this.text.slice(from, from + 2) === "](";
  }

  entity() {
    const found = /^&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([a-z]{2,6}));/.exec(this.text.slice(this.at, this.at + 12));
    if (!found) {
      this.literal(1);
      return;
    }
    const code = found[1] ? Number(found[1]) : found[2] ? Number.parseInt(found[2], 16) : null;
    const value =
      code === null ? ENTITIES[found[3]] : code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : undefined;
    if (value === undefined) {
      this.literal(1);
      return;
    }
    this.push(value);
    this.at += found[0].length;
  }

  newline() {
    const last = this.items[this.items.length - 1];
    const hard = typeof last === "string" && last.endsWith("  ");
    if (typeof last === "string") this.items[this.items.length - 1] = last.trimEnd();
    this.push(hard ? { t: "br" } : "\n");
    this.at += 1;
    while (this.text[this.at] === " ") this.at += 1;
  }
}

function skipSpace(text, from) {
  let i = from;
  while (i < text.length && i - from < 64 && SPACE.test(text[i])) i += 1;
  return i;
}

function count(text, c) {
  return text.split(c).length - 1;
}

/** Turns delimiter runs into emphasis (CommonMark's algorithm, openers kept on a stack) and joins neighbouring strings. */
function group(items) {
  const out = [];
  const openers = [];
  // Below this height of the stack no opener can match a closer of this kind: keeps the search linear.
  const bottoms = new Map();
  for (const item of items) {
    if (item.t !== "delim") {
      out.push(item);
      continue;
    }
    const run = item;
    while (run.closes && run.length > 0) {
      const kind = `${run.c}${run.opens}${run.original % 3}`;
      const at = findOpener(openers, run, bottoms.get(kind) ?? 0);
      if (at < 0) {
        bottoms.set(kind, openers.length);
        break;
      }
      const opener = openers[at];
      openers.length = at + 1;
      const used = run.c === "~" || (run.length >= 2 && opener.run.length >= 2) ? 2 : 1;
      const inside = join(out.splice(opener.at + 1));
      const t = run.c === "~" ? "del" : used === 2 ? "strong" : "em";
      out.push({ t, c: inside });
      opener.run.length -= used;
      run.length -= used;
      if (opener.run.length === 0) {
        openers.pop();
        out.splice(opener.at, 1);
      }
      for (const [k, v] of bottoms) if (v > openers.length) bottoms.set(k, openers.length);
    }
    if (run.length === 0) continue;
    if (run.opens) openers.push({ run, at: out.length });
    out.push(run);
  }
  return join(out);
}

function findOpener(openers, run, bottom) {
  for (let i = openers.length - 1; i >= bottom; i -= 1) {
    const { run: opener } = openers[i];
    if (opener.c !== run.c) continue;
    const oddMatch =
      (opener.closes || run.opens) &&
      (opener.original + run.original) % 3 === 0 &&
      (opener.original % 3 !== 0 || run.original % 3 !== 0);
    if (run.c === "~" || !oddMatch) return i;
  }
  return -1;
}

function join(items) {
  const out = [];
  let text = [];
  for (const item of items) {
    if (typeof item === "string") text.push(item);
    else if (item.t === "delim") text.push(item.c.repeat(item.length));
    else {
      if (text.length > 0) out.push(text.join(""));
      text = [];
      out.push(item);
    }
  }
  if (text.length > 0) out.push(text.join(""));
  return out.filter((item) => item !== "");
}
