// Three chat requests with OpenAI's client: a reply at once, one as it is written, one that fits a JSON schema.

import OpenAI from "openai";

const client = new OpenAI({
  baseURL: `${process.env.HANZO_URL ?? "http://127.0.0.1:8080"}/v1`,
  apiKey: process.env.HANZO_API_KEY ?? "none",
});
const model = (await client.models.list()).data[0].id;
const story = [{ role: "user", content: "Once upon a time" }];

const reply = await client.chat.completions.create({ model, messages: story, max_completion_tokens: 32 });
console.log(reply.choices[0].message.content);

const stream = await client.chat.completions.create({
  model,
  messages: story,
  max_completion_tokens: 32,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  if (chunk.choices.length > 0) process.stdout.write(chunk.choices[0].delta.content ?? "");
  else if (chunk.usage) console.log(`\n(${chunk.usage.completion_tokens} tokens)`);
}

const schema = {
  type: "object",
  properties: { colour: { enum: ["red", "green", "blue"] } },
  required: ["colour"],
  additionalProperties: false,
};
const held = await client.chat.completions.create({
  model,
  messages: [{ role: "user", content: "A colour, please." }],
  max_completion_tokens: 256,
  temperature: 0,
  response_format: { type: "json_schema", json_schema: { name: "colour", strict: true, schema } },
});
console.log(JSON.parse(held.choices[0].message.content).colour);
