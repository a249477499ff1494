#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Runs the guest tests and prints KTAP.
#
#   run.sh [--quick | --full] [FILTER]
#
# FILTER is a part of "program.test name". Environment:
#   IMPL=rust|c             the implementation that the caller expects
#   FTRACE_SELFTESTS=DIR    tools/testing/selftests/ftrace of the kernel's tree
#
# Exit status: 0 if no test failed.

here=$(cd "$(dirname "$0")" && pwd)

# All of it with perf's hooks in the scheduler on, see there.
if [ -z "$UPT_HELD" ]; then
	UPT_HELD=1
	export UPT_HELD
	exec "$here/helpers/perf_hold" sh "$0" "$@"
fi

UPT_FULL=0
UPT_FILTER=
while [ $# -gt 0 ]; do
	case "$1" in
	--quick) UPT_FULL=0 ;;
	--full) UPT_FULL=1 ;;
	-*) echo "usage: $0 [--quick | --full] [filter]" >&2; exit 2 ;;
	*) UPT_FILTER=$1 ;;
	esac
	shift
done
export UPT_FULL
[ -n "$UPT_FILTER" ] && export UPT_FILTER

have_mount() { grep -q " $1 " /proc/mounts 2>/dev/null; }

[ -e /proc/self ] || mount -t proc proc /proc
have_mount /sys || mount -t sysfs sysfs /sys
have_mount /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
have_mount /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing

# The programs run from a tmpfs of their own: what they map, rename and truncate
# there is nobody else's.
UPT_TMP=${TMPDIR:-/tmp}/upt.$$
export UPT_TMP
mkdir -p "$UPT_TMP"
mount -t tmpfs -o mode=0755 upt "$UPT_TMP" || exit 2
trap 'cd /; umount -l "$UPT_TMP"; rmdir "$UPT_TMP"' EXIT
for f in "$here"/*; do
	[ -f "$f" ] && cp "$f" "$UPT_TMP/"
done
cp -r "$here/helpers" "$here/lib" "$UPT_TMP/"
cd "$UPT_TMP" || exit 2

impl_of_kernel() {
	if grep -qs rust /sys/kernel/debug/uprobes/implementation ||
	   grep -q uprobes_rs /proc/kallsyms; then
		echo rust
	else
		echo c
	fi
}

splats() { dmesg | grep -cE 'cut here|BUG:|KASAN|KFENCE|possible (circular|recursive) locking|suspicious RCU|Oops|kmemleak: [0-9]'; }

impl=$(impl_of_kernel)

# Debug kernels are slow.
if [ -z "$UPT_SLOW" ] && grep -qE ' (kasan_report|lockdep_init)$' /proc/kallsyms; then
	UPT_SLOW=5
	export UPT_SLOW
fi
leaks=/sys/kernel/debug/kmemleak
[ -w $leaks ] && echo clear >$leaks

programs=
for f in counts retprobe insn consumers mapping semaphore debugger seccomp ia32 \
	 syscalls errnos callchain signals cleanup tracefs.sh ftrace.sh nomem many races \
	 semaphore_faults; do
	[ -x "./$f" ] || continue
	[ -n "$("./$f" --list)" ] && programs="$programs $f"
done
[ -n "$programs" ] || { echo "no test matches '$UPT_FILTER'" >&2; exit 2; }

set -- $programs
echo "KTAP version 1"
extra=2
[ -w $leaks ] && extra=3
echo "1..$(($# + extra))"
nr=1
failed=0

result() {	# result STATUS NAME
	if [ "$1" -eq 0 ]; then
		echo "ok $nr $2"
	else
		echo "not ok $nr $2"
		failed=$((failed + 1))
	fi
	nr=$((nr + 1))
}

echo "# the running kernel has the $impl implementation"
[ -z "$IMPL" ] || [ "$IMPL" = "$impl" ]
result $? "implementation is the one expected"

before=$(splats)
for prog in $programs; do
	start=$(date +%s)
	"./$prog"
	result $? "$prog"
	echo "# $prog took $(($(date +%s) - start)) s"
done

# kmemleak wants a second look and some seconds before it believes in a leak.
if [ -w $leaks ]; then
	sleep 6
	echo scan >$leaks
	sleep 6
	echo scan >$leaks
	sed 's/^/# /' $leaks
	[ -z "$(cat $leaks)" ]
	result $? "no leak found by kmemleak"
fi

# A splat is a failure of its own, whatever the tests say.
after=$(splats)
[ "$before" = "$after" ] || dmesg | grep -A40 'cut here' | sed 's/^/# /'
[ "$before" = "$after" ]
status=$?
# C warns where it is wrong; what that does to programs is what the tests are about.
if [ "$status" -ne 0 ] && [ "$impl" = c ]; then
	result 0 "no splat in the kernel's log # XFAIL C: it warns"
else
	result $status "no splat in the kernel's log"
fi

[ "$failed" -eq 0 ]
