// Colours for code: one lexer, a table of languages. It knows comments, strings, numbers, keywords, types and calls, which
// is what reading needs; it does not parse. The pieces always join to the code they came from.

const C_COMMENT = { line: ["//"], block: [["/*", "*/"]] };
const HASH = { line: ["#"], block: [] };
const words = (text) => new Set(text.split(" "));

const C_WORDS =
  "auto break case char const continue default do double else enum extern float for goto if inline int long register return short signed sizeof static struct switch typedef union unsigned void volatile while";
const JS_WORDS =
  "async await break case catch class const continue debugger default delete do else export extends finally for from function get if import in instanceof let new of return set static super switch this throw try typeof var void while with yield true false null undefined";

const LANGUAGES = {
  rust: {
    ...C_COMMENT,
    quotes: ['"'],
    char: true,
    keywords: words(
      "as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait type unsafe use where while true false",
    ),
  },
  python: {
    ...HASH,
    quotes: ['"""', "'''", '"', "'"],
    keywords: words(
      "and as assert async await break class continue def del elif else except finally for from global if import in is lambda match case nonlocal not or pass raise return try while with yield True False None self",
    ),
  },
  javascript: { ...C_COMMENT, quotes: ['"', "'", "`"], keywords: words(JS_WORDS) },
  typescript: {
    ...C_COMMENT,
    quotes: ['"', "'", "`"],
    keywords: words(
      `${JS_WORDS} abstract any as boolean declare enum implements infer interface is keyof namespace never number private protected public readonly string symbol type unknown`,
    ),
  },
  c: { ...C_COMMENT, quotes: ['"', "'"], pre: true, keywords: words(`${C_WORDS} bool NULL true false`) },
  cpp: {
    ...C_COMMENT,
    quotes: ['"', "'"],
    pre: true,
    keywords: words(
      `${C_WORDS} alignas bool catch class concept consteval constexpr co_await co_return co_yield decltype delete explicit export false final friend mutable namespace new noexcept nullptr operator override private protected public requires static_assert template this throw true try typename using virtual`,
    ),
  },
  csharp: {
    ...C_COMMENT,
    quotes: ['"', "'"],
    pre: true,
    keywords: words(
      "abstract as async await base bool break case catch class const continue decimal default delegate do double else enum event explicit extern false finally fixed float for foreach if implicit in int interface internal is lock long namespace new null object operator out override params private protected public readonly record ref return sealed short sizeof static string struct switch this throw true try typeof uint ulong using var virtual void while yield",
    ),
  },
  java: {
    ...C_COMMENT,
    quotes: ['"""', '"', "'"],
    keywords: words(
      "abstract assert boolean break byte case catch char class const continue default do double else enum extends final finally float for if implements import instanceof int interface long native new null package private protected public record return sealed short static super switch synchronized this throw throws transient true false try var void volatile while yield",
    ),
  },
  kotlin: {
    ...C_COMMENT,
    quotes: ['"""', '"', "'"],
    keywords: words(
      "as break by class companion const continue data do else enum false for fun if import in init inline interface internal is lateinit null object open operator override package private protected public return sealed super suspend this throw true try typealias val var when where while",
    ),
  },
  swift: {
    ...C_COMMENT,
    quotes: ['"""', '"'],
    keywords: words(
      "as associatedtype async await break case catch class continue default defer do else enum extension false fileprivate for func guard if import in init inout internal is let nil open operator private protocol public repeat return self Self static struct subscript super switch throw throws true try typealias var where while",
    ),
  },
  go: {
    ...C_COMMENT,
    quotes: ['"', "'", "`"],
    keywords: words(
      "break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var true false nil",
    ),
  },
  zig: {
    line: ["//"],
    block: [],
    quotes: ['"', "'"],
    keywords: words(
      "align and anyerror anytype break catch comptime const continue defer else enum errdefer error export extern false fn for if inline null or orelse packed pub return struct switch test true try undefined union unreachable usize var void volatile while",
    ),
  },
  bash: {
    ...HASH,
    quotes: ['"', "'"],
    dollar: true,
    keywords: words(
      "case do done elif else esac export fi for function if in local return set shift source then unset until while cd echo exit sudo read eval exec trap",
    ),
  },
  ruby: {
    ...HASH,
    quotes: ['"', "'"],
    keywords: words(
      "alias and begin break case class def do else elsif end ensure false for if in module next nil not or redo rescue retry return self super then true undef unless until when while yield require attr_accessor attr_reader",
    ),
  },
  php: {
    line: ["//", "#"],
    block: [["/*", "*/"]],
    quotes: ['"', "'"],
    dollar: true,
    keywords: words(
      "abstract and array as break case catch class const continue declare default do echo else elseif extends final finally fn for foreach function global if implements include instanceof interface match namespace new null or private protected public readonly require return static switch throw trait true false try use var while yield",
    ),
  },
  lua: {
    line: ["--"],
    block: [["--[[", "]]"]],
    quotes: ['"', "'"],
    keywords: words(
      "and break do else elseif end false for function goto if in local nil not or repeat return then true until while",
    ),
  },
  sql: {
    line: ["--"],
    block: [["/*", "*/"]],
    quotes: ["'", '"'],
    fold: true,
    keywords: words(
      "add all alter and as asc begin between by case cascade check column commit constraint create cross database default delete desc distinct drop else end exists false foreign from full function group having if in index inner insert into is join key left like limit not null offset on or order outer primary references returning right rollback select set table then true union unique update using values view when where with",
    ),
  },
  json: { line: [], block: [], quotes: ['"'], keys: true, keywords: words("true false null") },
  yaml: { ...HASH, quotes: ['"', "'"], keys: true, keywords: words("true false null yes no on off") },
  toml: { ...HASH, quotes: ['"""', "'''", '"', "'"], keys: true, keywords: words("true false") },
  css: {
    line: [],
    block: [["/*", "*/"]],
    quotes: ['"', "'"],
    keys: true,
    keywords: words("important media import supports keyframes layer container property from to and not or"),
  },
  html: { line: [], block: [["<!--", "-->"]], quotes: ['"', "'"], tags: true, keywords: words("") },
};

const ALIASES = {
  rs: "rust",
  py: "python",
  python3: "python",
  js: "javascript",
  jsx: "javascript",
  mjs: "javascript",
  node: "javascript",
  ts: "typescript",
  tsx: "typescript",
  h: "c",
  "c++": "cpp",
  cc: "cpp",
  hpp: "cpp",
  cxx: "cpp",
  cuda: "cpp",
  metal: "cpp",
  cs: "csharp",
  "c#": "csharp",
  kt: "kotlin",
  golang: "go",
  sh: "bash",
  shell: "bash",
  zsh: "bash",
  console: "bash",
  fish: "bash",
  make: "bash",
  makefile: "bash",
  dockerfile: "bash",
  r: "python",
  rb: "ruby",
  postgresql: "sql",
  sqlite: "sql",
  mysql: "sql",
  jsonc: "javascript",
  json5: "javascript",
  jsonl: "json",
  yml: "yaml",
  ini: "toml",
  scss: "css",
  less: "css",
  xml: "html",
  svg: "html",
  vue: "html",
  scala: "kotlin",
  dart: "java",
  glsl: "c",
  hlsl: "c",
  wgsl: "rust",
};

/** Longer code is shown plain: the reader scrolls, the browser should too. */
const LIMIT = 200_000;

/**
 * Pieces `{ kind, text }` of `code`. `kind` is `null`, `comment`, `string`, `number`, `keyword`, `type`, `call`, `key`,
 * `tag`, `added` or `removed`.
 */
export function highlight(code, lang) {
  if (lang === "diff" || lang === "patch") return diff(code);
  const name = ALIASES[lang] ?? lang;
  if (!Object.hasOwn(LANGUAGES, name) || code.length > LIMIT) return [{ kind: null, text: code }];
  return lex(code, LANGUAGES[name]);
}

function diff(code) {
  return code.split(/(?<=\n)/).map((text) => {
    const kind = text.startsWith("+")
      ? "added"
      : text.startsWith("-")
        ? "removed"
        : text.startsWith("@@")
          ? "keyword"
          : null;
    return { kind, text };
  });
}

function lex(code, language) {
  const out = [];
  let plain = 0;
  let at = 0;
  const put = (kind, end) => {
    if (plain < at) out.push({ kind: null, text: code.slice(plain, at) });
    out.push({ kind, text: code.slice(at, end) });
    at = end;
    plain = end;
  };
  while (at < code.length) {
    const c = code[at];
    const end = comment(code, at, language) ?? (language.pre && c === "#" ? lineEnd(code, at) : null);
    if (end !== null) {
      put(code.startsWith("#", at) && language.pre ? "keyword" : "comment", end);
      continue;
    }
    const string = stringEnd(code, at, language);
    if (string !== null) {
      const isKey = language.keys && /^\s{0,8}:/.test(code.slice(string, string + 9));
      put(isKey ? "key" : "string", string);
      continue;
    }
    const word = sticky(language.keys ? /[A-Za-z_][\w-]*/y : /[\p{L}_][\p{L}\p{N}_]*/uy, code, at);
    if (word) {
      const kind = wordKind(word, code, at, language);
      if (kind) put(kind, at + word.length);
      else at += word.length;
      continue;
    }
    const number = sticky(
      /0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?[a-zA-Z%]{0,5}\d{0,3}/y,
      code,
      at,
    );
    if (number) {
      put("number", at + number.length);
      continue;
    }
    const variable = language.dollar && c === "$" ? sticky(/\$(?:\{[^}\n]{0,64}\}|\w+|[@*#?!$-])/y, code, at) : null;
    if (variable) put("type", at + variable.length);
    else at += 1;
  }
  if (plain < code.length) out.push({ kind: null, text: code.slice(plain) });
  return out;
}

function wordKind(word, code, at, language) {
  if (language.tags) return code[at - 1] === "<" || code.startsWith("</", at - 2) ? "tag" : null;
  if (language.keywords.has(language.fold ? word.toLowerCase() : word)) return "keyword";
  const after = code.slice(at + word.length, at + word.length + 2);
  if (language.keys) return /^\s?[:=]/.test(after) ? "key" : null;
  if (after[0] === "(" || after === "!(" || after === "![") return "call";
  return /^\p{Lu}/u.test(word) && /\p{Ll}/u.test(word) ? "type" : null;
}

function comment(code, at, language) {
  for (const [open, close] of language.block) {
    if (code.startsWith(open, at)) {
      const end = code.indexOf(close, at + open.length);
      return end < 0 ? code.length : end + close.length;
    }
  }
  for (const open of language.line) {
    // `$#`, `a#b` and addresses are no comments where `#` starts one only at a word.
    if (code.startsWith(open, at) && (open !== "#" || at === 0 || /\s/.test(code[at - 1]))) return lineEnd(code, at);
  }
  return null;
}

function stringEnd(code, at, language) {
  const quote = language.quotes.find((q) => code.startsWith(q, at));
  if (!quote) return language.char && code[at] === "'" ? charEnd(code, at) : null;
  const spans = quote.length === 3 || quote === "`";
  for (let i = at + quote.length; i < code.length; i += 1) {
    if (code[i] === "\\") i += 1;
    else if (!spans && code[i] === "\n") return i;
    else if (code.startsWith(quote, i)) return i + quote.length;
  }
  return code.length;
}

/** Rust's `'c'`, which is not the lifetime `'c`. */
function charEnd(code, at) {
  const found = sticky(/'(?:\\[^\n]{1,8}?|[^'\\\n])'/uy, code, at);
  return found ? at + found.length : null;
}

function lineEnd(code, at) {
  const end = code.indexOf("\n", at);
  return end < 0 ? code.length : end;
}

function sticky(pattern, code, at) {
  pattern.lastIndex = at;
  return pattern.exec(code)?.[0] ?? null;
}
