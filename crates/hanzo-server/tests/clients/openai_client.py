"""The official Python client against a running server: `python openai_client.py BASE_URL`. Prints one line a check."""

import json
import sys

import openai

from checks import check

client = openai.OpenAI(base_url=sys.argv[1], api_key="sesame", max_retries=0, timeout=60)
MODEL = "hanzo-tiny"
ASK = [{"role": "system", "content": "Tell a story."}, {"role": "user", "content": "Once upon a time"}]

models = client.models.list().data
check("models", [m.id for m in models] == [MODEL] and client.models.retrieve(MODEL).id == MODEL, models)

whole = client.chat.completions.create(model=MODEL, messages=ASK, max_completion_tokens=24, temperature=0)
text = whole.choices[0].message.content
check("chat", text and whole.usage.completion_tokens <= 24 and whole.choices[0].finish_reason in ("stop", "length"), whole)

again = client.chat.completions.create(model=MODEL, messages=ASK, max_completion_tokens=24, temperature=0)
check("same again", again.choices[0].message.content == text, again)

chunks = list(client.chat.completions.create(
    model=MODEL, messages=ASK, max_completion_tokens=24, temperature=0, stream=True,
    stream_options={"include_usage": True}))
streamed = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
check("stream", streamed == text and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens, streamed)

several = client.chat.completions.create(model=MODEL, messages=ASK, n=3, seed=7, max_completion_tokens=12, temperature=1.0)
texts = [c.message.content for c in several.choices]
alone = client.chat.completions.create(model=MODEL, messages=ASK, n=1, seed=7, max_completion_tokens=12, temperature=1.0)
check("n", len(texts) == 3 and len(set(texts)) > 1 and alone.choices[0].message.content == texts[0], texts)

likely = client.chat.completions.create(
    model=MODEL, messages=ASK, logprobs=True, top_logprobs=3, max_completion_tokens=6, temperature=0)
entries = likely.choices[0].logprobs.content
check("logprobs", "".join(e.token for e in entries).startswith(likely.choices[0].message.content.strip()[:8])
      and all(len(e.top_logprobs) == 3 and e.logprob <= 0 and e.top_logprobs[0].logprob >= e.logprob for e in entries), entries)
streamed = [c.choices[0] for c in client.chat.completions.create(
    model=MODEL, messages=ASK, logprobs=True, top_logprobs=3, max_completion_tokens=6, temperature=0, stream=True) if c.choices]
tokens = [e.token for c in streamed if c.logprobs for e in c.logprobs.content]
check("logprobs streamed", tokens == [e.token for e in entries], tokens)

stopped = client.chat.completions.create(model=MODEL, messages=ASK, max_completion_tokens=24, temperature=0, stop=[text[5:9]])
check("stop", stopped.choices[0].message.content == text[:5] and stopped.choices[0].finish_reason == "stop", stopped)

schema = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
for stream in (False, True):
    reply = client.chat.completions.create(
        model=MODEL, messages=ASK, max_completion_tokens=600, temperature=0, stream=stream,
        response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}})
    content = "".join(c.choices[0].delta.content or "" for c in reply) if stream else reply.choices[0].message.content
    value = json.loads(content)
    check(f"json_schema, stream {stream}", set(value) == {"name", "age"} and 0 <= value["age"] <= 99, content)

tools = [
    {"type": "function", "function": {"name": "weather", "description": "Weather of a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 10}, "days": {"$ref": "#/$defs/days"}},
        "required": ["city", "days"], "additionalProperties": False, "$defs": {"days": {"enum": [1, 2, 3]}}}}},
    {"type": "function", "function": {"name": "noon", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}},
]
for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
    for stream in (False, True):
        reply = client.chat.completions.create(
            model=MODEL, messages=ASK, tools=tools, tool_choice=choice, parallel_tool_calls=False, max_completion_tokens=200, seed=3,
            stream=stream)
        if stream:
            calls, reason = {}, None
            for chunk in reply:
                for c in chunk.choices:
                    reason = c.finish_reason or reason
                    for part in c.delta.tool_calls or []:
                        call = calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
                        call["id"] += part.id or ""
                        call["name"] += part.function.name or ""
                        call["arguments"] += part.function.arguments or ""
            calls = list(calls.values())
        else:
            reason = reply.choices[0].finish_reason
            calls = [{"id": c.id, "name": c.function.name, "arguments": c.function.arguments}
                     for c in reply.choices[0].message.tool_calls or []]
        check(f"tools, {choice}, stream {stream}", reason == "tool_calls" and len(calls) == 1 and calls[0]["id"], (reason, calls))
        arguments = json.loads(calls[0]["arguments"])
        if calls[0]["name"] == "weather":
            check("arguments", set(arguments) == {"city", "days"} and arguments["days"] in (1, 2, 3), arguments)

history = ASK[1:] + [
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "noon", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "call_1", "content": "12:00"},
]
try:
    client.chat.completions.create(model=MODEL, messages=history, tools=tools, max_completion_tokens=4)
    check("tool history", True)
except openai.BadRequestError as error:
    # This model's template knows no calls: it may refuse them, in words.
    check("tool history refused", "template" in str(error), error)

done = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=8, temperature=0, logprobs=2, n=1)
entry = done.choices[0].logprobs
check("completions", "".join(entry.tokens) == done.choices[0].text and len(entry.top_logprobs[0]) == 2
      and entry.text_offset[0] == 0, done)
echoed = client.completions.create(model=MODEL, prompt=["Once upon a time", "The fox"], max_tokens=4, temperature=0, echo=True, n=2)
check("echo, several prompts", [c.index for c in echoed.choices] == [0, 1, 2, 3]
      and echoed.choices[2].text.startswith("The fox"), echoed)
scored = client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=2, temperature=0, echo=True, logprobs=1)
entry = scored.choices[0].logprobs
check("scores of the prompt", entry.token_logprobs[0] is None and all(p <= 0 for p in entry.token_logprobs[1:])
      and "".join(entry.tokens) == scored.choices[0].text, entry)
chunks = list(client.completions.create(model=MODEL, prompt=["Once upon a time", "The fox"], max_tokens=8, temperature=0, stream=True))
first = "".join(c.choices[0].text for c in chunks if c.choices[0].index == 0)
check("completions streamed", first == done.choices[0].text, first)

for name, call, kind in [
    ("unknown model", lambda: client.chat.completions.create(model="x", messages=ASK), openai.NotFoundError),
    ("empty messages", lambda: client.chat.completions.create(model=MODEL, messages=[]), openai.BadRequestError),
    ("wrong key", lambda: client.with_options(api_key="no").models.list(), openai.AuthenticationError),
]:
    try:
        call()
        check(name, False)
    except kind as error:
        check(name, error.body["message"], error)
