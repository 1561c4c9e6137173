#!/usr/bin/env python3
"""`hanzo serve` against llama-server over HTTP: the same file, the same requests, in turn, each time a new process.

    scripts/serve_bench.py --model M.gguf --llama-server PATH [--hanzo target/release/hanzo] [options] [--json FILE]

A round of one server: start it, ask /health until it says ready, one request to warm up, then `--requests` chat completions from each of
`--streams` clients at once, streamed, greedy, `--tokens` tokens each whether or not the model would stop, no two prompts alike (so that no
prefix cache helps); then the same from one client alone. All clocks are the client's: tokens a second over all streams, time to the first
piece of text, gaps between pieces.

    scripts/serve_bench.py --overhead --model M.gguf [--hanzo target/release/hanzo] [options] [--json FILE]

What HTTP costs a token: in turn, `hanzo bench` (the device's steps alone) and one stream of `hanzo serve` without drafts, at about the same
depth, read by a client that does next to nothing (it takes bytes from the socket and looks at the last of them). Beside the times, which
other programs disturb, it tells the processor time and the switches a token of those threads of the server that do not compute.

Needs Python's standard library only; traffic stays on the loopback interface.
"""

import argparse
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

WORDS = "river stone lantern orchard engine copper winter market signal garden harbor thread mirror basket thunder velvet".split()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def prompt(stream, request, words):
    """A prompt of about `words` words that differs from all others from its first word on."""
    n = 7919 * stream + 104729 * request + 13
    picked = []
    for _ in range(words):
        n = (n * 6364136223846793005 + 1442695040888963407) % 2**64
        picked.append(WORDS[(n >> 33) % len(WORDS)])
    return f"Request {stream}-{request}. Tell a long story with the words {' '.join(picked)}."


class Server:
    """A server process; `ready` is the time from its start to the first /health that says 200."""

    def __init__(self, command, port):
        self.port, self.log = port, tempfile.TemporaryFile()
        start = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        while True:
            if self.process.poll() is not None or time.perf_counter() - start > 120:
                self.log.seek(0)
                tail = self.log.read()[-800:].decode(errors="replace")
                sys.exit(f"{command[0]} did not become ready:\n{tail}")
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    break
            except OSError:
                pass
            time.sleep(0.005)
        self.ready = time.perf_counter() - start

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def chat(port, text, tokens):
    """One streamed request: (seconds to the first piece, times of pieces, tokens of the reply as the server counts them)."""
    body = {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    start = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"{response.status}: {response.read()[:300]!r}")
    times, count = [], None
    for line in response:
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        event = json.loads(line[6:])
        if event.get("usage"):
            count = event["usage"]["completion_tokens"]
        if any(c.get("delta", {}).get("content") for c in event.get("choices", [])):
            times.append(time.perf_counter() - start)
    connection.close()
    if count != tokens:
        raise RuntimeError(f"{count} tokens came, {tokens} were asked for")
    return times


def load(port, streams, requests, tokens, words):
    """`streams` clients, each its requests one after the other."""
    results, faults = [[] for _ in range(streams)], []

    def client(i):
        try:
            for r in range(requests):
                results[i].append(chat(port, prompt(i, r, words), tokens))
        except Exception as e:  # noqa: BLE001: told below
            faults.append(e)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(streams)]
    start = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    wall = time.perf_counter() - start
    if faults:
        raise faults[0]
    replies = [times for client in results for times in client]
    gaps = [b - a for times in replies for a, b in zip(times, times[1:])]
    return {
        "wall_s": wall,
        "tokens": streams * requests * tokens,
        "first_s": [times[0] for times in replies],
        "decode_s": sum(times[-1] - times[0] for times in replies),
        "gaps_s": gaps,
    }


def percentile(values, p):
    values = sorted(values)
    at = p * (len(values) - 1)
    low = int(at)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low)


def stream_raw(port, text, tokens):
    """Seconds from the first text to the end of one streamed reply, of which nothing is read but its end."""
    body = json.dumps({
        "messages": [{"role": "user", "content": text}], "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True},
    }).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=600) as s:
        s.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        first, tail, seen = None, b"", b""
        while part := s.recv(1 << 16):
            if first is None:
                seen += part
                # The first event has the role alone.
                if seen.count(b"data: ") > 1:
                    first = time.perf_counter()
            tail = (tail + part)[-1500:]
        end = time.perf_counter()
    if b"data: [DONE]" not in tail or b'"completion_tokens":%d' % tokens not in tail:
        raise RuntimeError(f"not {tokens} tokens: {tail!r}")
    return end - first


def threads_of(pid):
    """Of each thread: name, nanoseconds on a processor, times that it gave one up."""
    out = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        at = f"/proc/{pid}/task/{tid}"
        with open(f"{at}/comm") as comm, open(f"{at}/schedstat") as stat, open(f"{at}/status") as status:
            switches = sum(int(line.split()[1]) for line in status if "ctxt_switches" in line)
            out[tid] = (comm.read().strip(), int(stat.read().split()[0]), switches)
    return out


def overhead(args):
    """The table of `--overhead`, and its samples."""
    bench, served, cpu, switches = [], [], [], []
    depth = 32 + 2 * args.words
    for r in range(args.rounds):
        command = [args.hanzo, "bench", "-m", args.model, "-p", "0", "-n", str(args.tokens), "-r", "2", "-d", str(depth),
                   "-t", str(args.threads), "--json"]
        cell = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["cells"][0]
        bench += [seconds / n for seconds, n in cell["samples"][cell["warm_up"]:]]
        port = free_port()
        server = Server([args.hanzo, "serve", args.model, "--port", str(port), "--threads", str(args.threads), "--draft-max", "0"], port)
        try:
            stream_raw(port, "Warm up.", 16)
            for i in range(2):
                before = threads_of(server.process.pid)
                served.append(stream_raw(port, prompt(i, r, args.words), args.tokens) / (args.tokens - 1))
                after = threads_of(server.process.pid)
                others = [(t, v) for t, v in after.items() if not v[0].startswith(("hanzo-cpu", "hanzo-engine"))]
                gone = lambda at: sum(v[at] - before.get(t, (0, 0, 0))[at] for t, v in others) / args.tokens  # noqa: E731
                cpu.append(1e-9 * gone(1))
                switches.append(gone(2))
        finally:
            server.stop()
        print(f"round {r + 1}: {1e3 * bench[-1]:.3f} and {1e3 * served[-1]:.3f} ms a token", file=sys.stderr)
    print(f"{os.path.basename(args.model)}, {args.threads} threads, {args.tokens} tokens, {args.rounds} rounds\n")
    print("| | least ms a token | median |\n|---|---:|---:|")
    for name, values in (("hanzo bench", bench), ("hanzo serve", served)):
        print(f"| {name} | {1e3 * min(values):.3f} | {1e3 * statistics.median(values):.3f} |")
    low, mid = min(served) / min(bench) - 1, statistics.median(served) / statistics.median(bench) - 1
    print(f"| more | {100 * low:+.1f} % | {100 * mid:+.1f} % |")
    print(f"\nThreads that do not compute: {1e6 * min(cpu):.0f} µs of a processor a token at least, {1e6 * statistics.median(cpu):.0f} in the "
          f"median; {statistics.median(switches):.1f} switches.")
    return {"bench_s": bench, "served_s": served, "cpu_s": cpu, "switches": switches}


def write_json(args, content):
    with open(args.json + ".new", "w", encoding="utf-8") as out:
        told = {k: v for k, v in vars(args).items() if k not in ("hanzo", "llama_server", "json", "model")}
        json.dump({"arguments": told, "model": os.path.basename(args.model), **content}, out)
    os.replace(args.json + ".new", args.json)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--model", required=True)
    ap.add_argument("--hanzo", default="target/release/hanzo")
    ap.add_argument("--llama-server", help="left out: hanzo alone")
    ap.add_argument("--threads", type=int, default=os.cpu_count())
    ap.add_argument("--streams", type=int, default=8)
    ap.add_argument("--requests", type=int, default=2)
    ap.add_argument("--tokens", type=int, default=128)
    ap.add_argument("--words", type=int, default=24, help="of the prompt")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--overhead", action="store_true", help="what HTTP costs a token")
    ap.add_argument("--json", help="write all samples here")
    args = ap.parse_args()
    if args.overhead:
        samples = overhead(args)
        if args.json:
            write_json(args, {"samples": samples})
        return

    # A context that holds every stream's prompt and reply; llama-server divides its own by the number of slots.
    per_stream = 64 + 6 * args.words + args.tokens
    t, n = str(args.threads), str(args.streams)
    commands = {"hanzo": lambda p: [args.hanzo, "serve", args.model, "--port", p, "--threads", t]}
    if args.llama_server:
        commands["llama-server"] = lambda p: [
            args.llama_server, "-m", args.model, "--port", p, "-t", t, "-tb", t, "-np", n, "-fa", "on",
            "-c", str(per_stream * args.streams), "--no-webui",
        ]
    samples = {name: [] for name in commands}
    for r in range(args.rounds):
        for name, command in commands.items():
            port = free_port()
            server = Server(command(str(port)), port)
            try:
                chat(port, "Warm up.", 8)
                many = load(port, args.streams, args.requests, args.tokens, args.words)
                alone = load(port, 1, 1, args.tokens, args.words + r)
            finally:
                server.stop()
            samples[name].append({"ready_s": server.ready, "many": many, "alone": alone})
            print(f"round {r + 1} {name}: {many['tokens'] / many['wall_s']:.1f} tok/s", file=sys.stderr)

    rows = {}
    for name, rounds in samples.items():
        first = [s for r in rounds for s in r["many"]["first_s"]]
        gaps = [s for r in rounds for s in r["many"]["gaps_s"]]
        alone = [(args.tokens - 1) / r["alone"]["decode_s"] for r in rounds]
        rows[name] = {
            "ready_s": statistics.median(r["ready_s"] for r in rounds),
            "tokens_per_s": statistics.mean(r["many"]["tokens"] / r["many"]["wall_s"] for r in rounds),
            "first_p50_s": percentile(first, 0.5),
            "first_p95_s": percentile(first, 0.95),
            "gap_p50_s": percentile(gaps, 0.5),
            "gap_p99_s": percentile(gaps, 0.99),
            "alone_tokens_per_s": statistics.mean(alone),
        }
    print(f"{os.path.basename(args.model)}, {args.threads} threads, {args.streams} streams, {args.tokens} tokens, {args.rounds} rounds\n")
    print("| server | ready s | tok/s, all streams | first text p50 / p95 s | gap p50 / p99 ms | tok/s alone |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, row in rows.items():
        print(
            f"| {name} | {row['ready_s']:.2f} | {row['tokens_per_s']:.1f} | {row['first_p50_s']:.2f} / {row['first_p95_s']:.2f}"
            f" | {1e3 * row['gap_p50_s']:.1f} / {1e3 * row['gap_p99_s']:.1f} | {row['alone_tokens_per_s']:.1f} |"
        )
    if len(rows) == 2:
        ours, theirs = rows["hanzo"], rows["llama-server"]
        print(f"\nhanzo / llama-server: {ours['tokens_per_s'] / theirs['tokens_per_s']:.2f} of the tokens, "
              f"{ours['first_p95_s'] / theirs['first_p95_s']:.2f} of the p95 to the first text")
    if args.json:
        write_json(args, {"summary": rows, "samples": samples})


if __name__ == "__main__":
    main()
