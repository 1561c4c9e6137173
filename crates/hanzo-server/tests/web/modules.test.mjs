import assert from "node:assert/strict";
import { test } from "node:test";

import { errorOf } from "../../web/js/api.js";
import { niceStep } from "../../web/js/chart.js";
import { highlight } from "../../web/js/highlight.js";
import { growth, parseMetrics, quantile, rate, Snapshot } from "../../web/js/metrics.js";
import { PARAMS, readParam, readTools, requestBody, showParam } from "../../web/js/params.js";
import { Reply } from "../../web/js/reply.js";
import { SseParser } from "../../web/js/sse.js";
import * as tree from "../../web/js/tree.js";

test("server-sent events come out the same however they are cut", () => {
  const text =
    ': hello\ndata: {"a":1}\n\nevent: x\r\ndata:two\r\ndata: lines\r\n\r\ndata: cr\r\rid: 3\n\ndata: [DONE]\n\ndata: cut';
  const whole = new SseParser().push(text);
  assert.deepEqual(whole, [
    { event: "message", data: '{"a":1}' },
    { event: "x", data: "two\nlines" },
    { event: "message", data: "cr" },
    { event: "message", data: "[DONE]" },
  ]);
  for (let size = 1; size < 9; size += 1) {
    const parser = new SseParser();
    const events = [];
    for (let at = 0; at < text.length; at += size) events.push(...parser.push(text.slice(at, at + size)));
    assert.deepEqual(events, whole, `pieces of ${size}`);
  }
});

test("errors are told apart", () => {
  const kind = (status, error) => errorOf(status, error).kind;
  assert.equal(kind(401, { message: "no" }), "auth");
  assert.equal(kind(429, { message: "full" }), "busy");
  assert.equal(kind(400, { message: "long", code: "context_length_exceeded" }), "context");
  assert.equal(kind(400, { message: "bad", param: "top_p" }), "refused");
  assert.equal(kind(503, null), "server");
  assert.equal(errorOf(502, null).message, "The server answered with status 502.");
  assert.equal(errorOf(404, "plain words").message, "plain words");
});

test("highlighting changes no character", () => {
  const samples = {
    rust: "fn a<'x>(b: &'x str) -> char { /* c */ let s = \"q\\\"\"; 'c' } // end",
    python: 'def f(x):\n    """doc # not a comment"""\n    return x + 0x1F # c',
    bash: 'for f in *.txt; do echo "$f" ${#f} # c\ndone',
    json: '{"a": [1, true, null, "b"]}',
    html: '<!-- c --><a href="x">y</a>',
    diff: "@@ -1 +1 @@\n-a\n+b\n c",
    sql: "SELECT a FROM b WHERE c = 'it''s' -- d",
    nosuch: "anything",
  };
  for (const [lang, code] of Object.entries(samples)) {
    for (let cut = 0; cut <= code.length; cut += 1) {
      const part = code.slice(0, cut);
      assert.equal(
        highlight(part, lang)
          .map(({ text }) => text)
          .join(""),
        part,
        lang,
      );
    }
  }
  const kinds = (code, lang) =>
    highlight(code, lang)
      .filter(({ kind }) => kind)
      .map(({ kind, text }) => `${kind}:${text}`);
  assert.deepEqual(kinds("let x = 'a'; // 'b", "rs"), ["keyword:let", "string:'a'", "comment:// 'b"]);
  assert.deepEqual(kinds("fn f<'a>(x: &'a T)", "rust"), ["keyword:fn"]);
  assert.deepEqual(kinds('{"k": "v"}', "json"), ['key:"k"', 'string:"v"']);
  assert.deepEqual(kinds("print(1)", "python"), ["call:print", "number:1"]);
  assert.deepEqual(kinds("+a\n-b", "diff"), ["added:+a\n", "removed:-b"]);
});

test("hostile code is coloured in reasonable time", { timeout: 30_000 }, () => {
  for (const lang of ["rust", "python", "bash", "html", "json", "yaml", "cpp"]) {
    for (const piece of ["'", '"', "/*", "<!--", "#", "$", "${", "1e", "a_", '"""', "\\", "<", "\n"])
      highlight(piece.repeat(40_000), lang);
  }
});

function answered(conversation, text, reply) {
  tree.addNode(conversation, conversation.leaf, { role: "user", content: text, attachments: [] });
  return tree.addNode(conversation, conversation.leaf, {
    role: "assistant",
    content: reply,
    calls: [],
    reasoning: "",
    state: "done",
  });
}

test("a conversation keeps what was regenerated and edited as branches", () => {
  const c = tree.newConversation({ system: "Be kind." });
  const first = answered(c, "one two", "1");
  assert.equal(c.title, "one two");
  const second = tree.addNode(c, first.parent, { role: "assistant", content: "2" });
  assert.deepEqual(tree.siblings(c, second), [first, second]);
  answered(c, "three", "3");
  assert.deepEqual(
    tree.toMessages(c, c.leaf).map(({ role, content }) => `${role}:${content}`),
    ["system:Be kind.", "user:one two", "assistant:2", "user:three", "assistant:3"],
  );
  tree.show(c, first);
  assert.equal(c.leaf, first.id);
  tree.show(c, second);
  assert.deepEqual(
    tree.pathTo(c).map(({ content }) => content),
    ["one two", "2", "three", "3"],
  );
  tree.removeBranch(c, second);
  assert.equal(c.leaf, first.id);
  assert.equal(Object.keys(c.nodes).length, 2);
  tree.removeBranch(c, c.nodes[first.parent]);
  assert.deepEqual([c.leaf, Object.keys(c.nodes).length], [null, 0]);
});

test("messages carry files, reasoning, calls and results", () => {
  const c = tree.newConversation();
  tree.addNode(c, null, { role: "user", content: "see", attachments: [{ name: "a`b.md", text: "x\n```\ny\n" }] });
  const calls = [{ id: "c1", name: "f", arguments: "{}" }];
  const reply = tree.addNode(c, c.leaf, { role: "assistant", content: "", reasoning: "hm", calls });
  tree.addNode(c, reply.id, { role: "tool", callId: "c1", name: "f", content: "42" });
  tree.addNode(c, c.leaf, { role: "assistant", content: "", calls: [], state: "failed" });
  const [user, assistant, tool, ...rest] = tree.toMessages(c, c.leaf);
  assert.equal(user.content, "File `a'b.md`:\n````\nx\n```\ny\n````\n\nsee");
  assert.deepEqual(assistant, {
    role: "assistant",
    content: "",
    reasoning_content: "hm",
    tool_calls: [{ id: "c1", type: "function", function: { name: "f", arguments: "{}" } }],
  });
  assert.deepEqual(tool, { role: "tool", tool_call_id: "c1", name: "f", content: "42" });
  assert.deepEqual(rest, []);
});

test("a reply that failed leaves no two messages of the user in a row", () => {
  const c = tree.newConversation();
  answered(c, "a", "");
  answered(c, "b", "");
  assert.deepEqual(tree.toMessages(c, c.leaf), [{ role: "user", content: "a\n\nb" }]);
});

test("titles are short", () => {
  const title = tree.titleOf({ content: `${"word ".repeat(40)}` });
  assert.ok(title.length <= 61 && title.endsWith("…"));
  assert.equal(tree.titleOf({ content: " ", attachments: [{ name: "a.txt" }] }), "a.txt");
});

test("what is exported comes back, and nothing else does", () => {
  const c = tree.newConversation({ system: "s", params: { temperature: 0.5, stop: ["x"] } });
  const reply = answered(c, "q", "a");
  reply.stats = { speed: 3, prompt: 4 };
  reply.tokens = [["a", -0.1, [["b", -2]]]];
  const [back] = tree.importJson(tree.exportJson([c]));
  assert.notEqual(back.id, c.id);
  assert.deepEqual(
    tree.pathTo(back).map(({ content }) => content),
    ["q", "a"],
  );
  assert.deepEqual(back.params, c.params);
  assert.deepEqual(tree.pathTo(back)[1].tokens, reply.tokens);
  const bad = (change, words) => {
    const file = JSON.parse(tree.exportJson([c]));
    change(file.conversations[0], file);
    assert.throws(() => tree.importJson(JSON.stringify(file)), words);
  };
  const node = (conversation) => conversation.nodes[reply.id];
  assert.throws(() => tree.importJson("{"), /not JSON/);
  assert.throws(() => tree.importJson("null"), /not an export/);
  bad((_, file) => (file.conversations = {}), /not a list/);
  bad((x) => (x.title = 3), /title is not a string/);
  bad((x) => (node(x).role = "system"), /role is none of/);
  bad((x) => (node(x).content = ["x"]), /content is not a string/);
  bad((x) => (node(x).parent = "nobody"), /parent names no message/);
  bad((x) => (x.leaf = "nobody"), /leaf names no message/);
  bad((x) => (x.nodes[node(x).parent].parent = reply.id), /circle/);
  bad((x) => (x.nodes["<b>"] = node(x)), /not an id/);
});

test("parameters: read, shown, sent", () => {
  const param = Object.fromEntries(PARAMS.map((p) => [p.key, p]));
  assert.deepEqual(readParam(param.temperature, " 0.7 "), { value: 0.7 });
  assert.deepEqual(readParam(param.temperature, ""), { value: undefined });
  for (const bad of ["x", "-1", "1e999", "NaN", "0x"]) assert.ok(readParam(param.temperature, bad).error, bad);
  assert.ok(readParam(param.seed, "1.5").error);
  assert.deepEqual(readParam(param.stop, "a\\n\n\\\\n\n"), { value: ["a\n", "\\n"] });
  assert.equal(showParam(param.stop, ["a\n", "\\n"]), "a\\n\n\\\\n");
  const body = requestBody({
    model: "m",
    messages: [],
    params: { top_p: 0.9, nonsense: 1 },
    tools: undefined,
    logprobs: true,
  });
  assert.deepEqual(body, {
    model: "m",
    messages: [],
    stream: true,
    stream_options: { include_usage: true },
    top_p: 0.9,
    logprobs: true,
    top_logprobs: 8,
  });
});

test("tools: as OpenAI writes them, or only the function", () => {
  assert.equal(readTools("  "), undefined);
  assert.deepEqual(readTools('{"name": "f"}'), [{ type: "function", function: { name: "f" } }]);
  assert.deepEqual(readTools('[{"type": "function", "function": {"name": "g"}}]'), [
    { type: "function", function: { name: "g" } },
  ]);
  assert.throws(() => readTools("[{}]"), /entry 1 has no "name"/);
  assert.throws(() => readTools("["), /Tools:/);
});

test("a reply gathers its pieces and its figures", () => {
  const node = { content: "" };
  const reply = new Reply(node, 1000);
  const delta = (d, more = {}) => ({ choices: [{ delta: d, ...more }] });
  reply.take(delta({ role: "assistant", content: "" }), 1100);
  assert.equal(node.state, "waiting");
  reply.take(delta({ reasoning_content: "hm" }), 1200);
  reply.take(
    delta(
      { content: "He" },
      { logprobs: { content: [{ token: "He", logprob: -1, top_logprobs: [{ token: "Hi", logprob: -0.5 }] }] } },
    ),
    1700,
  );
  reply.take(delta({ tool_calls: [{ index: 0, id: "c", function: { name: "f", arguments: "{" } }] }), 1800);
  reply.take(delta({ tool_calls: [{ index: 0, function: { arguments: "}" } }] }), 2200);
  reply.take(delta({ tool_calls: [{ index: -1 }, { index: 1e9 }] }), 2200);
  reply.take(delta({}, { finish_reason: "tool_calls" }), 2300);
  reply.take(
    { choices: [], usage: { prompt_tokens: 9, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 4 } } },
    2400,
  );
  reply.end("done");
  assert.deepEqual([node.content, node.reasoning, node.finish, node.state], ["He", "hm", "tool_calls", "done"]);
  assert.deepEqual(node.calls, [{ id: "c", name: "f", arguments: "{}" }]);
  assert.deepEqual(node.tokens, [["He", -1, [["Hi", -0.5]]]]);
  assert.deepEqual(node.stats, {
    first: 200,
    count: 5,
    speed: 4,
    reasoned: 500,
    prompt: 9,
    completion: 5,
    cached: 4,
    reasoning: 0,
  });
});

const METRICS = (n) => `# HELP x y
vllm:generation_tokens_total{model_name="a\\"b,{}"} ${100 * n}
vllm:generation_tokens_total{model_name="c"} ${50 * n}
vllm:num_requests_running{model_name="c"} 3
vllm:ttft_bucket{le="0.1"} ${10 * n}
vllm:ttft_bucket{le="0.2"} ${20 * n}
vllm:ttft_bucket{le="+Inf"} ${20 * n}
vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1
garbage line
vllm:bad{ NaN`;

test("metrics: samples, sums, rates, quantiles", () => {
  assert.deepEqual(parseMetrics(METRICS(1))[0], {
    name: "vllm:generation_tokens_total",
    labels: { model_name: 'a"b,{}' },
    value: 100,
  });
  const one = new Snapshot(METRICS(1), 1000);
  const two = new Snapshot(METRICS(2), 3000);
  assert.equal(one.sum("generation_tokens"), 150);
  assert.equal(one.sum("nothing"), null);
  assert.equal(rate(one, two, "generation_tokens"), 75);
  assert.equal(growth(two, one, "generation_tokens"), 150, "after a restart all of it is new");
  assert.equal(growth(one, two, "nothing"), null);
  assert.ok(Math.abs(quantile(one, two, "ttft", 0.75) - 0.15) < 1e-9);
  assert.equal(quantile(one, one, "ttft", 0.5), null);
  assert.equal(one.info("cache_config_info").block_size, "16");
  assert.equal(one.by("generation_tokens", "model_name").get("c"), 50);
});

test("scales have round steps", () => {
  assert.equal(niceStep(10, 4), 5);
  assert.equal(niceStep(0.1, 4), 0.05);
  assert.equal(niceStep(37, 4), 10);
});
