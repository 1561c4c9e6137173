// The server's HTTP interface as the page uses it. Every failure is an `ApiError` that says what kind it is.

import { SseParser } from "./sse.js";

/**
 * A request that failed. `kind`: `gone` (no answer), `auth`, `busy` (429; `retryAfter` in seconds), `context` (the
 * conversation does not fit), `broken` (the stream ended early), `refused` (any other 4xx), `server` (5xx).
 */
export class ApiError extends Error {
  constructor(kind, message, more = {}) {
    super(message);
    this.name = "ApiError";
    this.kind = kind;
    Object.assign(this, more);
  }
}

const KEY = "hanzo.key";

/** The API key the user gave: kept for the tab, or for the browser when asked to; for the page where storage is forbidden. */
export const apiKey = {
  now: null,
  get() {
    try {
      this.now ??= sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
    } catch {
      // What was typed holds until the page is left.
    }
    return this.now ?? "";
  },
  set(key, remember) {
    this.now = key;
    try {
      sessionStorage.removeItem(KEY);
      localStorage.removeItem(KEY);
      if (key !== "") (remember ? localStorage : sessionStorage).setItem(KEY, key);
    } catch {
      // As above.
    }
  },
};

async function send(path, { body, signal } = {}) {
  const headers = {};
  const key = apiKey.get();
  if (key !== "") headers.authorization = `Bearer ${key}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("gone", "The server does not answer. It may have been stopped, or the network is down.");
  }
  if (!response.ok) throw await failure(response);
  return response;
}

/** The error that an unsuccessful response tells of. */
async function failure(response) {
  let error = null;
  try {
    const parsed = JSON.parse(await response.text());
    error = parsed.error ?? parsed;
  } catch {
    // Not the server's own error shape: a proxy in between; the status must do.
  }
  return errorOf(response.status, error, Number(response.headers.get("retry-after")) || null);
}

/** Classifies an OpenAI-shaped error object. Exported for its test. */
export function errorOf(status, error, retryAfter = null) {
  const text = typeof error === "string" ? error : error?.message;
  const message = typeof text === "string" && text !== "" ? text : `The server answered with status ${status}.`;
  const code = String(error?.code ?? "");
  const more = { status, code, param: error?.param ?? null, retryAfter };
  if (status === 401 || status === 403) return new ApiError("auth", message, more);
  if (status === 429) return new ApiError("busy", message, more);
  if (code === "context_length_exceeded" || error?.type === "exceed_context_size_error") {
    return new ApiError("context", message, more);
  }
  return new ApiError(status >= 500 ? "server" : "refused", message, more);
}

/** The models served, `/v1/models`' `data`. */
export async function models(signal) {
  const answer = await (await send("/v1/models", { signal })).json();
  return Array.isArray(answer.data) ? answer.data.filter((model) => typeof model?.id === "string") : [];
}

/** llama.cpp's `/props`: defaults of sampling, context length. `null` where the server has none. */
export async function props(signal) {
  try {
    return await (await send("/props", { signal })).json();
  } catch (error) {
    if (error.kind === "refused") return null;
    throw error;
  }
}

/** The Prometheus text of `/metrics`. */
export async function metrics(signal) {
  return (await send("/metrics", { signal })).text();
}

/** Whether a server answers at all. */
export async function alive() {
  try {
    await send("/health");
    return true;
  } catch (error) {
    return error.kind !== "gone";
  }
}

/**
 * A streamed chat completion: yields the chunks as they arrive, ends at `[DONE]`. What the server did differently from what
 * was asked, or passed over, comes first, as `{ notes }`.
 */
export async function* chat(body, signal) {
  const response = await send("/v1/chat/completions", { body, signal });
  yield { notes: notes(response.headers) };
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new SseParser();
  let done = false;
  try {
    for (;;) {
      let piece;
      try {
        piece = await reader.read();
      } catch (error) {
        if (signal.aborted) throw error;
        throw new ApiError("broken", "The connection broke while the reply was arriving.");
      }
      if (piece.done) throw new ApiError("broken", "The server ended the reply without finishing it.");
      for (const { data } of parser.push(piece.value)) {
        if (data === "[DONE]") {
          done = true;
          return;
        }
        const chunk = parseChunk(data);
        if (chunk.error) throw errorOf(Number(chunk.error.status ?? chunk.error.code) || 500, chunk.error);
        yield chunk;
      }
    }
  } finally {
    // After the end only the close of the stream is left to come, and then the connection can be used again.
    const cancel = () => reader.cancel().catch(() => {});
    if (done) reader.read().then(cancel, cancel);
    else cancel();
  }
}

function notes(headers) {
  const ignored = headers.get("x-hanzo-ignored");
  const warning = headers.get("x-hanzo-warning");
  return [warning, ignored && `The server passed over: ${ignored}.`].filter(Boolean);
}

function parseChunk(data) {
  try {
    return JSON.parse(data);
  } catch {
    throw new ApiError("broken", "The server sent something that is not JSON in the reply.");
  }
}
