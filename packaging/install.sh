#!/bin/sh
# Installs what `cargo xtask build` (or a release build) made:
#
#   packaging/install.sh [--from DIR] [--root DIR] [--prefix DIR] [--no-systemd]
#
#   --from DIR     where the programs are          default: target/debug
#   --root DIR     a folder to install into, as a package builder wants it    default: /
#   --prefix DIR   below that                       default: /usr
#   --no-systemd   no units, no sysusers, no tmpfiles
#
# Programs go to PREFIX/libexec/mews, `mews` also to PREFIX/bin (it finds the others beside
# ../libexec/mews), the manual and what shells complete to PREFIX/share. Nothing is started and no
# file of the admin's is overwritten.
set -eu
umask 022

from=target/debug root= prefix=/usr systemd=yes
while [ $# -gt 0 ]; do
    case $1 in
        --from) from=$2; shift 2 ;;
        --root) root=${2%/}; shift 2 ;;
        --prefix) prefix=$2; shift 2 ;;
        --no-systemd) systemd=no; shift ;;
        *) sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
here=$(dirname "$0")
for name in mews mews-supervisor mews-sessiond mews-ptybroker mews-layer mews-cage-init; do
    [ -x "$from/$name" ] || { echo "install: $from/$name is missing: cargo xtask build" >&2; exit 1; }
done

libexec=$root$prefix/libexec/mews
install -d -m 755 "$libexec" "$root$prefix/bin" "$root$prefix/share/doc/mews"
for name in mews-supervisor mews-sessiond mews-ptybroker mews-layer mews-cage-init; do
    # A new file under the old name: what runs goes on with the old one.
    case $name in
        # What runs under an operator's uid is not to be looked into by it: executed, not read.
        mews-ptybroker | mews-layer) mode=711 ;;
        *) mode=755 ;;
    esac
    install -m "$mode" "$from/$name" "$libexec/$name.new"
    mv -f "$libexec/$name.new" "$libexec/$name"
done
install -m 755 "$from/mews" "$root$prefix/bin/mews.new"
mv -f "$root$prefix/bin/mews.new" "$root$prefix/bin/mews"
install -m 644 "$here/../docs/system.md" "$here/host.toml.example" "$root$prefix/share/doc/mews/"
install -d -m 755 "$root/etc/mews" "$root/etc/mews/policies"

share=$root$prefix/share
"$from/mews" man "$share/man/man1" 2>/dev/null
install -d -m 755 "$share/bash-completion/completions" "$share/zsh/vendor-completions" \
    "$share/fish/vendor_completions.d"
"$from/mews" completions bash >"$share/bash-completion/completions/mews"
"$from/mews" completions zsh >"$share/zsh/vendor-completions/_mews"
"$from/mews" completions fish >"$share/fish/vendor_completions.d/mews.fish"

if [ "$systemd" = yes ]; then
    units=$root$prefix/lib/systemd/system
    install -d -m 755 "$units" "$root$prefix/lib/sysusers.d" "$root$prefix/lib/tmpfiles.d"
    for unit in mews-supervisor.service mews-supervisor.socket mews-cages.service mews.slice; do
        sed "s|/usr/libexec/mews|$prefix/libexec/mews|; s|/usr/share/doc|$prefix/share/doc|" \
            "$here/systemd/$unit" >"$units/$unit.new"
        chmod 644 "$units/$unit.new"
        mv -f "$units/$unit.new" "$units/$unit"
    done
    install -m 644 "$here/systemd/mews.sysusers" "$root$prefix/lib/sysusers.d/mews.conf"
    install -m 644 "$here/systemd/mews.tmpfiles" "$root$prefix/lib/tmpfiles.d/mews.conf"
    if [ -z "$root" ] && [ -d /run/systemd/system ]; then
        systemd-sysusers mews.conf
        systemd-tmpfiles --create mews.conf
        systemctl daemon-reload
        echo "next: cp $prefix/share/doc/mews/host.toml.example /etc/mews/host.toml, edit it, then"
        echo "      systemctl enable --now mews-supervisor.socket mews-supervisor.service"
    fi
fi
