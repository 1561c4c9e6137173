// The sampling parameters that the panel offers: names, ranges, meaning; and the request body that they make. A parameter
// left empty is not sent, and the server's default holds.

/** `kind`: `number`, `integer`, `lines` (one string a line) or `choice`. `from`: the name in `/props`' default settings. */
export const PARAMS = [
  {
    key: "temperature",
    label: "Temperature",
    kind: "number",
    min: 0,
    max: 5,
    step: 0.05,
    hint: "0 always takes the likeliest token",
  },
  {
    key: "top_p",
    label: "Top-p",
    kind: "number",
    min: 0,
    max: 1,
    step: 0.01,
    hint: "Keep the likeliest tokens up to this share",
  },
  {
    key: "top_k",
    label: "Top-k",
    kind: "integer",
    min: 0,
    max: 100_000,
    step: 1,
    hint: "Keep this many tokens; 0 keeps all",
  },
  {
    key: "min_p",
    label: "Min-p",
    kind: "number",
    min: 0,
    max: 1,
    step: 0.01,
    hint: "Drop tokens below this share of the best",
  },
  {
    key: "seed",
    label: "Seed",
    kind: "integer",
    min: 0,
    max: Number.MAX_SAFE_INTEGER,
    step: 1,
    hint: "The same seed gives the same reply",
  },
  {
    key: "max_tokens",
    label: "Most tokens",
    kind: "integer",
    min: 1,
    max: 1_000_000,
    step: 1,
    hint: "Of a reply",
    from: "n_predict",
  },
  {
    key: "repetition_penalty",
    label: "Repetition penalty",
    kind: "number",
    min: 0.01,
    max: 10,
    step: 0.01,
    hint: "1 is none",
    from: "repeat_penalty",
  },
  {
    key: "presence_penalty",
    label: "Presence penalty",
    kind: "number",
    min: -2,
    max: 2,
    step: 0.05,
    hint: "Against tokens that occurred",
  },
  {
    key: "frequency_penalty",
    label: "Frequency penalty",
    kind: "number",
    min: -2,
    max: 2,
    step: 0.05,
    hint: "… more, the more often",
  },
  { key: "stop", label: "Stop at", kind: "lines", most: 16, hint: "One text a line; \\n is a line break" },
  {
    key: "reasoning_effort",
    label: "Reasoning",
    kind: "choice",
    choices: ["none", "low", "medium", "high"],
    hint: "For models that reason",
  },
];

/** Reads what was typed: `{ value }` (`undefined`: empty, so the default) or `{ error }`. */
export function readParam(param, text) {
  const trimmed = text.trim();
  if (trimmed === "") return { value: undefined };
  if (param.kind === "choice") return { value: trimmed };
  if (param.kind === "lines") {
    const lines = text
      .split("\n")
      .filter((line) => line !== "")
      .map(unescape);
    return lines.length > param.most ? { error: `At most ${param.most} texts.` } : { value: lines };
  }
  const value = Number(trimmed);
  if (!Number.isFinite(value)) return { error: "Not a number." };
  if (param.kind === "integer" && !Number.isInteger(value)) return { error: "A whole number, please." };
  if (value < param.min || value > param.max) return { error: `From ${param.min} to ${param.max}.` };
  return { value };
}

/** What is typed for a value; the inverse of `readParam`. */
export function showParam(param, value) {
  if (value === undefined || value === null) return "";
  if (param.kind === "lines") return value.map(escape).join("\n");
  return String(value);
}

const unescape = (line) => line.replace(/\\([\\nt])/g, (_, c) => ({ n: "\n", t: "\t", "\\": "\\" })[c]);
const escape = (text) => text.replace(/[\\\n\t]/g, (c) => ({ "\n": "\\n", "\t": "\\t", "\\": "\\\\" })[c]);

/** The tools of the panel as the API takes them: `undefined` for none, or an `Error` with what is wrong. */
export function readTools(text) {
  if (text.trim() === "") return undefined;
  let tools;
  try {
    tools = JSON.parse(text);
  } catch (error) {
    throw new Error(`Tools: ${error.message}`);
  }
  if (!Array.isArray(tools)) tools = [tools];
  for (const [i, tool] of tools.entries()) {
    const fn = tool?.type === "function" ? tool.function : tool;
    if (typeof fn?.name !== "string") throw new Error(`Tools: entry ${i + 1} has no "name".`);
    tools[i] = { type: "function", function: fn };
  }
  return tools.length === 0 ? undefined : tools;
}

/** The body of a chat request. `defaults` are set only where the user chose nothing. */
export function requestBody({ model, messages, params, tools, logprobs }) {
  const body = { model, messages, stream: true, stream_options: { include_usage: true } };
  for (const { key } of PARAMS) if (params[key] !== undefined) body[key] = params[key];
  if (tools) body.tools = tools;
  if (logprobs) Object.assign(body, { logprobs: true, top_logprobs: 8 });
  return body;
}
