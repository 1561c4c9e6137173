"""Random text that exercises tokenizers: words, numbers, white space of all kinds, and all of Unicode."""

import random
import unicodedata

WORDS = (
    "the The THE of and HelloWorld iPhone XMLHttpRequest don't I'LL we've She'd 'tis it's y'all Straße naïve "
    "résumé Größe été façade Việt Nam привет Мир Καλημέρα γειά שלום العربية हिन्दी বাংলা ไทย 日本語 カタカナ ひらがな "
    "中文字 한국어 조선말 🙂 👩‍👩‍👧 🇩🇪 e\u0301 a\u0308\u0301 ｶﾅ ℌ ﬁ ½ ² Ⅷ 〇 々 १२३ ٣٤ ＡＢ ǅ ª º ʼ ſ K"
).split()
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\u0085", "\x0b", "\x1c"]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "--", "://", "「", "」", "，", "。", "…", "«", "—", "€", "+="]
ASSIGNED = [
    cp for cp in range(0x30000)
    if unicodedata.category(chr(cp)) not in ("Cn", "Cs", "Co") or random.Random(cp).random() < 0.002 and not 0xD800 <= cp < 0xE000
]


def random_texts(n, seed=0, max_parts=30):
    """n texts of up to max_parts parts each; the same for the same seed."""
    rng = random.Random(seed)
    texts = []
    for _ in range(n):
        parts = []
        for _ in range(rng.randrange(max_parts)):
            kind = rng.random()
            if kind < 0.30:
                parts.append(rng.choice(WORDS))
            elif kind < 0.45:
                parts.append(rng.choice(SPACES))
            elif kind < 0.60:
                parts.append(" ")
            elif kind < 0.72:
                parts.append(rng.choice(PUNCTUATION))
            elif kind < 0.80:
                parts.append(str(rng.randrange(10 ** rng.randrange(1, 9))))
            elif kind < 0.90:
                parts.append(chr(rng.choice(ASSIGNED)))
            elif kind < 0.95:
                parts.append("".join(rng.choice("aAbBéÉ'ſ1 ") for _ in range(rng.randrange(1, 8))))
            else:
                parts.append("".join(chr(rng.choice(ASSIGNED)) for _ in range(rng.randrange(1, 5))))
        texts.append("".join(parts))
    return texts
