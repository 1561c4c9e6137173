"""Three chat requests with OpenAI's client: a reply at once, one as it is written, one that fits a JSON schema."""

import json
import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("HANZO_URL", "http://127.0.0.1:8080") + "/v1",
    api_key=os.environ.get("HANZO_API_KEY", "none"),
)
model = client.models.list().data[0].id
story = [{"role": "user", "content": "Once upon a time"}]

reply = client.chat.completions.create(model=model, messages=story, max_completion_tokens=32)
print(reply.choices[0].message.content)

stream = client.chat.completions.create(
    model=model, messages=story, max_completion_tokens=32, stream=True, stream_options={"include_usage": True}
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    elif chunk.usage:
        print(f"\n({chunk.usage.completion_tokens} tokens)")

schema = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green", "blue"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
reply = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "A colour, please."}],
    max_completion_tokens=256,
    temperature=0,
    response_format={"type": "json_schema", "json_schema": {"name": "colour", "strict": True, "schema": schema}},
)
print(json.loads(reply.choices[0].message.content)["colour"])
