#!/usr/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# First program of the guest. The root file system is a read-only directory of
# the host; the 9p share "job" holds what to do:
#
#   env      shell variables: SHARE=1 if there is a share, LEAKS=1 to look for
#            memory leaks at the end
#   command  script to run; without it there is a shell on the console
#   status   written here: the exit status of the command
#
# The command's standard output and error leave by the virtio ports "stdout" and
# "stderr", apart from the console, so that the host gets them as they are.

B=/usr/bin/busybox
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/run/applets
export HOME=/root TERM="${TERM:-linux}" LANG=C.UTF-8

$B mount -t proc proc /proc
$B mount -t sysfs sysfs /sys
$B mount -t devtmpfs devtmpfs /dev
$B mount -t tmpfs tmpfs /run
$B mkdir /dev/pts /dev/shm /run/job /run/applets
$B --install -s /run/applets

mount -t devpts devpts /dev/pts
for dir in /dev/shm /tmp /root /var/tmp; do
	mount -t tmpfs tmpfs $dir
done
mount -t tracefs tracefs /sys/kernel/tracing
mount -t debugfs debugfs /sys/kernel/debug
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup 2>/dev/null
ln -s /proc/self/fd /dev/fd
ln -s /proc/self/fd/0 /dev/stdin
ln -s /proc/self/fd/1 /dev/stdout
ln -s /proc/self/fd/2 /dev/stderr
hostname guest

mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 job /run/job
. /run/job/env
cd /root
if [ "$SHARE" = 1 ]; then
	# Shared writable mappings need more than 9p's default of no cache.
	mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=mmap \
		share /mnt/share && cd /mnt/share
fi

# From here on the console has every message; while booting, warnings and worse.
dmesg -n 8

# $1: name of a virtio port
port() {
	for p in /sys/class/virtio-ports/*; do
		if read -r name <"$p/name" && [ "$name" = "$1" ]; then
			echo "/dev/${p##*/}"
			return
		fi
	done
	echo "init: no virtio port $1" >/dev/kmsg
	echo /dev/null
}

leaks() {
	local leaks=/sys/kernel/debug/kmemleak
	[ -w $leaks ] || return
	# Younger objects than 5 s are passed over, and those whose content changed
	# since the scan before.
	sleep 6
	echo scan >$leaks
	sleep 1
	echo scan >$leaks
	if [ -n "$(head -c 1 $leaks)" ]; then
		echo "init: kmemleak found:"
		cat $leaks
	fi
}

if [ -e /run/job/command ]; then
	# Through pipes, as a port can be opened only once, but /dev/stdout may be
	# opened by anybody.
	mkfifo /run/out /run/err
	cat </run/out >"$(port stdout)" &
	out=$!
	cat </run/err >"$(port stderr)" &
	err=$!
	setsid sh /run/job/command </dev/null >/run/out 2>/run/err
	status=$?
	# Children that are left over may hold the pipes open.
	(sleep 2; kill $out $err) 2>/dev/null &
	wait $out $err
	[ "$LEAKS" = 1 ] && leaks
	echo $status >/run/job/status
else
	setsid cttyhack sh -l
	echo 0 >/run/job/status
fi
sync
# Ends QEMU: it runs with -no-reboot, and not every machine here can power off.
case $(uname -m) in
x86_64) reboot -f ;;
*) poweroff -f ;;
esac
