# What .ci/run and .ci/full share. Sourced; expects nothing but bash, git, Python, pip and a C++ compiler.

set -euo pipefail
exec </dev/null
export CI=true
export JAX_PLATFORMS=cpu
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_PROGRESS_BAR=off
# What the caller has set up must not reach the interpreters under test.
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONDONTWRITEBYTECODE

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
WORK=$(mktemp -d "${TMPDIR:-/tmp}/partax-ci.XXXXXX")
trap 'rm -rf "$WORK"' EXIT

# The versions of Python that the project declares, from the newest. pip finds no jax after 0.10.2 for 3.11, the oldest of
# both that are supported; the others have the newest jax.
mapfile -t pythons < <(sed -nE 's/.*"Programming Language :: Python :: (3\.[0-9]+)".*/\1/p' "$ROOT/pyproject.toml" | sort -rV)

# The vector instructions of older processors. XLA leaves out those that come after the one named, and rounds otherwise.
older_isas=()
if [[ $(uname -m) == x86_64 ]]; then older_isas=(SSE4_2 AVX AVX2); fi

failures=()
failed_logs=()
summary=()

# step "title" command...: runs it, times it, and goes on whatever comes of it. `finish` tells the outcome. Does nothing
# where the title does not match `title_pattern`.
title_pattern=.
step() {
  local title=$1 begin=$SECONDS status=0 log
  if [[ ! $title =~ $title_pattern ]]; then return 0; fi
  log=$(mktemp "$WORK/step.XXXXXX")
  shift
  printf '\n=== %s\n' "$title"
  # A subshell of its own with errexit: in a condition the shell would ignore failures within "$@".
  set +e
  (
    set -e
    "$@"
  ) 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  set -e
  ended "$title" "$begin" "$status" "$log"
}

# ended TITLE BEGIN STATUS LOG: notes how a step ended, and where what it printed is.
ended() {
  if (($3 != 0)); then
    failures+=("$1")
    failed_logs+=("$4")
  fi
  summary+=("$(printf '%5d s  %s  %s' $((SECONDS - $2)) "$( (($3 == 0)) && echo ok || echo FAILED)" "$1")")
}

# beside "title" command...: a step that runs beside another one. What it prints comes when it has ended. Before a step
# that needs the machine for itself, and before `finish`, comes `joined`.
declare -A running=()
beside() {
  if ((${#running[@]} >= 2)); then one_ended; fi
  local title=$1 log
  log=$(mktemp "$WORK/beside.XXXXXX")
  shift
  (
    set -e
    "$@"
  ) >"$log" 2>&1 &
  running[$!]="$SECONDS $log $title"
}

# one_ended: waits for one of those that run, and tells its outcome.
one_ended() {
  local process status=0 begin log title
  wait -n -p process "${!running[@]}" || status=$?
  IFS=' ' read -r begin log title <<<"${running[$process]}"
  unset "running[$process]"
  printf '\n=== %s\n' "$title"
  cat "$log"
  ended "$title" "$begin" "$status" "$log"
}

joined() {
  while ((${#running[@]} > 0)); do one_ended; done
}

note() {
  printf '\n=== %s\n' "$1"
  summary+=("      -  --  $1")
}

finish() {
  local index
  printf '\n=== Summary, %d s in all\n' "$SECONDS"
  printf '%s\n' "${summary[@]}"
  if ((${#failures[@]} > 0)); then
    # Again, for who reads the end alone: other steps have printed much since.
    for index in "${!failures[@]}"; do
      printf '\n=== The end of: %s\n' "${failures[index]}"
      tail -n 80 "${failed_logs[index]}"
    done
    printf '\n%d failed: ' "${#failures[@]}"
    printf '%s; ' "${failures[@]}"
    printf '\n'
    exit 1
  fi
}

# A copy of the checkout as a fresh clone would have it, with changes that are not committed yet.
clean_checkout() {
  mkdir -p "$1"
  (
    cd "$ROOT"
    git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
      if [[ -e $file ]]; then printf '%s\0' "$file"; fi
    done | tar --null --files-from=- --create | tar --extract --directory="$1"
  )
}

# interpreter 3.12: prints the path of that Python, 3.14t that of a free-threaded one; fails where there is none.
interpreter() {
  local candidate prefixes=()
  if command -v pyenv >/dev/null; then prefixes=("$(pyenv root)"/versions/"$1".*/bin/); fi
  for candidate in "python$1" "${prefixes[@]/%/python}"; do
    # A launcher may be there for a Python that is not, and a free-threaded one may have the name.
    if "$candidate" -c 'import sys, sysconfig, venv, ensurepip
threads = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
if "%d.%d" % sys.version_info[:2] + threads != sys.argv[1]: sys.exit(1)' \
      "$1" 2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return 0
    fi
  done
  return 1
}

# kept_free_threaded [thread]: prints the path of the Python that `free_threaded_python` has compiled, if it has.
kept_free_threaded() {
  local python="$ROOT/build/free-threaded${1:+-$1}/bin/python3"
  if [[ ! -x $python ]]; then return 1; fi
  echo "$python"
}

# free_threaded_python [thread]: compiles a Python without a GIL (and for ThreadSanitizer, by clang), unless an earlier run
# has, and prints its path. Of 3.14 and 3.15 Debian's stable release has no source.
free_threaded_python() {
  local sanitizer=${1:-} version=3.13.5 source
  if kept_free_threaded "$@"; then return 0; fi
  source="$WORK/python$sanitizer"
  mkdir -p "$source"
  curl --silent --show-error --fail --location \
    "http://deb.debian.org/debian/pool/main/p/python3.13/python3.13_$version.orig.tar.xz" |
    tar -xJ --strip-components=1 -C "$source"
  (
    cd "$source"
    export TSAN_OPTIONS=report_bugs=0
    CC=${sanitizer:+clang} ./configure -q --prefix="$ROOT/build/free-threaded${sanitizer:+-$sanitizer}" --disable-gil \
      --with-ensurepip=install ${sanitizer:+--with-thread-sanitizer} CFLAGS="${sanitizer:+-O1 -g1}"
    make -s -j "$(nproc)" && make -s install
  ) >"$source.log" 2>&1 || { cat "$source.log" >&2; return 1; }
  kept_free_threaded "$@"
}

# free_threaded_environment PYTHON FOLDER: partax and all that its tests need and can be had for it.
free_threaded_environment() {
  "$1" -m venv "$2"
  "$2/bin/pip" install --quiet --prefer-binary -C build-dir="$WORK/build/{wheel_tag}" "$ROOT" pytest hypothesis pytest-xdist \
    equinox optax chex penzai inox cloudpickle beartype einops diffrax tqdm matplotlib scikit-learn
  free_threaded_flax "$2/bin/pip"
}

# free_threaded_flax PIP: of Flax what nnx needs: its files are written by a library that has no wheels for such a Python.
free_threaded_flax() {
  local pip=$1 wanted
  wanted=$(grep -oE '"flax>=[0-9.]+"' "$ROOT/pyproject.toml" | sort -V | tail -n 1 | tr -d '"')
  "$pip" install --quiet --no-deps "$wanted,<0.12.9"
  MSGPACK_PUREPYTHON=1 "$pip" install --quiet msgpack PyYAML etils typing_extensions treescope rich
}

# readme_command pytest: the command of the README that runs this module.
readme_command() {
  grep -m 1 -E "^python3 -m venv .* -m $1( |\$)" "$ROOT/README.md"
}

# dev_tools PYTHON NAME...: installs these of the project's extras `dev`, `release` and `docs`, in the versions that they name.
dev_tools() {
  local python=$1 requirements
  shift
  requirements=$("$python" - "$ROOT/pyproject.toml" "$@" <<'PY'
import re, sys, tomllib

with open(sys.argv[1], "rb") as file:
    extras = tomllib.load(file)["project"]["optional-dependencies"]
print(*(entry for entry in extras["dev"] + extras["release"] + extras["docs"] if re.split(r"[\[<>=]", entry)[0] in sys.argv[2:]), sep="\n")
PY
  )
  xargs "$python" -m pip install --quiet <<<"$requirements"
}

# configured PYTHON BUILD OPTION...: a build folder with these options; PYTHON has pybind11, cmake and ninja.
configured() {
  local python=$1 build=$2 bin
  bin=$(dirname "$python")
  shift 2
  "$bin/cmake" -S "$ROOT" -B "$build" -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" -DPython_EXECUTABLE="$python" \
    -Dpybind11_DIR="$("$python" -m pybind11 --cmakedir)" "$@" >"$build.log" || { cat "$build.log"; return 1; }
}

# tidy PYTHON: clang-tidy, with clang's warnings as errors, over all files, compiled together as CMakeLists.txt has it,
# which takes a third of the time.
tidy() {
  local build="$WORK/tidy" units
  configured "$1" "$build" -DCMAKE_CXX_COMPILER=g++ -DCMAKE_UNITY_BUILD=ON -DPARTAX_WERROR=ON \
    -DCMAKE_CXX_FLAGS=-pedantic-errors
  mapfile -t units < <(find "$build" -name 'unity_[a-z]*.cxx')
  if ((${#units[@]} != $(find "$ROOT"/csrc/*/ -maxdepth 0 | wc -l) + 1)); then
    echo "clang-tidy: ${#units[@]} units, expected one for each folder of csrc/ and one for all bindings"
    return 1
  fi
  "$(dirname "$1")/clang-tidy" -p "$build" --quiet --config-file="$ROOT/.clang-tidy" "${units[@]}" "$ROOT/csrc/module.cpp"
}

# sanitized_install PYTHON DIRECTORY [SANITIZERS]: partax under these (AddressSanitizer and UBSan), to be put in front of
# the installed one.
sanitized_install() {
  local sanitizers=${3:-address,undefined}
  "$1" -m pip install --quiet --no-deps --target "$2" -C cmake.define.PARTAX_SANITIZE="$sanitizers" \
    -C cmake.define.PARTAX_WERROR=ON \
    -C cmake.define.CMAKE_CXX_FLAGS_RELEASE="-O1 -g1" -C install.strip=false \
    -C build-dir="$WORK/build/{wheel_tag}-$sanitizers" "$ROOT"
}

# sanitized_python PYTHON DIRECTORY ARGUMENT...: runs it with what `sanitized_install` installed.
sanitized_python() {
  local python=$1 directory=$2 libraries reports status=0
  shift 2
  # The runtime has to come first in a process that was not linked with it, and libstdc++ before it catches exceptions.
  libraries="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so) ${PRELOADED:-}"
  # Python itself, numpy and jaxlib keep memory until the end; `leaks_of` looks for what we keep.
  # A small quarantine, or freed memory that it keeps would be growth in the eyes of those tests.
  # The reports go to files: pytest holds what a test writes, and that is lost with a process that is ended.
  reports=$(mktemp -d "$WORK/reports.XXXXXX")
  env PYTHONPATH="$directory" LD_PRELOAD="$libraries" \
    ASAN_OPTIONS="${SANITIZERS:-detect_leaks=0}:quarantine_size_mb=8:log_path=$reports/report" \
    UBSAN_OPTIONS="print_stacktrace=1:log_path=$reports/report" PYTHONMALLOC=malloc "$python" "$@" || status=$?
  find "$reports" -type f -exec cat {} +
  return "$status"
}

# newest_interpreter: prints the path of the newest Python that is declared and here.
newest_interpreter() {
  local version
  for version in "${pythons[@]}"; do
    if interpreter "$version"; then return 0; fi
  done
  echo "There is no Python of ${pythons[*]} here." >&2
  return 1
}

# tested_interpreter: sets up an environment with partax and all that its tests need, and prints its Python.
tested_interpreter() {
  local python
  python=$(newest_interpreter)
  "$python" -m venv "$WORK/venv" >&2
  "$WORK/venv/bin/python" -m pip install --quiet -C build-dir="$WORK/build/{wheel_tag}" "$ROOT[test]" >&2
  echo "$WORK/venv/bin/python"
}

# What the search for leaks runs: the native stages, and all that lives only as long as one call.
leak_tests=(
  tests/tree/test_unchanged.py
  tests/statics/test_static_keys.py
  tests/pytree/test_partition.py
  tests/pytree/test_flat_spec.py
  tests/test_fuzz.py
)

# leaks_of PYTHON DIRECTORY ARGUMENT...: runs it like `sanitized_python`, and fails where native code of partax made what
# was never freed. Python, numpy and jaxlib leak a little too. A container that Python's collector knows is never lost in
# the eyes of LeakSanitizer: those are what tests/jit/test_memory.py and bench/soak.py count.
leaks_of() {
  local log="$WORK/leaks.$RANDOM.log" frames="$WORK/no-jit-frames.so" status=0
  # XLA registers what it has compiled for unwinding. libgcc asks for memory then, under the lock that unwinding takes.
  g++ -shared -fPIC -x c++ -o "$frames" - <<<'extern "C" { void __register_frame(void*) {} void __deregister_frame(void*) {} }'
  # Most of libpython has no frame pointers; the exact way to unwind takes its time, so few frames are asked for.
  PRELOADED="$frames" SANITIZERS=detect_leaks=1:fast_unwind_on_malloc=0:malloc_context_size=12 \
    LSAN_OPTIONS=exitcode=0 sanitized_python "$@" >"$log" 2>&1 || status=$?
  if ((status != 0)) || ! grep -q 'SUMMARY: AddressSanitizer: .* leaked' "$log"; then
    cat "$log"
    echo "The run failed, so there is no word about leaks."
    return 1
  fi
  grep -E '^[0-9]+ passed|=+ .*passed' "$log" || true
  # Ours: a frame of csrc/ comes before the first one of the interpreter's loop.
  awk -v RS= '
    /^(Direct|Indirect) leak/ {
      all++
      ours = 0
      count = split($0, lines, "\n")
      for (i = 2; i <= count && lines[i] !~ /_PyEval_EvalFrame/; i++) if (lines[i] ~ /\/csrc\//) ours = 1
      if (ours) { found++; print; print "" }
    }
    END { printf "%d of %d leaks are of memory that partax took.\n", found, all; exit found > 0 }
  ' "$log"
}

# check_leaks PYTHON DIRECTORY TEST...: that a leak is found, and that these tests have none.
check_leaks() {
  local python=$1 directory=$2
  shift 2
  if leaks_of "$python" "$directory" "$ROOT/tests/leak_on_purpose.py" >"$WORK/on-purpose.log"; then
    cat "$WORK/on-purpose.log"
    echo "Leaks that were made on purpose were not found."
    return 1
  fi
  grep 'leaks are of' "$WORK/on-purpose.log" | sed 's/^/made on purpose: /'
  leaks_of "$python" "$directory" -m pytest -p no:cacheprovider -q "$@"
}
