"""The quantizer table. See scripts/quant_table.sh; needs nothing but Python's standard library."""

import argparse
import hashlib
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

# All recipes of `hanzo quantize`, the finest first.
TYPES = """F16 BF16 Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S IQ4_NL IQ4_XS Q4_1 Q4_0 MXFP4 NVFP4 Q3_K_L Q3_K_M Q3_K_S
IQ3_M IQ3_S IQ3_XS IQ3_XXS Q2_K Q2_K_S IQ2_M IQ2_S IQ2_XS IQ2_XXS IQ1_M IQ1_S TQ2_0 TQ1_0 Q2_0 Q1_0""".split()
SIDES = ("hanzo", "ggml")
HERE = pathlib.Path(__file__).resolve().parent.parent


def run(*args, check=True):
    done = subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, args))}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def base_name(path):
    return os.path.basename(path) if path else None


def save(path, table):
    """Whole or not at all: an interrupted run leaves the last state."""
    new = path.with_suffix(".json.new")
    new.write_text(json.dumps(table, indent=1) + "\n")
    new.replace(path)


def quantize(args, who, ty, path, draw=None):
    """Makes the file; None, or why it was refused."""
    model, imatrix = draw or (args.model, args.imatrix)
    imatrix = ["--imatrix", imatrix] if imatrix else []
    if who == "hanzo":
        made = run(args.hanzo, "quantize", model, path, ty, *imatrix, check=False)
    else:
        made = run(args.llama_quantize, *imatrix, model, path, ty, check=False)
    if made.returncode == 0:
        return None
    lines = [line for line in (made.stderr or made.stdout).strip().splitlines() if line.strip()]
    # llama-quantize says what is wrong before its last line, and where the file lies.
    why = next((line for line in lines if "quant" in line and ("require" in line or "invalid" in line)), lines[-1] if lines else "no word")
    return why.replace(str(path), "FILE").strip()[:200]


def divergence(args, model, base):
    said = json.loads(run(args.hanzo, "perplexity", model, "--kl-divergence", base, "--json").stdout)
    return {
        "perplexity": said["perplexity"],
        "ln_ratio": said["ln_ratio"],
        "ln_ratio_error": said["ln_ratio_error"],
        "kld_mean": said["kld"]["mean"],
        "kld_error": said["kld"]["error"],
        "kld_p99.9": said["kld"]["p99.9"],
        "kld_max": said["kld"]["max"],
        "same_top": said["same_top"],
        "same_top_error": said["same_top_error"],
    }


def measure(args, path, base, scratch):
    inspected = json.loads(run(args.hanzo, "inspect", path, "--json").stdout)
    row = {"bits_per_weight": inspected["bits_per_weight"], **divergence(args, path, base)}
    if args.f32_activations:
        decoded = scratch / "decoded.gguf"
        run(args.hanzo, "quantize", path, decoded, "F32", "--allow-requantize")
        f32 = divergence(args, decoded, base)
        row["f32_activations"] = {key: f32[key] for key in ("perplexity", "kld_mean", "kld_error", "same_top")}
        decoded.unlink()
    return row


MEANS = ("bits_per_weight", "perplexity", "kld_mean", "kld_p99.9", "kld_max", "same_top")


def mean_of(draws):
    """Means over draws; the error of the divergence is that of the mean over draws, where there are some."""
    if len(draws) == 1:
        return draws[0]
    row = {key: statistics.fmean(d[key] for d in draws) for key in MEANS}
    row["kld_error"] = statistics.stdev(d["kld_mean"] for d in draws) / math.sqrt(len(draws))
    row["draws"] = [d["kld_mean"] for d in draws]
    return row


def load(args):
    out = pathlib.Path(f"{args.out}.json")
    return out, json.loads(out.read_text()) if out.exists() else {}


def measure_all(args, scratch):
    out, table = load(args)
    base = scratch / "base.logits"
    windows = [*(["--chunks", args.chunks] if args.chunks else []), *(["--ctx", args.ctx] if args.ctx else [])]
    first = json.loads(run(args.hanzo, "perplexity", args.model, args.text, *windows, "--save-logits", base, "--json").stdout)
    setting = {
        "model": base_name(args.model),
        "model_sha256": sha256(args.model),
        "text": base_name(args.text),
        "text_sha256": sha256(args.text),
        "imatrix": base_name(args.imatrix),
        "ctx": first["ctx"],
        "windows": first["windows"],
        "tokens_scored": first["tokens_scored"],
        "kv": first["kv"],
        "device": first["device"],
        "draws": [sha256(model) for model, _ in args.draws],
        "base_perplexity": first["perplexity"],
        "base_perplexity_error": first["perplexity_error"],
        "peer": f"llama.cpp {args.peer_version}".strip() if args.llama_quantize else None,
        "note": args.note,
    }
    if table.get("setting") != setting:
        # What was measured otherwise does not belong into the same table; speeds are of the model alone.
        speed = table.get("speed") if table.get("setting", {}).get("model_sha256") == setting["model_sha256"] else None
        table = {"setting": setting, "rows": {}, **({"speed": speed} if speed else {})}
    for ty in args.types:
        row = table["rows"].setdefault(ty, {})
        for who in SIDES:
            if who in row or (who == "ggml" and not args.llama_quantize):
                continue
            path, draws = scratch / "quantized.gguf", []
            for draw in [(args.model, args.imatrix), *args.draws]:
                why = quantize(args, who, ty, path, draw)
                if why:
                    break
                draws.append(measure(args, path, base, scratch))
                path.unlink()
            path.unlink(missing_ok=True)
            row[who] = {"refused": why} if why else mean_of(draws)
            print(ty, who, row[who].get("kld_mean", why), file=sys.stderr, flush=True)
            save(out, table)


def measure_speeds(args, scratch):
    out, table = load(args)
    if not table:
        raise SystemExit(f"quant_table: {out} is not there: measure the quality first")
    if table["setting"]["model_sha256"] != sha256(args.model):
        raise SystemExit(f"quant_table: {out} is of another model")
    setting = {"prompt": args.prompt, "generate": args.generate, "threads": os.cpu_count(), "cpu": processor(), "version": run(args.hanzo, "--version").stdout.strip()}
    speed = table.get("speed", {})
    if speed.get("setting") != setting:
        speed = {"setting": setting, "rows": {}, "load_before_turns": []}
    table["speed"] = speed
    rows = speed["rows"]
    types = [ty for ty in args.types if "bits_per_weight" in table["rows"].get(ty, {}).get("hanzo", {})]
    for ty in types:
        rows.setdefault(ty, {"prefill": [], "decode": []})
    done = lambda ty: len(rows[ty]["decode"])
    while missing := [ty for ty in types if done(ty) < args.speeds]:
        turn = min(map(done, missing))
        speed["load_before_turns"].append(list(os.getloadavg()) if hasattr(os, "getloadavg") else None)
        for ty in missing:
            if done(ty) > turn:
                continue
            path = scratch / f"{ty}.gguf"
            if not path.exists() and quantize(args, "hanzo", ty, path):
                raise SystemExit(f"quant_table: {ty} cannot be made")
            said = json.loads(run(args.hanzo, "bench", "-m", path, "-p", args.prompt, "-n", args.generate, "-r", 1, "--json").stdout)
            for cell in said["cells"]:
                rows[ty][cell["phase"]].extend(cell["samples"][1:])
            print(f"turn {turn + 1}", ty, *(f"{rate(rows[ty][p][-1:]):.1f}" for p in ("prefill", "decode")), file=sys.stderr, flush=True)
            save(out, table)


def processor():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def rate(samples):
    """Median of tokens a second."""
    return statistics.median(tokens / seconds for seconds, tokens in samples)


def spread(samples):
    rates = [tokens / seconds for seconds, tokens in samples]
    return f"{rate(samples):.0f} ({min(rates):.0f}–{max(rates):.0f})" if min(rates) >= 100 else f"{rate(samples):.1f} ({min(rates):.1f}–{max(rates):.1f})"


def cell(row, key, form, scale=1.0):
    return form.format(scale * row[key]) if key in row else "–"


def with_error(row, key, error, scale):
    # Adding 0 takes the sign off what rounds to nothing.
    return f"{round(scale * row[key], 2) + 0.0:.2f} ± {scale * row[error]:.2f}" if key in row else "–"


def ratio(ours, theirs):
    if "draws" in ours and "draws" in theirs and min(ours["draws"] + theirs["draws"]) > 0:
        logs = [math.log(a / b) for a, b in zip(ours["draws"], theirs["draws"], strict=True)]
        mean, error = statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
        return f"{math.exp(mean):.2f} ± {math.exp(mean) * error:.2f}"
    if ours.get("kld_mean", 0) > 0 and theirs.get("kld_mean", 0) > 0:
        return f"{ours['kld_mean'] / theirs['kld_mean']:.3f}"
    return "–"


def table_of(put, head, rows):
    put("| " + " | ".join(head) + " |")
    put("|" + "---|" * len(head))
    for row in rows:
        put("| " + " | ".join(row) + " |")
    put("")


def render(stem):
    table = json.loads(pathlib.Path(f"{stem}.json").read_text())
    s, lines = table["setting"], []
    finest_first = {ty: i for i, ty in enumerate(TYPES)}
    rows = dict(sorted(table["rows"].items(), key=lambda row: finest_first.get(row[0], len(TYPES))))
    put = lines.append
    name = os.path.basename(stem)
    put(f"# Quantizers on {s['model'].removesuffix('.gguf')}")
    put("")
    put("Every type of [`hanzo quantize`](quantize.md), beside ggml's quantizer of the same name. Made by `scripts/quant_table.sh` from")
    put(f"[{name}.json]({name}.json); nothing here is typed by hand.")
    put("")
    put(f"* Model: `{s['model']}` (SHA-256 `{s['model_sha256'][:16]}…`). {s['note'] or ''}".rstrip())
    put(f"* Text: `{s['text']}` (SHA-256 `{s['text_sha256'][:16]}…`), {s['windows']} windows of {s['ctx']} tokens, {s['tokens_scored']} tokens scored.")
    put(f"* Importance matrix: {'`' + s['imatrix'] + '`, the same file for both' if s['imatrix'] else 'none, on either side'}. Peer: {s['peer'] or 'run pending'}.")
    put(f"* Base: the model itself, perplexity {s['base_perplexity']:.4f} ± {s['base_perplexity_error']:.4f}.")
    put(f"* All files are run by hanzo ({s['device']}, KV cache {s['kv']}), so that only the files differ: by the rounding, and where rows fit no block of Q2_K or Q3_K by the type that takes its place (ours IQ4_NL, ggml's Q4_0, of one size).")
    put("")
    put("## How near to the base")
    put("")
    put("*bits*: of the whole file's tensors, a weight. *perplexity*: of the text, as [`hanzo perplexity`](perplexity.md) has it. *KLD*: mean Kullback-Leibler")
    put("divergence of the next token's distribution from the base's, in thousandths of a nat, with its standard error. *99.9 %*: that percentile of it over")
    put("positions. *same top*: share of positions where both would say the same greedily. *KLD ratio*: ours over ggml's; below 1 our file is nearer")
    put("to the base.")
    if s["draws"]:
        put("")
        put(f"Rounding is a draw of luck: the same encoder on other weights of the same function scatters by a tenth. So each file was made {1 + len(s['draws'])} times, of the model")
        put("and of the same function in other weights (`scripts/off_lattice.py`). Figures are means over the draws, errors those of the means; the ratio is the geometric mean of")
        put("the draws' ratios, with its standard error.")
    else:
        put("Both sides see the same tokens, so the ratio is surer than the errors of either; but rounding is a draw of luck, and one file of a type may be a tenth nearer or")
        put("farther than another as good ([why](quantize.md#squared-error-and-divergence)).")
    put("")
    head = ["type", "bits", "perplexity", "KLD", "99.9 %", "same top", "ggml: bits", "perplexity", "KLD", "99.9 %", "same top", "KLD ratio"]
    body = []
    for ty, row in rows.items():
        cells = [ty]
        for who in SIDES:
            r = row.get(who)
            if r is None or "refused" in r:
                cells += ["run pending" if r is None else "refused", "–", "–", "–", "–"]
                continue
            cells += [cell(r, "bits_per_weight", "{:.2f}"), cell(r, "perplexity", "{:.3f}"), with_error(r, "kld_mean", "kld_error", 1000),
                      cell(r, "kld_p99.9", "{:.0f}", 1000), cell(r, "same_top", "{:.1f} %", 100)]
        body.append(cells + [ratio(row.get("hanzo", {}), row.get("ggml", {}))])
    table_of(put, head, body)
    if any("f32_activations" in row.get(who, {}) for row in rows.values() for who in SIDES):
        put("## Without the activations' rounding")
        put("")
        put("Above, quantized matrices meet activations of 8 bits, as they do when the file is used. Here the same files were decoded to F32 first, so that only")
        put("the weights' rounding is left.")
        put("")
        body = []
        for ty, row in rows.items():
            ours, theirs = (row.get(who, {}).get("f32_activations", {}) for who in SIDES)
            if not ours and not theirs:
                continue
            cells = [ty]
            for r in (ours, theirs):
                cells += [cell(r, "perplexity", "{:.3f}"), with_error(r, "kld_mean", "kld_error", 1000), cell(r, "same_top", "{:.1f} %", 100)]
            body.append(cells + [ratio(ours, theirs)])
        table_of(put, ["type", "perplexity", "KLD", "same top", "ggml: perplexity", "KLD", "same top", "KLD ratio"], body)
    put("## Speed")
    put("")
    speed = table.get("speed")
    if speed:
        t = speed["setting"]
        put(f"Of our files, tokens a second: median (lowest–highest) over turns in which all types had one repetition each, after a warm-up. {t['cpu']}, {t['threads']} threads,")
        put(f"{t['version']}; a prompt of {t['prompt']} tokens, {t['generate']} tokens decoded from an empty context. ggml's files of the same types run at the same speed: it depends on")
        put("the formats, not on who rounded. The engines' speeds are compared on the [board](benchmarking.md).")
        loads = [load[0] for load in speed["load_before_turns"] if load]
        if loads:
            put(f"Load average before the turns: {min(loads):.2f} to {max(loads):.2f}.")
        put("")
        body = []
        for ty in rows:
            r = speed["rows"].get(ty, {})
            body.append([ty, *(spread(r[p]) if r.get(p) else "run pending" for p in ("prefill", "decode")), str(len(r.get("decode", [])))])
        table_of(put, ["type", "prefill", "decode", "turns"], body)
    else:
        put("Run pending.")
        put("")
    refused = [(ty, who, row[who]["refused"]) for ty, row in rows.items() for who in row if "refused" in row[who]]
    if refused:
        put("## Refused")
        put("")
        lines.extend(f"* {ty} by {who}: `{why}`" for ty, who, why in refused)
    pathlib.Path(f"{stem}.md").write_text("\n".join(lines).rstrip() + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?")
    parser.add_argument("text", nargs="?")
    parser.add_argument("--render", metavar="STEM", help="make the page only")
    parser.add_argument("--speeds", type=int, metavar="TURNS", help="measure speeds until each type has so many turns")
    parser.add_argument("--prompt", type=int, default=256, help="of the speeds")
    parser.add_argument("--generate", type=int, default=32, help="of the speeds")
    parser.add_argument("--chunks", type=int)
    parser.add_argument("--ctx", type=int)
    parser.add_argument("--types", default=" ".join(TYPES))
    parser.add_argument("--imatrix")
    parser.add_argument("--draw", action="append", default=[], metavar="MODEL[:IMATRIX]", help="another model of the same function, to average over; may be repeated")
    parser.add_argument("--f32-activations", action="store_true", help="also measure each file decoded to F32")
    parser.add_argument("--llama-quantize")
    parser.add_argument("--peer-version", default="", help="llama.cpp's build, such as b11434")
    parser.add_argument("--hanzo", default=HERE / "target/release/hanzo")
    parser.add_argument("--note", default="")
    parser.add_argument("--out", default=HERE / "docs/quantizers")
    parser.add_argument("--scratch", help="folder for temporary files")
    args = parser.parse_args()
    args.types = args.types.split()
    args.draws = [tuple(draw.split(":", 1)) if ":" in draw else (draw, None) for draw in args.draw]
    if any(bool(imatrix) != bool(args.imatrix) for _, imatrix in args.draws):
        parser.error("importance: for all draws or none")
    if args.f32_activations and args.draws:
        parser.error("--f32-activations and --draw do not go together")
    if args.render:
        return render(args.render)
    if not args.model or (not args.text and args.speeds is None):
        parser.error("give a model and a text, a model and --speeds, or --render")
    scratch = pathlib.Path(tempfile.mkdtemp(dir=args.scratch))
    try:
        if args.speeds is None:
            measure_all(args, scratch)
        else:
            measure_speeds(args, scratch)
    finally:
        shutil.rmtree(scratch)
    render(args.out)


main()
