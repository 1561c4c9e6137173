// The live page of the engine: what runs and waits, how full the cache is, how fast tokens flow, out of `/metrics`.

import * as api from "./api.js";
import { Chart } from "./chart.js";
import { byId, h } from "./dom.js";
import { growth, quantile, rate, Snapshot } from "./metrics.js";

const EVERY = 1000;
const SPAN = 5 * 60_000;
/** Shares and latencies are over the last minute. */
const WINDOW = 60_000;
/** The names under which servers count drafts of speculation. */
const DRAFTED = "spec_decode_num_draft_tokens";
const ACCEPTED = "spec_decode_num_accepted_tokens";

const whole = (n) => Math.round(n).toLocaleString("en").replaceAll(",", "\u202f");
const fine = (n) => (n >= 100 ? whole(n) : Number(n.toFixed(n >= 10 ? 1 : 2)).toString());
const share = (n) => `${(100 * n).toFixed(n < 0.1 && n > 0 ? 1 : 0)} %`;
const time = (s) => (s < 1 ? `${whole(s * 1000)} ms` : `${fine(s)} s`);
const orDash = (value, format) => (value === null || value === undefined ? "–" : format(value));

/** The view; it asks the server only while it is shown. */
export class EngineView {
  #snapshots = [];
  #samples = [];
  #timer = null;
  #abort = null;

  constructor() {
    this.state = byId("engine-state");
    this.tiles = byId("tiles");
    this.more = byId("engine-more");
    const chart = (title, series, least, format) => new Chart({ title, series, span: SPAN, least, format });
    this.charts = [
      chart("Tokens written a second", [{ name: "written", key: "generated" }], 10, fine),
      chart("Prompt tokens read a second", [{ name: "read", key: "prompted" }], 10, fine),
      chart(
        "Requests",
        [
          { name: "running", key: "running" },
          { name: "waiting", key: "waiting" },
        ],
        4,
        fine,
      ),
      chart("KV cache in use", [{ name: "used", key: "kv" }], 0.1, share),
    ];
    byId("charts").append(...this.charts.map(({ el }) => el));
    document.addEventListener("visibilitychange", () => this.#schedule(0));
  }

  show() {
    this.shown = true;
    this.#schedule(0);
  }

  hide() {
    this.shown = false;
    clearTimeout(this.#timer);
    this.#abort?.abort();
  }

  #schedule(delay) {
    clearTimeout(this.#timer);
    if (this.shown && !document.hidden) this.#timer = setTimeout(() => this.#poll(), delay);
  }

  async #poll() {
    const began = performance.now();
    this.#abort?.abort();
    const abort = new AbortController();
    this.#abort = abort;
    try {
      const text = await api.metrics(abort.signal);
      this.#take(new Snapshot(text, Date.now()));
      this.#say("live", "Live");
    } catch (error) {
      if (abort.signal.aborted) return;
      this.#gap();
      this.#say("off", error.kind === "auth" ? "The server wants an API key." : error.message);
    }
    this.#schedule(Math.max(100, EVERY - (performance.now() - began)));
  }

  #say(state, words) {
    if (this.state.textContent === words) return;
    this.state.textContent = words;
    this.state.dataset.state = state;
  }

  // Where the server did not answer, the lines have a hole.
  #gap() {
    this.#snapshots = [];
    this.#samples.push({ at: Date.now() });
    for (const chart of this.charts) chart.draw(this.#samples, Date.now());
  }

  #take(now) {
    const before = this.#snapshots.at(-1);
    this.#snapshots.push(now);
    while (this.#snapshots.length > 2 && this.#snapshots[1].at < now.at - WINDOW) this.#snapshots.shift();
    this.#samples.push({
      at: now.at,
      generated: before ? rate(before, now, "generation_tokens") : null,
      prompted: before ? rate(before, now, "prompt_tokens") : null,
      running: now.sum("num_requests_running"),
      waiting: now.sum("num_requests_waiting"),
      kv: now.max("kv_cache_usage_perc"),
    });
    while (this.#samples[0].at < now.at - SPAN) this.#samples.shift();
    this.#draw(now, this.#snapshots[0]);
  }

  #draw(now, then) {
    const last = this.#samples.at(-1);
    const asked = growth(then, now, "prefix_cache_queries");
    const hits = asked > 0 ? growth(then, now, "prefix_cache_hits") / asked : null;
    const drafted = now.has(DRAFTED) ? growth(then, now, DRAFTED) : null;
    const tiles = [
      ["Running", orDash(last.running, whole), "requests in the batch"],
      ["Waiting", orDash(last.waiting, whole), "requests in the queue"],
      ["Writing", orDash(last.generated, fine), "tokens a second"],
      ["Reading", orDash(last.prompted, fine), "prompt tokens a second"],
      ["KV cache", orDash(last.kv, share), cacheSize(now)],
      ["Prefix hits", orDash(hits, share), "of prompt tokens, last minute"],
    ];
    if (drafted !== null)
      tiles.push(["Drafts", drafted > 0 ? share(growth(then, now, ACCEPTED) / drafted) : "–", "accepted, last minute"]);
    this.tiles.replaceChildren(
      ...tiles.map(([name, value, unit]) =>
        h("div", null, h("dt", null, name), h("dd", null, value, h("small", null, unit))),
      ),
    );
    for (const chart of this.charts) chart.draw(this.#samples, now.at);
    this.more.replaceChildren(latencies(then, now), totals(now));
  }
}

function cacheSize(now) {
  const info = now.info("cache_config_info");
  const tokens = Number(info?.block_size) * Number(info?.num_gpu_blocks);
  return tokens > 0 ? `of ${whole(tokens)} tokens` : "in use";
}

function latencies(then, now) {
  const rows = [
    ["Time to first token", "time_to_first_token_seconds"],
    ["Between tokens", "inter_token_latency_seconds"],
    ["In the queue", "request_queue_time_seconds"],
    ["Whole request", "e2e_request_latency_seconds"],
  ].map(([label, name]) => {
    const value = (q) => h("td", null, orDash(quantile(then, now, name, q), time));
    return h("tr", null, h("th", { scope: "row" }, label), value(0.5), value(0.95));
  });
  return h(
    "table",
    null,
    h("caption", null, "Latency, last minute"),
    h("thead", null, h("tr", null, h("td"), h("th", { scope: "col" }, "median"), h("th", { scope: "col" }, "95 %"))),
    h("tbody", null, rows),
  );
}

function totals(now) {
  const reasons = [...now.by("request_success", "finished_reason")]
    .filter(([, n]) => n > 0)
    .map(([reason, n]) => [`Ended by ${reason || "?"}`, n]);
  const rows = [
    ["Prompt tokens", now.sum("prompt_tokens")],
    ["Tokens written", now.sum("generation_tokens")],
    ["Preemptions", now.sum("num_preemptions")],
    ...reasons,
  ].map(([label, n]) => h("tr", null, h("th", { scope: "row" }, label), h("td", null, orDash(n, whole))));
  return h("table", null, h("caption", null, "Since the server started"), h("tbody", null, rows));
}
