#!/bin/sh
# Installs the peers that the package registries carry, at pinned versions.
# usage: PEERS_DIR=/somewhere ./install.sh
#
# A peer that can't be installed is said and left out. Not here: agentgateway, which no registry
# carries (the package of that name on PyPI is another program), ContextForge, whose default limit
# of 100 requests a minute stops a load run, and mcp-hub, which serves only the 2024-11-05 transport.
set -u
: "${PEERS_DIR:?set PEERS_DIR to a scratch directory outside the repository}"
mkdir -p "$PEERS_DIR"
cd "$PEERS_DIR" || exit 1
failed=0
missed() { echo "not installed: $1" >&2; failed=1; }

for p in supergateway@4.0.0 mcp-proxy@6.7.19; do
  d="npm-${p%@*}"
  [ -f "$d/.installed-$p" ] && continue
  mkdir -p "$d"
  (cd "$d" && { [ -f package.json ] || npm init -y >/dev/null; } && timeout --foreground 600 npm install --no-audit --no-fund "$p" && touch ".installed-$p") || missed "$p"
done
# fastmcp 4.1.3 and 4.1.4 ask for a certifi newer than the mirror carried on 2026-11-15.
for p in mcp-proxy==0.13.0 fastmcp==4.1.2; do
  d="py-${p%%=*}"
  [ -f "$d/.installed-$p" ] && continue
  # A folder without a program in it was broken off.
  [ -x "$d/bin/pip" ] || python3 -m venv --clear "$d"
  { timeout --foreground 600 "$d/bin/pip" install -q "$p" && touch "$d/.installed-$p"; } || missed "$p"
done
# A Rust gateway; building it takes minutes, so it is asked for: PEERS_RUST=1.
if [ -n "${PEERS_RUST:-}" ] && [ ! -x cargo/bin/mcp-proxy ]; then
  CARGO_TARGET_DIR="$PEERS_DIR/cargo-target" timeout --foreground 1800 cargo install --locked --no-default-features --root cargo mcp-proxy --version 0.6.0 || missed 'mcp-proxy 0.6.0 (Rust)'
  rm -rf cargo-target
fi
exit "$failed"
