# What the commands share (quickstart.sh, run.sh, .ci/run): system packages, the build, the base tokenizer.
# To be sourced by bash from the project's root.

ILME_PACKAGES="g++ cmake ninja-build pkg-config python3 python3-pip ca-certificates nlohmann-json3-dev librange-v3-dev
libcli11-dev libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev libbenchmark-dev"

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# The Debian package of Catch2 version 3, if it is installed.
catch2_installed() {
  dpkg-query -W -f '${db:Status-Status} ${Version}\n' libcatch2-dev catch2 2>/dev/null | grep -Eq '^installed (1:)?3\.'
}

packages_missing() {
  local package
  for package in $ILME_PACKAGES; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s ' "$package"
  done
  catch2_installed || printf 'catch2 (3.x) '
}

# Debian 12 has Catch2 version 3 in its backports, on the mirror that the machine uses already.
add_backports() {
  local mirror
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -n 1)
  [ -n "$mirror" ] || die "no Debian mirror among apt's sources, and Catch2 3 is in its backports"
  printf 'deb %s bookworm-backports main\n' "$mirror" | $AS_ROOT tee /etc/apt/sources.list.d/ilme-backports.list >/dev/null
  $AS_ROOT apt-get -q update
}

install_packages() {
  local missing catch2=libcatch2-dev id version_id
  command -v dpkg-query >/dev/null || { say "note: no dpkg here; needed are: $(echo $ILME_PACKAGES) catch2"; return; }
  missing=$(packages_missing)
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" = 0 ]; then
    AS_ROOT=env
  elif sudo -n true 2>/dev/null; then
    AS_ROOT="sudo -n env"
  else
    die "please install these packages, then run this again: $missing"
  fi
  AS_ROOT="$AS_ROOT DEBIAN_FRONTEND=noninteractive"
  say "Installing: $missing"
  {
    $AS_ROOT apt-get -q update
    if ! catch2_installed; then
      # shellcheck disable=SC1091
      . /etc/os-release
      if [ "$ID $VERSION_ID" = "debian 12" ]; then
        apt-cache policy libcatch2-dev | grep -q 'Candidate: 3' || add_backports
      elif ! apt-cache policy libcatch2-dev | grep -q 'Candidate: 3'; then
        catch2=catch2  # its name in Ubuntu 24.04
      fi
    fi
    $AS_ROOT apt-get -q install -y --no-install-recommends $ILME_PACKAGES "$catch2"
  } >&2 || die "apt could not install: $missing"
}

# Compile jobs: one a core, and 2.5 GB of memory for each.
job_count() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ { print int($2 / 2500000) }' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  echo $((memory < cores ? memory : cores))
}

# build PRESET TARGET...: configures and builds in the preset's folder.
build() {
  local preset=$1
  shift
  cmake --preset "$preset" ${ILME_CMAKE_OPTIONS:-}
  cmake --build --preset "$preset" -j "$(job_count)" --target "$@"
}

# Llama 3's own tokenizer, as the base to compare with, taken out of the Python package llama-models into the cache (its
# licence forbids shipping it). Sets BASE_TOKENIZER to the file, or to nothing when it cannot be had.
fetch_base_tokenizer() {
  local cache=${XDG_CACHE_HOME:-$HOME/.cache}/ilme work
  BASE_TOKENIZER=$cache/llama3/tokenizer.model
  [ -f "$BASE_TOKENIZER" ] && return
  mkdir -p "$cache/llama3"
  work=$(mktemp -d "$cache/.unfinished-XXXXXX")
  printf '%s\n' "llama-models==0.3.0 --hash=sha256:7f77f78ff13fca09f70d76a376aff6414cd901623fb9d57e69c2f8367a73032f" \
    >"$work/requirements.txt"
  if python3 -m pip --disable-pip-version-check download -q --no-cache-dir --no-deps --only-binary=:all: \
    --require-hashes -r "$work/requirements.txt" -d "$work" >"$work/log" 2>&1 &&
    python3 -m zipfile -e "$work"/*.whl "$work/content"; then
    mv "$work/content/llama_models/llama3/tokenizer.model" "$BASE_TOKENIZER"
  else
    say "note: the base tokenizer (Python package llama-models) cannot be downloaded; it is left out of the comparison"
    BASE_TOKENIZER=
  fi
  rm -rf "$work"
}
