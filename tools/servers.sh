#!/bin/sh
# On Debian and Ubuntu as root (a container, a fresh CI machine): installs what the tests run against and is missing.
# Anywhere else it changes nothing, and the tests say what to install. Servers named by environment are not installed.
set -eu

packages=
if [ -z "${DATABASE_URL:-}" ] && ! command -v initdb >/dev/null && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
    packages="$packages postgresql"
fi
if [ -z "${CELERY_BROKER_URL:-}" ] && ! command -v redis-server >/dev/null; then
    packages="$packages redis-server"
fi
# A payment provider that others wrote runs on node; DURABLEFLOWS_SKIP_FOREIGN=1 does without.
if [ "${DURABLEFLOWS_SKIP_FOREIGN:-}" != 1 ]; then
    command -v node >/dev/null || packages="$packages nodejs"
    command -v npm >/dev/null || packages="$packages npm"
fi
# Pages are looked at in Chromium; without a font there is nothing to see. DURABLEFLOWS_SKIP_BROWSER=1 does without.
if [ "${DURABLEFLOWS_SKIP_BROWSER:-}" != 1 ] && [ -z "${CHROMIUM:-}" ] && ! command -v chromium >/dev/null &&
    ! command -v chromium-headless-shell >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null &&
    ! command -v google-chrome-stable >/dev/null; then
    packages="$packages chromium fonts-dejavu-core"
fi

if [ -z "$packages" ] || [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    exit 0
fi
echo "installing$packages"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# Chromium without its windows, where the distribution has it apart: pages open in half the time.
if apt-cache show chromium-headless-shell >/dev/null 2>&1; then
    packages=$(echo "$packages" | sed 's/ chromium / chromium-headless-shell /')
fi
# shellcheck disable=SC2086 # several words
apt-get install -y -qq --no-install-recommends $packages >/dev/null
