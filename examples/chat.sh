#!/usr/bin/env bash
# Three chat requests by curl: a reply at once, one as it is written, one that fits a JSON schema.
set -euo pipefail

url=${HANZO_URL:-http://127.0.0.1:8080}
ask() {
  curl -sS --fail-with-body -N "$url/v1/chat/completions" -H 'Content-Type: application/json' \
    -H "Authorization: Bearer ${HANZO_API_KEY:-none}" -d "$1"
  echo
}

ask '{"messages": [{"role": "user", "content": "Once upon a time"}], "max_completion_tokens": 32}'

ask '{"messages": [{"role": "user", "content": "Once upon a time"}], "max_completion_tokens": 32, "stream": true,
      "stream_options": {"include_usage": true}}'

ask '{"messages": [{"role": "user", "content": "A colour, please."}], "max_completion_tokens": 256, "temperature": 0,
      "response_format": {"type": "json_schema", "json_schema": {"name": "colour", "strict": true, "schema": {
        "type": "object", "properties": {"colour": {"enum": ["red", "green", "blue"]}}, "required": ["colour"],
        "additionalProperties": false}}}}'
