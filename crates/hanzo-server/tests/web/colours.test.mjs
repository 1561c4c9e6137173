// Every text colour can be read on every ground that it stands on, light and dark (WCAG AA: 4.5 to 1).

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const css = readFileSync(new URL("../../web/css/base.css", import.meta.url), "utf8");
const colours = new Map(
  [...css.matchAll(/--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)/g)].map(([, name, light, dark]) => [
    name,
    [light, dark],
  ]),
);

function luminance(hex) {
  const [r, g, b] = [1, 3, 5].map((i) => {
    const c = Number.parseInt(hex.slice(i, i + 2), 16) / 255;
    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a, b) {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}

const TEXT = [
  "ink",
  "ink-2",
  "ink-3",
  "accent",
  "red",
  "green",
  "code-keyword",
  "code-string",
  "code-number",
  "code-comment",
  "code-type",
  "code-call",
];
const GROUNDS = ["paper", "sunken", "raised", "accent-soft"];
const PAIRS = [
  ...TEXT.flatMap((text) => GROUNDS.map((ground) => [text, ground])),
  ...[
    ["on-accent", "accent"],
    ["on-accent", "red"],
    ["ink", "red-soft"],
    ["ink-2", "red-soft"],
    ["red", "red-soft"],
    ["ink", "green-soft"],
    ["green", "green-soft"],
  ],
];

test("text can be read on its ground", () => {
  for (const [text, ground] of PAIRS) {
    for (const [i, theme] of ["light", "dark"].entries()) {
      const ratio = contrast(colours.get(text)[i], colours.get(ground)[i]);
      assert.ok(ratio >= 4.5, `${theme}: ${text} on ${ground} is ${ratio.toFixed(2)}`);
    }
  }
});
