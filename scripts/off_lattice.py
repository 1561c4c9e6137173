"""Takes the lattice of an earlier quantization out of a model without changing what it computes.

    scripts/off_lattice.py MODEL-F32.gguf [SEED]      (the file is changed in place; needs the packages `gguf` and `numpy`)

Weights that were decoded from Q4_1 lie on 16 equidistant values a block. An encoder is judged wrongly on them: one that hits the
lattice has no error at all, which real weights never allow. A transformer has directions in which it can be rescaled freely, so the same
function is written with other weights:

* the columns of q, k, v, gate and up are divided by what their norm's weights are multiplied with;
* the rows of v are multiplied by what the columns of the attention's output are divided by, a number each dimension of a value head
  (query heads of a group share it);
* the rows of up are multiplied by what the columns of down are divided by.

Factors are log-normal with a spread of 0.2, seeded (1). Results agree with those before to the rounding of F32 and of the cache; check with `hanzo
perplexity`. Different seeds are different chances for an encoder on the same function. Only for dense models of architectures llama and qwen3.
"""

import sys

import numpy as np
from gguf import GGUFReader

SPREAD = 0.2


def main() -> None:
    path, seed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    reader = GGUFReader(path, "r+")

    def field(key):
        return reader.fields[key].contents()

    arch = field("general.architecture")
    if arch not in ("llama", "qwen3"):
        raise SystemExit(f"off_lattice: only models of architectures llama and qwen3, not {arch}")
    layers, heads, kv_heads = (field(f"{arch}.{key}") for key in ("block_count", "attention.head_count", "attention.head_count_kv"))
    tensors = {t.name: t for t in reader.tensors}
    rng = np.random.default_rng(seed)

    def at(name):
        tensor = tensors[name]
        if tensor.tensor_type.name != "F32":
            raise SystemExit(f"off_lattice: {name} is {tensor.tensor_type.name}, not F32 (hanzo quantize MODEL OUT F32 --allow-requantize)")
        return tensor.data

    def factors(n):
        return np.exp(rng.normal(0.0, SPREAD, n)).astype(np.float32)

    for layer in range(layers):
        def of(part, layer=layer):
            return at(f"blk.{layer}.{part}.weight")

        for norm, readers in (("attn_norm", ("attn_q", "attn_k", "attn_v")), ("ffn_norm", ("ffn_gate", "ffn_up"))):
            by = factors(of(norm).shape[0])
            of(norm)[:] *= by
            for reads in readers:
                of(reads)[:] /= by
        value, output = of("attn_v"), of("attn_output")
        head_dim = value.shape[0] // kv_heads
        by = factors(value.shape[0])
        value[:] *= by[:, None]
        output[:] /= np.repeat(by.reshape(kv_heads, head_dim), heads // kv_heads, axis=0).reshape(-1)
        by = factors(of("ffn_up").shape[0])
        of("ffn_up")[:] *= by[:, None]
        of("ffn_down")[:] /= by
    reader.data.flush()


if __name__ == "__main__":
    main()
