// OpenAI's official client for Node against a running server: `node openai_client.mjs BASE_URL`. Prints one line a check.

import assert from 'node:assert/strict'
import OpenAI from 'openai'

const model = 'hanzo-tiny'
const messages = [{ role: 'user', content: 'Once upon a time' }]
const client = new OpenAI({ baseURL: process.argv[2], apiKey: 'sesame', maxRetries: 0, timeout: 60_000 })

async function check(name, run) {
  await run()
  console.log('ok:', name)
}

let text
await check('chat', async () => {
  const whole = await client.chat.completions.create({ model, messages, temperature: 0, max_completion_tokens: 16 })
  text = whole.choices[0].message.content
  assert.ok(text.length > 0 && whole.usage.completion_tokens <= 16)
})

await check('chat streamed', async () => {
  const stream = await client.chat.completions.create({
    model, messages, temperature: 0, max_completion_tokens: 16, stream: true, stream_options: { include_usage: true },
  })
  let joined = '', usage
  for await (const chunk of stream) {
    joined += chunk.choices[0]?.delta?.content ?? ''
    usage = chunk.usage ?? usage
  }
  assert.equal(joined, text)
  assert.ok(usage.completion_tokens <= 16)
})

await check('a stream that is left', async () => {
  const stream = await client.chat.completions.create({ model, messages, max_completion_tokens: 200, ignore_eos: true, stream: true })
  for await (const _ of stream) break
  assert.ok(stream.controller.signal.aborted)
})

const parameters = {
  type: 'object',
  properties: { city: { type: 'string', maxLength: 10 }, days: { enum: [1, 2, 3] } },
  required: ['city', 'days'],
  additionalProperties: false,
}
await check('tools', async () => {
  const asked = {
    model, messages, seed: 3, max_completion_tokens: 200, tool_choice: 'required', parallel_tool_calls: false,
    tools: [{ type: 'function', function: { name: 'weather', parameters, strict: true } }],
  }
  const whole = (await client.chat.completions.create(asked)).choices[0]
  assert.equal(whole.finish_reason, 'tool_calls')
  const call = whole.message.tool_calls[0]
  assert.deepEqual(Object.keys(JSON.parse(call.function.arguments)).sort(), ['city', 'days'])
  // The client's own joining of the deltas.
  const final = await client.chat.completions.stream(asked).finalChatCompletion()
  assert.equal(final.choices[0].message.tool_calls[0].function.name, 'weather')
  assert.equal(final.choices[0].message.tool_calls[0].function.arguments, call.function.arguments)
})

await check('responses', async () => {
  const asked = { model, input: 'Once upon a time', temperature: 0, max_output_tokens: 16 }
  const whole = await client.responses.create(asked)
  assert.equal(whole.output_text, text)
  const next = await client.responses.create({ ...asked, input: 'And then?', previous_response_id: whole.id })
  assert.equal(next.previous_response_id, whole.id)
  assert.equal((await client.responses.retrieve(whole.id)).output_text, text)
  let joined = ''
  const stream = client.responses.stream(asked)
  stream.on('response.output_text.delta', event => { joined += event.delta })
  assert.equal((await stream.finalResponse()).output_text, text)
  assert.equal(joined, text)
  await client.responses.delete(whole.id)
  await assert.rejects(client.responses.retrieve(whole.id), OpenAI.NotFoundError)
})

await check('responses with tools', async () => {
  const asked = {
    model, input: 'Once upon a time', seed: 3, max_output_tokens: 200, tool_choice: 'required', parallel_tool_calls: false,
    tools: [{ type: 'function', name: 'weather', parameters, strict: true }],
  }
  const call = (await client.responses.create(asked)).output.find(item => item.type === 'function_call')
  assert.ok(JSON.parse(call.arguments).city !== undefined)
  const final = await client.responses.stream(asked).finalResponse()
  assert.equal(final.output.find(item => item.type === 'function_call').arguments, call.arguments)
})

await check('embeddings', async () => {
  // The client asks for base64 and decodes it, unless told otherwise.
  const packed = await client.embeddings.create({ model, input: ['one', 'two'] })
  const plain = await client.embeddings.create({ model, input: 'one', encoding_format: 'float' })
  assert.equal(packed.data.length, 2)
  assert.equal(packed.data[0].embedding.length, plain.data[0].embedding.length)
  packed.data[0].embedding.forEach((x, i) => assert.ok(Math.abs(x - plain.data[0].embedding[i]) < 1e-6))
})

await check('models', async () => {
  const names = []
  for await (const entry of client.models.list()) names.push(entry.id)
  assert.deepEqual(names, [model])
})

await check('errors', async () => {
  await assert.rejects(client.chat.completions.create({ model: 'x', messages }), OpenAI.NotFoundError)
  await assert.rejects(client.chat.completions.create({ model, messages: [] }), OpenAI.BadRequestError)
  await assert.rejects(client.withOptions({ apiKey: 'no' }).models.list(), OpenAI.AuthenticationError)
})
