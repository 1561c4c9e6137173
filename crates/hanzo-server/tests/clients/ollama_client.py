"""Ollama's official Python client against a running server: `python ollama_client.py BASE_URL`. Prints one line a check."""

import json
import sys

import ollama

from checks import check

client = ollama.Client(host=sys.argv[1], headers={"Authorization": "Bearer sesame"}, timeout=60)
MODEL = "hanzo-tiny"
ASK = [{"role": "user", "content": "Once upon a time"}]
GREEDY = {"temperature": 0, "num_predict": 12}

models = client.list().models
check("list", [m.model for m in models] == [MODEL] and models[0].size > 0 and models[0].details.format == "gguf", models)
shown = client.show(MODEL)
check("show", shown.template and "completion" in shown.capabilities
      and shown.modelinfo["general.architecture"] == shown.details.family, shown)
running = client.ps().models
check("ps", [m.model for m in running] == [MODEL] and running[0].size > 0 and running[0].expires_at.year >= 2026, running)

whole = client.chat(MODEL, ASK, options=GREEDY)
check("chat", whole.message.content and whole.done and whole.eval_count <= 12 and whole.done_reason in ("stop", "length"), whole)
parts = list(client.chat(MODEL, ASK, options=GREEDY, stream=True))
check("chat streamed", "".join(p.message.content for p in parts) == whole.message.content and len(parts) > 2
      and parts[-1].done and parts[-1].eval_count == whole.eval_count, parts)

one = client.generate(MODEL, "Once upon a time", options=GREEDY)
check("generate", one.response == whole.message.content and one.total_duration >= one.eval_duration > 0, one)
parts = list(client.generate(MODEL, "Once upon a time", options=GREEDY, stream=True))
check("generate streamed", "".join(p.response for p in parts) == one.response and parts[-1].done, parts)

schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"],
          "additionalProperties": False}
held = client.chat(MODEL, ASK, format=schema, options={"temperature": 0, "num_predict": 64})
check("format", 1 <= json.loads(held.message.content)["n"] <= 9, held)


def noon() -> str:
    """Tells the time."""


free = client.chat(MODEL, ASK, tools=[noon], options=GREEDY)
check("tools", free.message.content or free.message.tool_calls, free)

vectors = client.embed(MODEL, ["one", "two"]).embeddings
check("embed", len(vectors) == 2 and len(vectors[0]) == len(vectors[1]) > 8 and vectors[0] != vectors[1], len(vectors))
old = client.embeddings(MODEL, "one").embedding
check("embeddings", list(old) == list(vectors[0]), old)

for name, call, status in [
    ("unknown model", lambda: client.chat("x", ASK), 404),
    ("bad option", lambda: client.generate(MODEL, "x", options={"top_p": 7}), 400),
    ("wrong key", lambda: ollama.Client(host=sys.argv[1], headers={"Authorization": "Bearer no"}).list(), 401),
]:
    try:
        call()
        check(name, False)
    except ollama.ResponseError as error:
        check(name, error.status_code == status and error.error, error)
