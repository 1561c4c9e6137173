// Prometheus text to figures. No DOM.

/** All samples of a text: `[{ name, labels, value }]`. Lines that are not samples are left out. */
export function parseMetrics(text) {
  const out = [];
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const found = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/.exec(line);
    if (!found) continue;
    const value = found[3] === "+Inf" ? Infinity : Number(found[3]);
    if (!Number.isNaN(value)) out.push({ name: found[1], labels: labels(found[2] ?? ""), value });
  }
  return out;
}

function labels(text) {
  const out = {};
  for (const [, name, value] of text.matchAll(/([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g)) {
    out[name] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
  }
  return out;
}

/** The samples of one moment, looked up by vLLM's names, with or without `_total`. */
export class Snapshot {
  constructor(text, at) {
    this.at = at;
    this.byName = new Map();
    for (const sample of parseMetrics(text)) {
      if (!this.byName.has(sample.name)) this.byName.set(sample.name, []);
      this.byName.get(sample.name).push(sample);
    }
  }

  #samples(name) {
    return this.byName.get(`vllm:${name}`) ?? this.byName.get(`vllm:${name}_total`) ?? [];
  }

  /** Whether there is such a metric. */
  has(name) {
    return this.#samples(name).length > 0;
  }

  /** The sum over all models; `null` where there is no such metric. */
  sum(name) {
    const samples = this.#samples(name);
    return samples.length === 0 ? null : samples.reduce((sum, { value }) => sum + value, 0);
  }

  /** The largest over all models. */
  max(name) {
    const samples = this.#samples(name);
    return samples.length === 0 ? null : Math.max(...samples.map(({ value }) => value));
  }

  /** Sums by the value of a label. */
  by(name, label) {
    const out = new Map();
    for (const { labels: l, value } of this.#samples(name))
      out.set(l[label] ?? "", (out.get(l[label] ?? "") ?? 0) + value);
    return out;
  }

  /** The labels of an info metric. */
  info(name) {
    return this.#samples(name)[0]?.labels ?? null;
  }

  /** Cumulative counts of a histogram by upper bound, ascending. */
  buckets(name) {
    const out = new Map();
    for (const { labels: l, value } of this.byName.get(`vllm:${name}_bucket`) ?? []) {
      const bound = l.le === "+Inf" ? Infinity : Number(l.le);
      out.set(bound, (out.get(bound) ?? 0) + value);
    }
    return [...out].sort(([a], [b]) => a - b);
  }
}

/** How much a counter grew between two snapshots; a restart of the server counts from nothing. */
export function growth(before, after, name) {
  const now = after.sum(name);
  const then = before.sum(name);
  if (now === null || then === null) return null;
  return now >= then ? now - then : now;
}

/** Growth a second. */
export function rate(before, after, name) {
  const grown = growth(before, after, name);
  const seconds = (after.at - before.at) / 1000;
  return grown === null || seconds <= 0 ? null : grown / seconds;
}

/** The quantile `q` of a histogram's observations between two snapshots, linear inside a bucket; `null` without any. */
export function quantile(before, after, name, q) {
  const then = new Map(before?.buckets(name) ?? []);
  const counts = after.buckets(name).map(([bound, count]) => [bound, Math.max(0, count - (then.get(bound) ?? 0))]);
  const total = counts.at(-1)?.[1] ?? 0;
  if (total === 0) return null;
  const rank = q * total;
  let low = 0;
  let below = 0;
  for (const [bound, count] of counts) {
    if (count >= rank) {
      if (bound === Infinity) return low;
      return count === below ? bound : low + ((bound - low) * (rank - below)) / (count - below);
    }
    low = bound;
    below = count;
  }
  return low;
}
