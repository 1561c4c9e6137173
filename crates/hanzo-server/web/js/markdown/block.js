// Block Markdown to a tree: what chat models write, read leniently. Raw HTML, indented code, setext headings and reference
// links are not read: they stay text.
//
// A block is `{ t, … }`: `p` {c}, `h` {level, c}, `code` {lang, text, closed}, `quote` {c}, `list` {start, tight, items:
// [{task, c}]}, `table` {align, head, rows}, `math` {text}, `hr`. Inline content is that of `inline.js`.

import { parseInline } from "./inline.js";

const DEEPEST = 12;
const FORMULA_LINES = 64;
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]|$)/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)/;

/** The blocks of `source`, each with `from` and `to`, its place in it. */
export function parseBlocks(source) {
  const lines = source.split("\n");
  const starts = [0];
  for (const line of lines) starts.push(starts[starts.length - 1] + line.length + 1);
  return new Reader(lines, 0).blocks().map(({ block, first, end }) => ({
    ...block,
    from: starts[first],
    to: Math.min(starts[end], source.length),
  }));
}

class Reader {
  constructor(lines, depth) {
    this.lines = lines.map(expandTabs);
    this.depth = depth;
    this.i = 0;
  }

  blocks() {
    const out = [];
    while (this.i < this.lines.length) {
      if (blank(this.lines[this.i])) {
        this.i += 1;
        continue;
      }
      const first = this.i;
      out.push({ block: this.next(), first, end: this.i });
    }
    return out;
  }

  next() {
    const line = this.lines[this.i];
    const fence = FENCE.exec(line);
    if (fence) return this.code(fence);
    if (HEADING.test(line)) return this.heading(line);
    if (RULE.test(line)) {
      this.i += 1;
      return { t: "hr" };
    }
    if (this.depth < DEEPEST && QUOTE.test(line)) return this.quote();
    if (this.depth < DEEPEST && ITEM.test(line)) return this.list();
    const math = this.math(line);
    if (math) return math;
    if (this.tableStarts(this.i)) return this.table();
    return this.paragraph();
  }

  code([line, fence, info]) {
    const indent = indentOf(line);
    const text = [];
    let closed = false;
    for (this.i += 1; this.i < this.lines.length; this.i += 1) {
      const next = this.lines[this.i];
      const end = /^ {0,3}(`{3,}|~{3,})[ ]*$/.exec(next);
      if (end && end[1][0] === fence[0] && end[1].length >= fence.length) {
        closed = true;
        this.i += 1;
        break;
      }
      text.push(next.slice(Math.min(indent, indentOf(next))));
    }
    return {
      t: "code",
      lang: info
        .trim()
        .split(/[\s{,]/, 1)[0]
        .toLowerCase(),
      text: text.join("\n"),
      closed,
    };
  }

  heading(line) {
    this.i += 1;
    const text = line.trim();
    const level = HEADING.exec(line)[1].length;
    let inside = text.slice(level).trim();
    const trailing = inside.length - inside.replace(/#+$/, "").length;
    if (trailing === inside.length) inside = "";
    else if (trailing > 0 && inside[inside.length - trailing - 1] === " ")
      inside = inside.slice(0, -trailing).trimEnd();
    return { t: "h", level, c: parseInline(inside) };
  }

  quote() {
    const inside = [];
    while (this.i < this.lines.length && QUOTE.test(this.lines[this.i])) {
      inside.push(this.lines[this.i].replace(QUOTE, ""));
      this.i += 1;
    }
    return { t: "quote", c: this.inner(inside) };
  }

  inner(lines) {
    return new Reader(lines, this.depth + 1).blocks().map(({ block }) => block);
  }

  list() {
    const [, , marker] = ITEM.exec(this.lines[this.i]);
    const kind = marker.slice(-1);
    const ordered = marker.length > 1;
    const items = [];
    let tight = true;
    while (this.i < this.lines.length) {
      const found = ITEM.exec(this.lines[this.i]);
      if (!found || found[2].slice(-1) !== kind || found[2].length > 1 !== ordered || RULE.test(this.lines[this.i]))
        break;
      const { lines, loose } = this.item(found);
      const task = /^\[([ xX])\] /.exec(lines[0]);
      if (task) lines[0] = lines[0].slice(4);
      items.push({ task: task ? task[1] !== " " : null, c: this.inner(lines) });
      const before = this.i;
      while (this.i < this.lines.length && blank(this.lines[this.i])) this.i += 1;
      const goesOn = this.i < this.lines.length && ITEM.exec(this.lines[this.i])?.[2].slice(-1) === kind;
      if (!goesOn) {
        this.i = before;
        tight &&= !loose;
        break;
      }
      tight &&= !loose && before === this.i;
    }
    return { t: "list", start: ordered ? Number.parseInt(marker, 10) : null, tight, items };
  }

  /** The lines of one item, without their indent. Models indent nested lines by two, three or four: two are enough. */
  item([all, lead, marker, spaces]) {
    const width = lead.length + marker.length + (spaces.length > 4 || spaces.length === 0 ? 1 : spaces.length);
    const enough = Math.min(width, lead.length + 2);
    const lines = [this.lines[this.i].slice(Math.min(width, all.length))];
    let loose = false;
    let fenced = null;
    for (this.i += 1; this.i < this.lines.length; this.i += 1) {
      const line = this.lines[this.i];
      if (blank(line)) {
        const next = this.nextText(this.i);
        if (next === null || indentOf(this.lines[next]) < enough) break;
        loose ||= fenced === null;
        for (; this.i < next; this.i += 1) lines.push("");
        this.i -= 1;
        continue;
      }
      const indent = indentOf(line);
      if (indent < enough) {
        // A paragraph may go on without indent; anything that starts a block may not.
        if (fenced !== null || blank(lines[lines.length - 1]) || this.interrupts(line) || this.tableStarts(this.i))
          break;
      }
      const text = line.slice(Math.min(indent, width));
      const fence = FENCE.exec(text) ?? /^ {0,3}(`{3,}|~{3,}) *$/.exec(text);
      if (fence) fenced = fenced === null ? fence[1][0] : fenced === fence[1][0] ? null : fenced;
      lines.push(text);
    }
    return { lines, loose };
  }

  nextText(from) {
    let i = from;
    while (i < this.lines.length && blank(this.lines[i])) i += 1;
    return i < this.lines.length ? i : null;
  }

  math(line) {
    const open = /^ {0,3}(\$\$|\\\[)/.exec(line)?.[1];
    if (!open) return null;
    const close = open === "$$" ? "$$" : "\\]";
    const text = [];
    const end = Math.min(this.lines.length, this.i + FORMULA_LINES);
    for (let i = this.i; i < end && !blank(this.lines[i]); i += 1) {
      const here = this.lines[i].trim();
      text.push(here);
      const ends = here.endsWith(close) && (i > this.i || here.length >= 2 * open.length);
      if (ends) {
        this.i = i + 1;
        return { t: "math", text: text.join("\n") };
      }
      if (here.indexOf(close, i === this.i ? open.length : 0) >= 0) return null;
    }
    return null;
  }

  tableStarts(i) {
    const next = this.lines[i + 1];
    const line = this.lines[i];
    if (next === undefined || !line.includes("|") || !next.includes("-") || !/^[-:| ]+$/.test(next)) return false;
    const marks = cells(next);
    return marks.every((mark) => /^:?-+:?$/.test(mark)) && marks.length === cells(line).length;
  }

  table() {
    const head = cells(this.lines[this.i]).map(parseInline);
    const align = cells(this.lines[this.i + 1]).map((mark) => {
      const left = mark.startsWith(":");
      const right = mark.endsWith(":");
      return left && right ? "center" : right ? "right" : left ? "left" : null;
    });
    const rows = [];
    for (this.i += 2; this.i < this.lines.length; this.i += 1) {
      const line = this.lines[this.i];
      if (blank(line) || !line.includes("|") || this.interrupts(line)) break;
      const row = cells(line).map(parseInline).slice(0, head.length);
      while (row.length < head.length) row.push([]);
      rows.push(row);
    }
    return { t: "table", align, head, rows };
  }

  paragraph() {
    const text = [this.lines[this.i]];
    for (this.i += 1; this.i < this.lines.length; this.i += 1) {
      const line = this.lines[this.i];
      if (blank(line) || this.interrupts(line) || this.tableStarts(this.i)) break;
      text.push(line);
    }
    return {
      t: "p",
      c: parseInline(
        text
          .map((line) => line.replace(/^ +/, ""))
          .join("\n")
          .trimEnd(),
      ),
    };
  }

  /** Whether `line` starts a block where a paragraph could go on. */
  interrupts(line) {
    if (FENCE.test(line) || HEADING.test(line) || RULE.test(line)) return true;
    if (this.depth >= DEEPEST) return false;
    const item = ITEM.exec(line);
    return QUOTE.test(line) || (item !== null && item[3] !== "");
  }
}

const blank = (line) => line.trim() === "";
const indentOf = (line) => line.length - line.trimStart().length;

/** Leading tabs as four spaces: the only place where they matter. */
function expandTabs(line) {
  return line.replace(/^[ \t]+/, (lead) => lead.replaceAll("\t", "    "));
}

/** The cells of a table row; `\|` is a bar in the text, and so is one between backticks. */
function cells(line) {
  const out = [];
  let cell = "";
  let ticks = false;
  const row = line.trim();
  const lastTick = row.lastIndexOf("`");
  for (let i = row.startsWith("|") ? 1 : 0; i < row.length; i += 1) {
    const c = row[i];
    if (c === "\\" && row[i + 1] === "|") {
      cell += "|";
      i += 1;
    } else if (c === "|" && !(ticks && lastTick > i)) {
      out.push(cell.trim());
      cell = "";
      ticks = false;
    } else {
      if (c === "`") ticks = !ticks;
      cell += c;
    }
  }
  if (cell.trim() !== "" || out.length === 0 || !row.endsWith("|")) out.push(cell.trim());
  return out;
}
