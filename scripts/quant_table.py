"""The quantizer table. See scripts/quant_table.sh; needs nothing but Python's standard library."""

import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

# All recipes of `hanzo quantize`, the finest first.
TYPES = """F16 BF16 Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S IQ4_NL IQ4_XS Q4_1 Q4_0 MXFP4 NVFP4 Q3_K_L Q3_K_M Q3_K_S
IQ3_M IQ3_S IQ3_XS IQ3_XXS Q2_K Q2_K_S IQ2_M IQ2_S IQ2_XS IQ2_XXS IQ1_M IQ1_S TQ2_0 TQ1_0""".split()


def run(*args, check=True):
    done = subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, args))}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def measure(args, model, base):
    said = json.loads(run(args.hanzo, "perplexity", model, "--kl-divergence", base, "--json").stdout)
    inspected = json.loads(run(args.hanzo, "inspect", model, "--json").stdout)
    return {
        "bits_per_weight": inspected["bits_per_weight"],
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


def measure_all(args):
    out = pathlib.Path(f"{args.out}.json")
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        base = os.path.join(scratch, "base.logits")
        chunks = ["--chunks", str(args.chunks)] if args.chunks else []
        first = run(args.hanzo, "perplexity", args.model, args.text, *chunks, "--save-logits", base, "--json")
        first = json.loads(first.stdout)
        setting = {
            "model": os.path.basename(args.model),
            "model_sha256": sha256(args.model),
            "text": os.path.basename(args.text),
            "text_sha256": sha256(args.text),
            "imatrix": os.path.basename(args.imatrix) if args.imatrix else None,
            "ctx": first["ctx"],
            "windows": first["windows"],
            "tokens_scored": first["tokens_scored"],
            "kv": first["kv"],
            "base_perplexity": first["perplexity"],
            "base_perplexity_error": first["perplexity_error"],
            "note": args.note,
        }
        table = json.loads(out.read_text()) if out.exists() else {}
        if table.get("setting") != setting:
            table = {"setting": setting, "rows": {}}
        for ty in args.types.split() if args.types else TYPES:
            row = table["rows"].setdefault(ty, {})
            for who in ["hanzo", "ggml"]:
                if who in row or (who == "ggml" and not args.llama_quantize):
                    continue
                path = os.path.join(scratch, "quantized.gguf")
                imatrix = ["--imatrix", args.imatrix] if args.imatrix else []
                if who == "hanzo":
                    made = run(args.hanzo, "quantize", args.model, path, ty, *imatrix, check=False)
                else:
                    made = run(args.llama_quantize, *imatrix, args.model, path, ty, check=False)
                if made.returncode != 0:
                    why = (made.stderr or made.stdout).strip().splitlines()
                    row[who] = {"refused": why[-1][-200:] if why else "no word"}
                else:
                    row[who] = measure(args, path, base)
                    os.remove(path)
                print(ty, who, row[who].get("perplexity", row[who].get("refused")), file=sys.stderr, flush=True)
                out.write_text(json.dumps(table, indent=1) + "\n")
    return out


def cell(row, key, form, scale=1.0):
    return form.format(scale * row[key]) if row and key in row else "–"


def render(stem):
    table = json.loads(pathlib.Path(f"{stem}.json").read_text())
    s, lines = table["setting"], []
    speeds = table.get("speed", {})
    put = lines.append
    put("# Quantizers")
    put("")
    put("Every type of [`hanzo quantize`](quantize.md) on a real model, beside ggml's quantizer of the same name. Made by `scripts/quant_table.sh` from")
    put("[quantizers.json](quantizers.json).")
    put("")
    put(f"* Model: `{s['model']}`. {s['note'] or ''}".rstrip())
    put(f"* Text: `{s['text']}` (SHA-256 `{s['text_sha256'][:16]}…`), {s['windows']} windows of {s['ctx']} tokens, {s['tokens_scored']} tokens scored.")
    put(f"* Importance matrix: {'`' + s['imatrix'] + '`, the same for both' if s['imatrix'] else 'none'}. KV cache: {s['kv']}.")
    put(f"* Base: the model itself, perplexity {s['base_perplexity']:.4f} ± {s['base_perplexity_error']:.4f}. Divergences are from it, in thousandths of a nat.")
    put("* All files are run by hanzo on the CPU, so that only the quantizers differ. Quantized matrices meet activations of 8 bits.")
    put("")
    put("| type | bits | perplexity | KLD | KLD 99.9 % | same top | ggml: bits | perplexity | KLD | KLD 99.9 % | same top | KLD ratio | prefill tok/s | decode tok/s |")
    put("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for ty, row in table["rows"].items():
        cells = [ty]
        for who in ["hanzo", "ggml"]:
            r = row.get(who, {})
            if "refused" in r:
                cells += ["refused", "–", "–", "–", "–"]
                continue
            cells += [cell(r, "bits_per_weight", "{:.2f}"), cell(r, "perplexity", "{:.3f}"), cell(r, "kld_mean", "{:.2f}", 1000),
                      cell(r, "kld_p99.9", "{:.0f}", 1000), cell(r, "same_top", "{:.1f} %", 100)]
        ours, theirs = row.get("hanzo", {}), row.get("ggml", {})
        both = ours.get("kld_mean", 0) > 0 and theirs.get("kld_mean", 0) > 0
        cells.append(f"{ours['kld_mean'] / theirs['kld_mean']:.3f}" if both else "–")
        speed = speeds.get(ty, {})
        cells += [f"{speed['prefill']:.0f}" if "prefill" in speed else "run pending",
                  f"{speed['decode']:.1f}" if "decode" in speed else "run pending"]
        put("| " + " | ".join(cells) + " |")
    put("")
    put("A KLD ratio below 1 means that our file is nearer to the base than ggml's of the same name.")
    refused = [(ty, who, row[who]["refused"]) for ty, row in table["rows"].items() for who in row if "refused" in row[who]]
    if refused:
        put("")
        put("Refused:")
        put("")
        lines.extend(f"* {ty} by {who}: `{why}`" for ty, who, why in refused)
    pathlib.Path(f"{stem}.md").write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?")
    parser.add_argument("text", nargs="?")
    parser.add_argument("--render", metavar="STEM", help="make the page only")
    parser.add_argument("--chunks", type=int)
    parser.add_argument("--types")
    parser.add_argument("--imatrix")
    parser.add_argument("--llama-quantize")
    parser.add_argument("--hanzo", default="target/release/hanzo")
    parser.add_argument("--note", default="")
    parser.add_argument("--out", default="docs/quantizers")
    parser.add_argument("--scratch", help="folder for temporary files")
    args = parser.parse_args()
    if args.render:
        render(args.render)
    elif args.model and args.text:
        measure_all(args)
        render(args.out)
    else:
        parser.error("give a model and a text, or --render")


main()
