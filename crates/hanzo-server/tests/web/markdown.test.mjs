import assert from "node:assert/strict";
import { test } from "node:test";

import { parseBlocks } from "../../web/js/markdown/block.js";
import { parseInline, safeHref } from "../../web/js/markdown/inline.js";
import { MarkdownStream } from "../../web/js/markdown/stream.js";

const blocks = (source) => parseBlocks(source).map(({ from, to, ...block }) => block);
const p = (...c) => ({ t: "p", c });
const em = (...c) => ({ t: "em", c });
const strong = (...c) => ({ t: "strong", c });
const code = (text) => ({ t: "code", text });
const a = (href, ...c) => ({ t: "a", href, c });

test("emphasis follows CommonMark's rules", () => {
  assert.deepEqual(parseInline("a *b* **c** ***d*** e"), ["a ", em("b"), " ", strong("c"), " ", em(strong("d")), " e"]);
  assert.deepEqual(parseInline("snake_case_name and _so_"), ["snake_case_name and ", em("so")]);
  assert.deepEqual(parseInline("2 * 3 * 4"), ["2 * 3 * 4"]);
  assert.deepEqual(parseInline("**bold *both***"), [strong("bold ", em("both"))]);
  assert.deepEqual(parseInline("*foo**bar*"), [em("foo**bar")]);
  assert.deepEqual(parseInline("**open"), ["**open"]);
  assert.deepEqual(parseInline("*a _b* c_"), [em("a _b"), " c_"]);
  assert.deepEqual(parseInline("~~gone~~ ~kept~"), [{ t: "del", c: ["gone"] }, " ~kept~"]);
  assert.deepEqual(parseInline("**重要**です"), [strong("重要"), "です"]);
});

test("code spans win over everything inside them", () => {
  assert.deepEqual(parseInline("`*a*` and `` b`c ``"), [code("*a*"), " and ", code("b`c")]);
  assert.deepEqual(parseInline("a ` b"), ["a ` b"]);
  assert.deepEqual(parseInline("*a `b* c`"), ["*a ", code("b* c")]);
});

test("links lead to the web or to mail, and nowhere else", () => {
  assert.deepEqual(parseInline('[a *b*](https://x.org/y "t")'), [a("https://x.org/y", "a ", em("b"))]);
  assert.deepEqual(parseInline("[x](javascript:alert(1))"), ["x (javascript:alert(1))"]);
  assert.deepEqual(parseInline("[x](<java\tscript:alert(1)>)"), ["x (java\tscript:alert(1))"]);
  assert.deepEqual(parseInline("![alt](https://x.org/a.png)"), [a("https://x.org/a.png", "alt")]);
  assert.deepEqual(parseInline("<https://x.org> <mailto:a@b.c>"), [
    a("https://x.org", "https://x.org"),
    " ",
    a("mailto:a@b.c", "mailto:a@b.c"),
  ]);
  assert.deepEqual(parseInline("see https://x.org/a_(b), then."), [
    "see ",
    a("https://x.org/a_(b)", "https://x.org/a_(b)"),
    ", then.",
  ]);
  assert.deepEqual(parseInline("(https://x.org)"), ["(", a("https://x.org", "https://x.org"), ")"]);
  assert.deepEqual(parseInline("[not a link] (x)"), ["[not a link] (x)"]);
  for (const bad of [
    "javascript:alert(1)",
    " https://x",
    "data:text/html,x",
    "vbscript:x",
    "//x.org",
    "https://a\u0000b",
    "java\nscript:x",
    "blob:https://x",
  ]) {
    assert.equal(safeHref(bad), null, bad);
  }
  assert.equal(safeHref("HTTPS://x.org"), "HTTPS://x.org");
});

test("HTML is text; entities and breaks are read", () => {
  assert.deepEqual(parseInline("<script>alert(1)</script> <img src=x onerror=alert(1)>"), [
    "<script>alert(1)</script> <img src=x onerror=alert(1)>",
  ]);
  assert.deepEqual(parseInline("&lt;b&gt; &amp; &#65;&#x42; &nosuch; &#0;"), ["<b> & AB &nosuch; &#0;"]);
  assert.deepEqual(parseInline("a<br>b<br/>c  \nd\ne\\\nf"), [
    "a",
    { t: "br" },
    "b",
    { t: "br" },
    "c",
    { t: "br" },
    "d\ne",
    { t: "br" },
    "f",
  ]);
  assert.deepEqual(parseInline("\\*a\\* \\q"), ["*a* \\q"]);
});

test("formulas keep their source, prices are no formulas", () => {
  assert.deepEqual(parseInline("\\(a_1 * b_1\\) and $x_1$"), [
    { t: "math", text: "\\(a_1 * b_1\\)" },
    " and ",
    { t: "math", text: "$x_1$" },
  ]);
  assert.deepEqual(parseInline("costs $5 or $6"), ["costs $5 or $6"]);
  assert.deepEqual(blocks("$$\na_1\n$$\nb"), [{ t: "math", text: "$$\na_1\n$$" }, p("b")]);
  assert.deepEqual(blocks("\\[ x \\]"), [{ t: "math", text: "\\[ x \\]" }]);
});

test("blocks", () => {
  assert.deepEqual(blocks("# A #\n## B\ntext\n---\n***"), [
    { t: "h", level: 1, c: ["A"] },
    { t: "h", level: 2, c: ["B"] },
    p("text"),
    { t: "hr" },
    { t: "hr" },
  ]);
  assert.deepEqual(blocks("#no\n\n# "), [p("#no"), { t: "h", level: 1, c: [] }]);
  assert.deepEqual(blocks("> a\n> > b\n\nc"), [{ t: "quote", c: [p("a"), { t: "quote", c: [p("b")] }] }, p("c")]);
  assert.deepEqual(blocks("a\nb\n\n  c"), [p("a\nb"), p("c")]);
});

test("fences", () => {
  assert.deepEqual(blocks("```Rust,ignore\nfn a() {}\n\n# x\n```\nb"), [
    { t: "code", lang: "rust", text: "fn a() {}\n\n# x", closed: true },
    p("b"),
  ]);
  assert.deepEqual(blocks("~~~\n```\n~~~"), [{ t: "code", lang: "", text: "```", closed: true }]);
  assert.deepEqual(blocks("````md\n```\nx\n```\n````"), [{ t: "code", lang: "md", text: "```\nx\n```", closed: true }]);
  assert.deepEqual(blocks("```py\nopen"), [{ t: "code", lang: "py", text: "open", closed: false }]);
});

test("lists, as models write them", () => {
  const list = (start, tight, ...items) => ({ t: "list", start, tight, items });
  const item = (...c) => ({ task: null, c });
  assert.deepEqual(blocks("- a\n- b\n  - c\n- d"), [
    list(null, true, item(p("a")), item(p("b"), list(null, true, item(p("c")))), item(p("d"))),
  ]);
  assert.deepEqual(blocks("3. a\n\n   more\n4. b"), [list(3, false, item(p("a"), p("more")), item(p("b")))]);
  assert.deepEqual(blocks("1. a\n  - b\n2. c"), [
    list(1, true, item(p("a"), list(null, true, item(p("b")))), item(p("c"))),
  ]);
  assert.deepEqual(blocks("1. a\n   ```js\n   x\n\n   y\n   ```\n2. b"), [
    list(1, true, item(p("a"), { t: "code", lang: "js", text: "x\n\ny", closed: true }), item(p("b"))),
  ]);
  assert.deepEqual(blocks("- [ ] a\n- [x] b"), [
    list(null, true, { task: false, c: [p("a")] }, { task: true, c: [p("b")] }),
  ]);
  assert.deepEqual(blocks("- a\nlazy\n\nout"), [list(null, true, item(p("a\nlazy"))), p("out")]);
  assert.deepEqual(blocks("text\n- a"), [p("text"), list(null, true, item(p("a")))]);
  assert.deepEqual(blocks("- a\n* b"), [list(null, true, item(p("a"))), list(null, true, item(p("b")))]);
  assert.deepEqual(blocks("**Bold**\n-x"), [p(strong("Bold"), "\n-x")]);
});

test("tables", () => {
  assert.deepEqual(blocks("Here:\n| a | b |\n|:--|--:|\n| `x|y` | \\| |\n| 1 |\nend"), [
    p("Here:"),
    {
      t: "table",
      align: ["left", "right"],
      head: [["a"], ["b"]],
      rows: [
        [[code("x|y")], ["|"]],
        [["1"], []],
      ],
    },
    p("end"),
  ]);
  assert.deepEqual(blocks("a | b\nc | d"), [p("a | b\nc | d")]);
});

// The rest: properties, on texts made of the pieces that matter.

function random(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const PIECES = [
  "a",
  "word ",
  " ",
  "\n",
  "\n\n",
  "*",
  "**",
  "_",
  "`",
  "```",
  "```js\n",
  "~~",
  "[",
  "](",
  "](https://x.org)",
  ")",
  "!",
  "<br>",
  "<b>",
  "- ",
  "1. ",
  "  ",
  "    ",
  "> ",
  "#",
  "## ",
  "|",
  "\n|---|---|\n",
  "---",
  "$",
  "$$",
  "\\",
  "\\(",
  "\\]",
  "&amp;",
  "é",
  "😀",
  "\t",
  "- [x] ",
  "https://x.org/",
];

function text(next, length) {
  let out = "";
  for (let i = 0; i < length; i += 1) out += PIECES[Math.floor(next() * PIECES.length)];
  return out;
}

test("reading a growing text gives what reading it whole gives", () => {
  const next = random(7);
  for (let round = 0; round < 300; round += 1) {
    const source = text(next, 1 + Math.floor(next() * 40));
    const stream = new MarkdownStream();
    const shown = [];
    for (let at = 0; at < source.length;) {
      at = Math.min(source.length, at + 1 + Math.floor(next() * 7));
      const { keep, blocks: changed } = stream.update(source.slice(0, at));
      shown.splice(keep, Infinity, ...changed.map(({ from, to, ...block }) => block));
      assert.deepEqual(shown, blocks(source.slice(0, at)), JSON.stringify(source.slice(0, at)));
    }
  }
});

test("a text that is not a continuation is read anew", () => {
  const stream = new MarkdownStream();
  stream.update("# a\n\nb\n\nc\n\nd");
  assert.deepEqual(stream.update("x").keep, 0);
  assert.equal(stream.all().length, 1);
});

/** All text of a tree. */
function flat(nodes) {
  return nodes
    .map((n) =>
      typeof n === "string"
        ? n
        : (n.text ??
          flat(
            n.c ??
              n.items?.map((i) => ({ c: i.c })) ??
              [...(n.head ?? []), ...(n.rows ?? []).flat()].map((c) => ({ c })),
          )),
    )
    .join("");
}

test("letters are never lost", () => {
  const next = random(11);
  for (let round = 0; round < 300; round += 1) {
    const source = text(next, 1 + Math.floor(next() * 40));
    const words = (s) => (s.match(/é|😀/gu) ?? []).join("");
    // A fence's info string and cells beyond a table's width are not shown.
    if (/`{3}|~{3}|\|/.test(source)) continue;
    assert.equal(words(flat(parseBlocks(source))), words(source), JSON.stringify(source));
  }
});

test("hostile texts are read in reasonable time", { timeout: 60_000 }, () => {
  const many = 20_000;
  for (const piece of [
    "*",
    "_",
    "**a ",
    "*a **b ",
    "[",
    "![",
    "[a](",
    "](",
    "`",
    "` `` ",
    "> ",
    "- ",
    "  - ",
    "1. \n",
    "|",
    "`|",
    "a|b\n",
    "$",
    "\\(",
    "\\[\n# h\n",
    "<",
    "&",
    "~~a",
    "https://x.org/)",
    "\n",
    "- a\n\n",
    "#",
    "# # ",
    " ",
    "\t",
    "![a](x)",
  ]) {
    const source = piece.repeat(many);
    parseBlocks(source);
    parseBlocks(`- a${source}`);
  }
  parseBlocks("![".repeat(9000) + "a](x)".repeat(9000));
  parseBlocks(`${"*a **b ".repeat(9000)}${"c** d*".repeat(9000)}`);
  parseBlocks(`|${"-|".repeat(many)}\n|${"-|".repeat(many)}`);
});
