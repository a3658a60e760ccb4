# What setup and demo share: messages, Debian packages, wheels. Sourced by bash, from the repository's root.

say() { echo "$(basename "$0"): $*"; }
die() { echo "$(basename "$0"): $*" >&2; exit 1; }
trap 'echo "$(basename "$0"): stopped at line $LINENO: $BASH_COMMAND" >&2' ERR

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# need_packages PACKAGE...: installs those that are missing.
need_packages() {
  local missing log=.deps/apt.log
  if ! command -v apt-get >/dev/null; then
    say "this is no Debian or Ubuntu: taking it that it has what these packages hold: $*"
    return
  fi
  missing=$(comm -23 <(printf '%s\n' "$@" | sort) \
                     <({ dpkg-query -W -f '${Package} ${Status}\n' "$@" 2>/dev/null || true; } |
                         sed -n 's/ install ok installed$//p' | sort -u))
  [ -n "$missing" ] || return 0
  # shellcheck disable=SC2086
  set -- $missing
  if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
    die "these packages are missing, and only root can install them (there is no sudo here). As root, run:
  apt-get update && apt-get install --no-install-recommends $*"
  fi
  say "installing $# Debian packages: $*"
  as_root true || die "sudo did not let us in; as root, run: apt-get update && apt-get install --no-install-recommends $*"
  if ! { as_root apt-get -q -o DPkg::Lock::Timeout=300 update &&
         as_root env DEBIAN_FRONTEND=noninteractive \
           apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    die "apt-get failed (the whole of what it said is in $log)"
  fi
}

# A python3 that has pip, in $PYTHON; Debian's if there is none.
need_pip() {
  for PYTHON in python3 /usr/bin/python3; do
    "$PYTHON" -m pip --version >/dev/null 2>&1 && return
  done
  need_packages python3 python3-pip ca-certificates
  "$PYTHON" -m pip --version >/dev/null || die "pip does not work: see what \`$PYTHON -m pip --version\` says"
}

# fetch_wheels DIR PIP-ARGUMENT...: lets pip download wheels into DIR (as this machine's pip is configured).
# Only their C++ and data parts are used, so any Python's will do: those for 3.11, or else for the one here.
fetch_wheels() {
  local dir=$1 quiet=--quiet version
  shift
  need_pip
  if [ -t 1 ]; then quiet=--progress-bar=on; fi
  for version in --python-version=3.11 ""; do
    "$PYTHON" -m pip download --disable-pip-version-check $quiet --only-binary=:all: $version --dest "$dir" "$@" \
      2>"$dir.log" && return
  done
  cat "$dir.log" >&2
  die "pip could not download $*"
}

# A scratch directory beside what is to be made, in $SCRATCH, gone at exit; what an interrupted run left goes too.
make_scratch() {
  rm -rf .deps/scratch.*
  SCRATCH=$(mktemp -d .deps/scratch.XXXXXX)
  trap 'rm -rf "$SCRATCH"' EXIT
}
