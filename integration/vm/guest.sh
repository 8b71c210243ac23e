#!/bin/sh
# Runs in the guest, as root: installs mews as an admin would, then plays the suites named in
# /mews/suites. Its last line says that it came so far.
set -u
umask 022
export SYSTEMD_COLORS=0 SYSTEMD_URLIFY=0
say() { echo "guest: $*"; }

say "$(. /etc/os-release && echo "$PRETTY_NAME"), kernel $(uname -r), $(bwrap --version)," \
    "$(systemctl --version | sed -n '1s/ (.*//p')"
say "controllers: $(cat /sys/fs/cgroup/cgroup.controllers)"
say "lsm: $(cat /sys/kernel/security/lsm 2>/dev/null)," \
    "legacy_tiocsti: $(cat /proc/sys/dev/tty/legacy_tiocsti 2>/dev/null || echo none)"

# The console is for what the suites say.
dmesg --console-level 1

built_at=$(cat /mews/built-at)
mkdir -p "$(dirname "$built_at")"
ln -s /mews/repository "$built_at"

(cd /mews/repository && packaging/install.sh --from /mews/bin) || say 'FAILED: install.sh'
printf 'version = 1\n[[allow]]\ngroups = ["caged"]\n' >/etc/mews/host.toml
groupadd caged
systemctl enable --now mews-supervisor.socket mews-supervisor.service ||
    say 'FAILED: the units do not start'
systemctl --no-pager --lines=20 status mews-supervisor.service mews-cages.service
mews doctor

export MEWS_VM=1 MEWS_TEST_PATIENCE=5
while read -r suite; do
    say "suite $suite, $(cut -d. -f1 /proc/uptime) s after the boot"
    /mews/bin/mews-integration "$suite" </dev/null
done </mews/suites
say "failed units: $(systemctl --failed --no-legend --plain | cut -d' ' -f1 | tr '\n' ' ')"
say "$(cut -d. -f1 /proc/uptime) s"
say end
