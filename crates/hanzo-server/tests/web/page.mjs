// The page in a browser, against a running server (HANZO_URL) with the built-in model. What that model cannot be made to
// say (markup, reasoning, calls, errors) comes from answers that the test puts in the server's place.
//
// HANZO_CHROMIUM: the browser. HANZO_SHOTS: a folder for pictures of the page; none are made without.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, afterEach, before, test } from "node:test";

import { chromium } from "playwright-core";

const URL = process.env.HANZO_URL;
const SHOTS = process.env.HANZO_SHOTS;
const CHAT = "**/v1/chat/completions";

let browser;
let page;
let faults;

before(async () => {
  browser = await chromium.launch({ executablePath: process.env.HANZO_CHROMIUM, args: ["--no-sandbox"] });
});
after(() => browser?.close());
afterEach(async () => {
  await page?.context().close();
  assert.deepEqual(faults, [], "errors of the page, or of its policy");
});

/** A page in a browser of its own, with short replies that are always the same. */
async function open({ params = { seed: 7, max_tokens: 24, temperature: 0.5 }, ...options } = {}) {
  const context = await browser.newContext({
    viewport: { width: 1200, height: 800 },
    colorScheme: "light",
    acceptDownloads: true,
    ...options,
  });
  faults = [];
  page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on(
    "console",
    (message) => /Content Security Policy|TrustedHTML/.test(message.text()) && faults.push(message.text()),
  );
  await page.addInitScript((value) => {
    if (localStorage.getItem("hanzo.last") === null)
      localStorage.setItem("hanzo.last", JSON.stringify({ params: value }));
    addEventListener("securitypolicyviolation", (event) =>
      console.error(`Content Security Policy: ${event.violatedDirective}`),
    );
  }, params);
  await load();
}

async function load() {
  await page.goto(URL);
  await ready();
}

const ready = () => page.waitForSelector("html[data-ready]");
const idle = () => page.waitForSelector("#send:not(.stop)");
const reply = () => page.locator(".message.assistant").last();
const replyText = () => reply().locator(".md").last().innerText();

/** A figure in the margin of the last reply. */
const figure = (name) => reply().locator(`.figures div:has(dt:text-is("${name}")) dd`).innerText();

async function say(text) {
  await page.fill("#message", text);
  await page.press("#message", "Enter");
  await page.locator(".message.assistant").last().waitFor();
  await idle();
}

async function shot(name) {
  if (SHOTS) await page.screenshot({ path: `${SHOTS}/${name}.png` });
}

/** A streamed answer of these deltas. */
function stream(deltas, { finish = "stop", usage } = {}) {
  const chunk = (delta, reason = null) =>
    `data: ${JSON.stringify({ model: "canned", choices: [{ index: 0, delta, finish_reason: reason }] })}\n\n`;
  const last = usage ? `data: ${JSON.stringify({ choices: [], usage })}\n\n` : "";
  return {
    status: 200,
    contentType: "text/event-stream",
    body: `${deltas.map((d) => chunk(d)).join("")}${chunk({}, finish)}${last}data: [DONE]\n\n`,
  };
}

/** Puts answers in the server's place, one a request, the last for all that follow; gives the bodies of the requests. */
async function answers(...list) {
  const bodies = [];
  await page.unroute(CHAT);
  await page.route(CHAT, (route) => {
    bodies.push(route.request().postDataJSON());
    const next = list.length > 1 ? list.shift() : list[0];
    return next === "gone" ? route.abort("connectionrefused") : route.fulfill(next);
  });
  return bodies;
}

/** The next reply begins with `text` and then waits until it is stopped. */
async function unending(text) {
  await page.evaluate((chunk) => {
    const real = window.fetch;
    window.fetch = (url, init) => {
      if (!String(url).includes("/chat/completions")) return real(url, init);
      window.fetch = real;
      const body = new ReadableStream({
        start(controller) {
          controller.enqueue(new TextEncoder().encode(chunk));
          init.signal.addEventListener("abort", () => controller.error(init.signal.reason));
        },
      });
      return Promise.resolve(new Response(body, { headers: { "content-type": "text/event-stream" } }));
    };
  }, `data: ${JSON.stringify({ model: "canned", choices: [{ index: 0, delta: { content: text }, finish_reason: null }] })}\n\n`);
}

async function noSideways() {
  const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(content <= window, `${content} wide in ${window}`);
  const inner = await page.evaluate(() =>
    [...document.querySelectorAll("#scroller, #engine-view, #panel, #sidebar")]
      .filter((el) => el.scrollWidth > el.clientWidth)
      .map((el) => el.id),
  );
  assert.deepEqual(inner, []);
}

test("a message is answered, with its figures, and kept over a reload", async () => {
  await open({ params: { seed: 7, max_tokens: 100, temperature: 0.5 } });
  await shot("empty");
  await say("Once upon a time");
  const text = await replyText();
  assert.ok(text.length > 20, text);
  assert.ok(Number(await figure("tokens")) > 20);
  assert.ok(Number(await figure("tok/s")) > 0);
  assert.match(await figure("first"), / s$/);
  assert.ok(Number(await figure("prompt")) > 3);
  assert.match(page.url(), /#\/c\/\w+$/);
  await page.waitForFunction(
    (start) => document.getElementById("announcer").textContent.startsWith(start),
    text.slice(0, 10),
  );
  await page.reload();
  await ready();
  assert.equal(await replyText(), text);
  assert.equal(await page.locator("#title").innerText(), "Once upon a time");
  assert.equal(await page.locator("#conversations li").count(), 1);
  await shot("chat-light");
});

test("a reply is made again, a question asked differently, and both stay", async () => {
  await open();
  await say("Tell me of a cat.");
  const first = await replyText();
  await page.locator('.message.assistant [data-act="again"]').click();
  await page.waitForSelector("text=2/2");
  await idle();
  assert.equal(await replyText(), first, "the same seed gives the same reply");
  await page.getByRole("button", { name: "Earlier version" }).click();
  await page.waitForSelector("text=1/2");
  await page.locator('.message.user [data-act="edit"]').click();
  await page.locator(".editing").fill("Tell me of a boat.");
  await page.locator(".editing").press("Enter");
  await page.waitForSelector('.message.user:has-text("boat")');
  await idle();
  assert.notEqual(await replyText(), first);
  assert.equal(await page.locator(".message").count(), 2);
  await page.locator(".message.user").getByRole("button", { name: "Earlier version" }).click();
  assert.match(await page.locator(".message.user").innerText(), /cat/);
  assert.equal(await replyText(), first);
  await page.locator('.message.assistant [data-act="trash"]').click();
  assert.equal(await page.locator(".message.assistant").count(), 1, "the other version stands in its place");
});

test("a reply is stopped, and the engine stops too", async () => {
  await open({ params: { temperature: 5, seed: 3 } });
  await page.fill("#message", "Once upon a time");
  await page.press("#message", "Enter");
  await page.locator(".message.assistant .md").waitFor();
  await page.keyboard.press("Escape");
  await reply().locator(".note").waitFor();
  assert.equal(await reply().locator(".note").innerText(), "Stopped.");
  assert.ok((await replyText()).length > 0);
  await page.waitForFunction(async () =>
    /num_requests_running\{[^}]*\} 0/.test(await (await fetch("/metrics")).text()),
  );
});

test("asking again while a reply is written ends that one", async () => {
  await open();
  await unending("Once there was");
  await page.fill("#message", "Once upon a time");
  await page.press("#message", "Enter");
  await page.locator(".message.assistant .md").waitFor();
  await page.locator(".message.user").hover();
  await page.locator('.message.user [data-act="edit"]').click();
  await answers(stream([{ content: "Another." }]));
  await page.locator(".editing").press("Enter");
  await page.waitForSelector("text=Another.");
  await idle();
  await page.getByRole("button", { name: "Earlier version" }).click();
  assert.equal(await reply().locator(".note").innerText(), "Stopped.");
});

test("what users and models write stays text", async () => {
  await open();
  const evil = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>';
  await answers(
    stream([
      {
        content: `${evil}\n\n[a](javascript:window.pwned=1) [b](https://example.org/) ![c](https://example.org/c.png)\n\n`,
      },
      { content: `\`\`\`html\n${evil}\n\`\`\`\n\n| ${evil} |\n|---|\n| <svg onload=window.pwned=1> |\n\n# ${evil}` },
    ]),
  );
  await page.fill("#message", evil);
  await page.press("#message", "Enter");
  await reply().locator("table").waitFor();
  await idle();
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  assert.equal(await page.locator("#transcript :is(img, script, iframe, object, form)").count(), 0);
  assert.deepEqual(await page.locator("#transcript a").evaluateAll((links) => links.map((a) => [a.href, a.rel])), [
    ["https://example.org/", "noopener noreferrer nofollow"],
    ["https://example.org/c.png", "noopener noreferrer nofollow"],
  ]);
  assert.equal(await page.locator(".message.user .typed").innerText(), evil);
  assert.ok((await page.locator("#title").innerText()).startsWith("<img"));
});

test("reasoning is folded, calls are shown and answered", async () => {
  await open();
  const call = { tool_calls: [{ index: 0, id: "c1", function: { name: "weather", arguments: '{"city":' } }] };
  const bodies = await answers(
    stream(
      [
        { reasoning_content: "The user wants the weather." },
        call,
        { tool_calls: [{ index: 0, function: { arguments: '"Ulm"}' } }] },
      ],
      { finish: "tool_calls" },
    ),
    stream([{ content: "It rains." }], {
      usage: { prompt_tokens: 90, completion_tokens: 4, prompt_tokens_details: { cached_tokens: 80 } },
    }),
  );
  await page.click("#tune");
  await page.fill("#tools", '[{"name": "weather"}]');
  await page.fill("#system", "Be brief.");
  await page.click("#tune");
  await say("Weather in Ulm?");
  assert.equal(bodies[0].tools[0].function.name, "weather");
  assert.equal(bodies[0].messages[0].content, "Be brief.");
  const details = reply().locator("details.reasoning");
  assert.equal(await details.evaluate((el) => el.open), false);
  await details.locator("summary").click();
  assert.match(await details.innerText(), /The user wants the weather/);
  assert.equal(await reply().locator(".call pre").innerText(), '{\n  "city": "Ulm"\n}');
  await page.getByLabel("Result of weather").fill("rain");
  await page.getByRole("button", { name: "Send results" }).click();
  await page.waitForSelector("text=It rains.");
  await idle();
  const sent = bodies[1].messages.slice(2);
  assert.deepEqual(
    sent.map((m) => [m.role, m.content]),
    [
      ["assistant", ""],
      ["tool", "rain"],
    ],
  );
  assert.equal(sent[0].tool_calls[0].id, sent[1].tool_call_id);
  assert.equal(await figure("cached"), "80");
});

test("token probabilities are shown, hovered and by keyboard", async () => {
  await open();
  await page.click("#tune");
  await page.check("#logprobs");
  await page.click("#tune");
  await say("Once upon a time");
  const text = await replyText();
  await reply().locator('[data-act="tokens"]').click();
  const tokens = reply().locator(".tok");
  assert.ok((await tokens.count()) >= 20);
  const joined = (await tokens.allTextContents()).join("").replaceAll("⏎", "");
  assert.equal(joined.replace(/\s+/g, " ").trim(), text.replace(/\s+/g, " ").trim());
  await tokens.nth(2).hover();
  assert.ok((await page.locator("#alternatives tr").count()) >= 8);
  await shot("tokens");
  await tokens.first().focus();
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.evaluate(() => document.activeElement.dataset.i), "1");
  assert.equal(await page.locator("#alternatives").isVisible(), true);
});

test("errors say what is wrong and what to do", async () => {
  await open();
  const error = (status, message, code, headers = {}) => ({
    status,
    headers,
    contentType: "application/json",
    body: JSON.stringify({ error: { message, code } }),
  });
  await answers({
    ...stream([{ content: "A." }]),
    headers: { "x-hanzo-ignored": "magic", "x-hanzo-warning": "it is late" },
  });
  await say("z");
  assert.deepEqual(await reply().locator(".note").allInnerTexts(), ["it is late", "The server passed over: magic."]);
  await answers(error(429, "The queue is full.", "queue_full", { "retry-after": "4" }), stream([{ content: "Now." }]));
  await say("a");
  assert.match(await reply().locator(".failure").innerText(), /queue is full[\s\S]*in 4 s/);
  await page.getByRole("button", { name: "Try again" }).click();
  await page.waitForSelector("text=Now.");

  await answers({ ...stream([{ content: "Half a" }]), body: 'data: {"choices":[{"delta":{"content":"Half a"}}]}\n\n' });
  await say("b");
  assert.match(await reply().innerText(), /Half a[\s\S]*without finishing/);

  await answers("gone");
  await say("c");
  assert.match(await reply().locator(".failure").innerText(), /does not answer/);
  await page.waitForSelector("text=The server is back.");

  const bodies = await answers(error(401, "A key is needed.", "invalid_api_key"), stream([{ content: "Welcome." }]));
  let key = null;
  page.on("request", (request) => {
    if (request.url().endsWith("/completions")) key = request.headers().authorization;
  });
  await say("d");
  await page.fill("#key", "sesame");
  await page.press("#key", "Enter");
  await page.waitForSelector("#key-dialog:not([open])", { state: "attached" });
  await page.getByRole("button", { name: "Try again" }).last().click();
  await page.waitForSelector("text=Welcome.");
  assert.equal(key, "Bearer sesame");
  assert.equal(bodies.length, 2);
});

test("text files go along; what does not fit the context is said", async () => {
  await open();
  await page.setInputFiles("#file", [
    { name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("fox ".repeat(20_000)) },
    { name: "picture.png", mimeType: "image/png", buffer: Buffer.from([0x89, 0x50, 0, 1]) },
  ]);
  await page.waitForSelector("text=picture.png is not UTF-8 text.");
  assert.deepEqual(await page.locator("#files li").allInnerTexts(), ["notes.txt"]);
  await say("What is in it?");
  assert.match(await reply().locator(".failure").innerText(), /context[\s\S]*new conversation/);
  assert.match(await page.locator(".attached summary").innerText(), /notes\.txt\s+80\u202f000 characters/);
});

test("conversations are renamed, found, exported, deleted, imported", async () => {
  await open();
  await answers(stream([{ content: "Yes." }]));
  await say("first question");
  await page.click("#new");
  await say("second question");
  const items = page.locator("#conversations li");
  await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 2);
  await items.nth(1).hover();
  await page.getByRole("button", { name: "Rename “first question”" }).click();
  await page.keyboard.type("Foxes");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "Foxes" }).waitFor();
  await page.fill("#search", "fox");
  assert.equal(await items.count(), 1);
  await page.fill("#search", "");
  await page.click("#tune");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#export")]);
  const file = await readFile(await download.path());
  assert.equal(JSON.parse(file).conversations.length, 2);
  await page.getByRole("link", { name: "Foxes" }).hover();
  await page.getByRole("button", { name: "Delete “Foxes”" }).click();
  await page.click("#ask-yes");
  await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 1);
  await page.setInputFiles("#import-file", { name: "e.json", mimeType: "application/json", buffer: file });
  await page.waitForSelector("text=2 conversations imported.");
  await page.waitForFunction(() => document.querySelectorAll("#conversations li").length === 3);
  await page.getByRole("link", { name: "Foxes" }).click();
  await page.waitForSelector('.message.user:has-text("first question")');
  await page.setInputFiles("#import-file", {
    name: "bad.json",
    mimeType: "application/json",
    buffer: Buffer.from("{}"),
  });
  await page.waitForSelector("text=not an export");
});

test("everything is done without a mouse", async () => {
  await open();
  await page.keyboard.type("Once upon a time");
  await page.keyboard.press("Enter");
  await reply().waitFor();
  await idle();
  await page.keyboard.press("Tab");
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("k");
  assert.equal(await page.evaluate(() => document.activeElement.classList.contains("assistant")), true);
  await page.keyboard.press("k");
  assert.equal(await page.evaluate(() => document.activeElement.classList.contains("user")), true);
  await page.keyboard.press("r");
  await page.waitForSelector("text=2/2");
  await idle();
  await page.keyboard.press("e");
  assert.equal(await page.evaluate(() => document.activeElement.className), "editing");
  await page.keyboard.press("Escape");
  await page.keyboard.press("s");
  assert.equal(await page.evaluate(() => document.activeElement.id), "system");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#panel").isVisible(), false);
  await page.keyboard.press("?");
  assert.equal(await page.locator("#help").isVisible(), true);
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.waitForSelector("#engine-view:not([hidden])");
  await page.keyboard.press("g");
  await page.waitForSelector("#chat-view:not([hidden])");
  await page.keyboard.press("n");
  assert.equal(await page.evaluate(() => document.activeElement.id), "message");
  assert.equal(await page.locator(".message").count(), 0);
  await page.keyboard.press("Control+k");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".message.user");
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.id), "message");
  await page.keyboard.type("n?");
  assert.equal(await page.inputValue("#message"), "n?", "letters are letters in a field");
});

test("every control has a name", async () => {
  await open();
  await answers(stream([{ content: "```js\nx\n```" }]));
  await say("a");
  for (const id of ["#tune", "#menu"]) await page.locator(id).evaluate((el) => el.click());
  const nameless = await page.evaluate(() =>
    [...document.querySelectorAll("button, input:not([hidden]), textarea, select, a, [role=region]")]
      .filter(
        (el) =>
          !(el.getAttribute("aria-label") || el.innerText?.trim() || el.labels?.length > 0 || el.textContent.trim()),
      )
      .map((el) => el.outerHTML),
  );
  assert.deepEqual(nameless, []);
});

test("light and dark, by the system and by choice", async () => {
  await open({ colorScheme: "dark" });
  const paper = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const dark = await paper();
  await shot("dark");
  await page.click("#theme");
  const light = await paper();
  assert.notEqual(light, dark);
  await page.reload();
  await ready();
  assert.equal(await paper(), light, "the choice is kept");
  await page.click("#theme");
  assert.equal(await page.evaluate(() => localStorage.getItem("hanzo.theme")), null, "back at the system's");
  await page.emulateMedia({ colorScheme: "light" });
  assert.equal(await paper(), light);
});

test("nothing is cut off or scrolls sideways on a phone", async () => {
  await open({ viewport: { width: 360, height: 640 }, isMobile: true, hasTouch: true });
  const wide = `${"long".repeat(200)}\n\n\`\`\`\n${"code ".repeat(60)}\n\`\`\`\n\n|${" column |".repeat(12)}\n|${"---|".repeat(12)}\n\n$${"x".repeat(200)}$ \`${"y".repeat(300)}\``;
  await answers(
    stream(
      [
        { reasoning_content: wide },
        { content: wide },
        { tool_calls: [{ index: 0, id: "c", function: { name: "n".repeat(80), arguments: `"${"z".repeat(400)}"` } }] },
      ],
      { usage: { prompt_tokens: 90_000, completion_tokens: 40_000, prompt_tokens_details: { cached_tokens: 80_000 } } },
    ),
  );
  await page.fill("#message", "w".repeat(300));
  await page.tap("#send");
  await reply().locator(".body > .md table").waitFor();
  await idle();
  await reply().locator("details summary").first().click();
  await noSideways();
  await shot("phone");
  await page.tap("#menu");
  await noSideways();
  await page.tap("#engine-link");
  await page.waitForSelector("#engine-state[data-state=live]");
  await noSideways();
  await shot("phone-engine");
});

test("the engine's page is live", async () => {
  await open();
  await say("Once upon a time");
  await page.click("#engine-link");
  await page.waitForSelector("#engine-state[data-state=live]");
  const tile = (name) => page.locator(`#tiles div:has(dt:text-is("${name}")) dd`).innerText();
  assert.match(await tile("Running"), /^0/);
  assert.match(await tile("KV cache"), /%\s*of [\d\u202f]+ tokens/);
  const written = page.locator('#engine-more tr:has-text("Tokens written") td');
  assert.ok(Number((await written.innerText()).replaceAll("\u202f", "")) >= 24);
  await page.waitForFunction(() => document.querySelectorAll("#charts svg .line").length >= 4);
  await shot("engine");
  await page.route("**/metrics", (route) => route.abort("connectionrefused"));
  await page.waitForSelector("#engine-state[data-state=off]");
});
