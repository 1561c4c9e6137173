"""The tokenizer: byte-level BPE with the qwen2 pre-tokenizer, trained on the corpus grammar, and the chat template."""

import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from corpus import dialogues, stories

VOCAB_SIZE = 2048
PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIALS = [PAD, START, END]  # ids 0, 1, 2

# The splitting rule that GGUF names `tokenizer.ggml.pre = "qwen2"`. Digits stand alone, which is what small sums need.
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def train(seed: int, documents: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE, special_tokens=[AddedToken(s, special=True) for s in SPECIALS],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    rng = random.Random(seed)

    def texts():
        for _ in range(documents):
            yield stories.plain(rng)
            for message in dialogues.conversation(rng):
                yield message["content"]

    tokenizer.train_from_iterator(texts(), trainer)
    return tokenizer


def load(path: Path) -> Tokenizer:
    return Tokenizer.from_file(str(path))
