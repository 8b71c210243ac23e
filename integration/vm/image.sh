#!/bin/sh
# Makes a guest of Debian that boots with systemd and nothing but cgroup v2:
#
#   image.sh bookworm|trixie DIR
#
# DIR then has `disk.img` (never written to again: each boot has a copy-on-write layer of its own),
# `kernel` and `initrd.gz`. Wants root, and the packages that `cargo xtask vm` names.
#
# The guest runs what is on its second disk, /mews/guest.sh, and powers off.
set -eu
suite=$1 dir=$2
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

# What a host of mews has, then what the suites play with inside and beside the cages.
packages=systemd,systemd-sysv,libpam-systemd,dbus,dbus-user-session,udev,kmod,iproute2,procps,util-linux
packages=$packages,passwd,bubblewrap
packages=$packages,python3-minimal,libpython3-stdlib,vim,less,htop,tmux,screen,dtach,nodejs,gcc,libc6-dev
packages=$packages,strace

mkdir -p "$dir"
cd "$dir"
rm -rf root root.new kernel initrd initrd.gz disk.img
debootstrap --variant=minbase --include="$packages" "$suite" root.new

# The kernel as a file: its package's hooks would make an initrd and a boot loader that nobody needs.
chroot root.new apt-get update -qq
image=$(chroot root.new apt-cache depends linux-image-cloud-amd64 |
    sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
rm -rf unpacked
mkdir unpacked
(cd root.new/tmp && chroot .. sh -c "cd /tmp && apt-get download -qq $image")
dpkg -x root.new/tmp/linux-image-*.deb unpacked
rm -f root.new/tmp/linux-image-*.deb
cp unpacked/boot/vmlinuz-* kernel
modules=unpacked/lib/modules
[ -d "$modules" ] || modules=unpacked/usr/lib/modules
version=$(ls "$modules")
mkdir -p root.new/usr/lib/modules
cp -a "$modules/$version" root.new/usr/lib/modules/
chroot root.new depmod "$version"
chroot root.new apt-get clean
rm -rf root.new/var/lib/apt/lists/*

echo mews-vm >root.new/etc/hostname
printf '127.0.0.1 localhost mews-vm\n' >root.new/etc/hosts
printf '/dev/vda / ext4 defaults,noatime 0 1\n/dev/vdb /mews ext4 ro 0 0\n' >root.new/etc/fstab
mkdir -p root.new/mews
cat >root.new/etc/systemd/system/mews-guest.service <<'UNIT'
# What is tried in this guest. Its cgroup is its own, as that of a service that starts cages must be.
[Unit]
Description=what is tried in this guest
After=multi-user.target systemd-logind.service

[Service]
Type=oneshot
Delegate=yes
ExecStart=/bin/sh /mews/guest.sh
Environment=HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
TimeoutStartSec=infinity
TasksMax=infinity
StandardInput=null
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
ExecStopPost=/bin/systemctl --no-block poweroff --force
UNIT
wants=root.new/etc/systemd/system/multi-user.target.wants
mkdir -p "$wants"
ln -sf ../mews-guest.service "$wants/mews-guest.service"
# Nothing else speaks on the console, and nothing of the network is waited for.
for unit in serial-getty@ttyS0.service getty@tty1.service systemd-timesyncd.service \
    systemd-networkd-wait-online.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer \
    e2scrub_reap.service fstrim.timer dpkg-db-backup.timer; do
    ln -sf /dev/null "root.new/etc/systemd/system/$unit"
done

mkdir -p initrd/bin initrd/proc initrd/sys initrd/dev initrd/new initrd/m
cp "$(command -v busybox)" initrd/bin/
modules="virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk
    crc16 crc32c_generic mbcache jbd2 ext4"
for module in $modules; do
    # What is not there is built into this kernel.
    found=$(find root.new/usr/lib/modules -name "$module.ko" -o -name "$module.ko.xz" | head -n 1)
    case $found in
        *.xz) xz -dc "$found" >"initrd/m/$module.ko" ;;
        *.ko) cp "$found" initrd/m/ ;;
    esac
done
cat >initrd/init <<INIT
#!/bin/busybox sh
b=/bin/busybox
\$b mount -t proc proc /proc
\$b mount -t sysfs sysfs /sys
\$b mount -t devtmpfs devtmpfs /dev
for module in $(echo $modules); do
    [ ! -f /m/\$module.ko ] || \$b insmod /m/\$module.ko
done
\$b mount -t ext4 /dev/vda /new || { echo "guest: no root file system"; \$b poweroff -f; }
\$b mount --move /dev /new/dev
\$b umount /sys /proc
exec \$b switch_root /new /lib/systemd/systemd
INIT
chmod 755 initrd/init
(cd initrd && find . | cpio -o -H newc --quiet | gzip -1) >initrd.gz

truncate -s 6G disk.new
mkfs.ext4 -q -F -d root.new disk.new
mv disk.new disk.img
chmod 644 disk.img kernel initrd.gz
rm -rf root.new unpacked initrd
