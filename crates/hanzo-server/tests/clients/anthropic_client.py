"""Anthropic's official Python client against a running server: `python anthropic_client.py BASE_URL`. Prints one line a check."""

import sys

import anthropic

from checks import check

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="sesame", max_retries=0, timeout=60)
MODEL = "hanzo-tiny"
ASK = [{"role": "user", "content": "Once upon a time"}]
# The client has no argument for these any more; servers still take them.
GREEDY = {"extra_body": {"temperature": 0}}

whole = client.messages.create(model=MODEL, max_tokens=16, system="Tell a story.", messages=ASK, **GREEDY)
text = whole.content[0].text
check("messages", text and whole.role == "assistant" and whole.stop_reason in ("end_turn", "max_tokens")
      and 0 < whole.usage.output_tokens <= 16, whole)

with client.messages.stream(model=MODEL, max_tokens=16, system="Tell a story.", messages=ASK, **GREEDY) as stream:
    pieces = list(stream.text_stream)
    final = stream.get_final_message()
check("stream", "".join(pieces) == text and len(pieces) > 1 and final.content[0].text == text
      and final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens, final)

events = list(client.messages.create(model=MODEL, max_tokens=4, messages=ASK, stream=True))
check("events", events[0].type == "message_start" and events[-1].type == "message_stop", [e.type for e in events])

count = client.messages.count_tokens(model=MODEL, system="Tell a story.", messages=ASK)
check("count_tokens", count.input_tokens == whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0), (count, whole.usage))

stopped = client.messages.create(model=MODEL, max_tokens=16, system="Tell a story.", messages=ASK, **GREEDY,
                                 stop_sequences=[text[5:9]])
check("stop_sequences", stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == text[5:9]
      and stopped.content[0].text == text[:5], stopped)

tools = [
    {"name": "weather", "description": "Weather of a city", "input_schema": {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 10}, "days": {"enum": [1, 2, 3]}},
        "required": ["city", "days"], "additionalProperties": False}},
    {"name": "noon", "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}},
]
for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "weather"}):
    asked = {"model": MODEL, "max_tokens": 600, "messages": ASK, "tools": tools, "tool_choice": choice, **GREEDY}
    reply = client.messages.create(**asked)
    calls = [block for block in reply.content if block.type == "tool_use"]
    check(f"tools, {choice['type']}", reply.stop_reason == "tool_use" and len(calls) == 1 and calls[0].id, reply)
    if calls[0].name == "weather":
        check("input", set(calls[0].input) == {"city", "days"} and calls[0].input["days"] in (1, 2, 3), calls)
    with client.messages.stream(**asked) as stream:
        for _ in stream:
            pass
        streamed = [block for block in stream.get_final_message().content if block.type == "tool_use"]
    check(f"tools streamed, {choice['type']}",
          [(c.name, c.input) for c in streamed] == [(c.name, c.input) for c in calls], (streamed, calls))

# This model's template knows no calls: it may refuse a history with them, in words.
history = ASK + [
    {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "noon", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "12:00"}]},
]
try:
    client.messages.create(model=MODEL, max_tokens=4, messages=history, tools=tools)
    check("tool history", True)
except anthropic.BadRequestError as error:
    check("tool history refused", "template" in str(error), error)

check("models", [m.id for m in client.models.list()] == [MODEL])

for name, call, kind in [
    ("unknown model", lambda: client.messages.create(model="x", max_tokens=1, messages=ASK), anthropic.NotFoundError),
    ("empty messages", lambda: client.messages.create(model=MODEL, max_tokens=1, messages=[]), anthropic.BadRequestError),
    ("wrong key", lambda: client.with_options(api_key="no").messages.create(model=MODEL, max_tokens=1, messages=ASK),
     anthropic.AuthenticationError),
]:
    try:
        call()
        check(name, False)
    except kind as error:
        check(name, error.body["error"]["message"], error)
