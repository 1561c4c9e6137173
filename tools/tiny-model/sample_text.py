"""Prints stories of the training grammar, as bare text: something to measure perplexity and importance on.

    python sample_text.py SEED STORIES > text.txt

Needs nothing but Python's standard library. The seed of the training text is 20260101; others give stories that the model never saw
as a whole, though of the same grammar.
"""

import random
import sys

from corpus import stories


def main() -> None:
    seed, n = map(int, sys.argv[1:])
    rng = random.Random(seed)
    print("\n\n".join(stories.plain(rng) for _ in range(n)))


if __name__ == "__main__":
    main()
