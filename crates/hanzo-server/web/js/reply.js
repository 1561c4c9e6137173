// A reply while it arrives: chunks of the stream gathered into an assistant's message, with times and counts. No DOM.

/** Takes chunks and fills `node`, the assistant's message. */
export class Reply {
  constructor(node, now = performance.now()) {
    this.node = node;
    this.started = now;
    this.first = null;
    this.last = now;
    this.pieces = 0;
    this.reasonedFrom = null;
    Object.assign(node, {
      state: "waiting",
      reasoning: "",
      calls: [],
      tokens: [],
      stats: {},
      finish: null,
      error: null,
    });
  }

  /** Takes a chunk as it came at `now` (milliseconds). */
  take(chunk, now = performance.now()) {
    if (chunk.notes) this.node.notes = chunk.notes;
    if (typeof chunk.model === "string") this.node.model = chunk.model;
    if (chunk.usage) this.#usage(chunk.usage);
    const choice = chunk.choices?.[0];
    if (!choice) return;
    this.#delta(choice.delta ?? {}, now);
    for (const token of choice.logprobs?.content ?? []) this.node.tokens.push(compact(token));
    if (choice.finish_reason) this.node.finish = choice.finish_reason;
    this.#time();
  }

  #delta(delta, now) {
    const reasoning = delta.reasoning_content ?? delta.reasoning ?? "";
    const content = delta.content ?? "";
    const calls = delta.tool_calls ?? [];
    if (reasoning === "" && content === "" && calls.length === 0) return;
    this.first ??= now;
    this.last = now;
    this.pieces += 1;
    if (this.node.state === "waiting") this.node.state = "writing";
    if (reasoning !== "") this.reasonedFrom ??= now;
    else if (this.reasonedFrom !== null && this.node.stats.reasoned === undefined)
      this.node.stats.reasoned = now - this.reasonedFrom;
    this.node.reasoning += reasoning;
    this.node.content += content;
    for (const call of calls) this.#call(call);
  }

  // The first piece of a call brings its id and name, the others more of its arguments.
  #call({ index = 0, id, function: fn }) {
    if (!Number.isInteger(index) || index < 0 || index > 256) return;
    while (this.node.calls.length <= index) this.node.calls.push({ id: "", name: "", arguments: "" });
    const call = this.node.calls[index];
    if (id) call.id = id;
    if (fn?.name) call.name = fn.name;
    call.arguments += fn?.arguments ?? "";
  }

  #usage(usage) {
    Object.assign(this.node.stats, {
      prompt: usage.prompt_tokens,
      completion: usage.completion_tokens,
      cached: usage.prompt_tokens_details?.cached_tokens ?? 0,
      reasoning: usage.completion_tokens_details?.reasoning_tokens ?? 0,
    });
    this.#time();
  }

  /** Speeds from what the page saw: the server's count of tokens where it is known, else a piece for a token. */
  #time() {
    const { stats } = this.node;
    if (this.first === null) return;
    stats.first = this.first - this.started;
    const tokens = stats.completion ?? this.pieces;
    stats.count = tokens;
    const seconds = (this.last - this.first) / 1000;
    // All at once is no speed.
    if (tokens > 1 && seconds > 0.01) stats.speed = (tokens - 1) / seconds;
  }

  /** The end of the reply: `done`, `stopped` by the user, or `failed` with an error. */
  end(state, error = null) {
    this.node.state = state;
    this.node.error = error && {
      kind: error.kind ?? "server",
      message: error.message,
      retryAfter: error.retryAfter ?? null,
    };
    if (this.reasonedFrom !== null && this.node.stats.reasoned === undefined)
      this.node.stats.reasoned = this.last - this.reasonedFrom;
  }
}

/** A token of `logprobs.content`, small enough to keep: `[text, logprob, [[text, logprob], …]]`. */
function compact({ token, logprob, top_logprobs: tops }) {
  return [String(token), Number(logprob), (tops ?? []).map((top) => [String(top.token), Number(top.logprob)])];
}
