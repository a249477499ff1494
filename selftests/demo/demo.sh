#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# What a user does with uprobes, with the user's own tools: perf, bpftrace and
# tracefs. Every step says what it does, shows what came out and compares the
# counts with the number of calls that the program is known to make.

here=$(cd "$(dirname "$0")" && pwd)
# The guest has no other locale, of which perl would complain.
export LC_ALL=C
dir=${TMPDIR:-/tmp}/uprobes-demo.$$
T=/sys/kernel/tracing

have_mount() { grep -q " $1 " /proc/mounts 2>/dev/null; }
have_mount /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
have_mount /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null

mkdir -p "$dir/bin"
if ! command -v awk >/dev/null && command -v busybox >/dev/null; then
	busybox --install -s "$dir/bin"
	PATH=$PATH:$dir/bin
fi
cp "$here/bakery" "$dir/"
cd "$dir" || exit 1
trap 'cd /; rm -rf "$dir"' EXIT
bakery=$dir/bakery

failed=0
say() { echo; echo "== $*"; }
show() { echo "\$ $*"; "$@" 2>&1 | tee out | sed 's/^/    /'; }

# check WHAT GOT WANT
check() {
	if [ "$2" = "$3" ]; then
		echo "  ok: $1: $2"
	else
		echo "  WRONG: $1: $2, expected $3"
		failed=$((failed + 1))
	fi
}

sum() { awk "$1 { n += \$2 } END { print n + 0 }" out; }

# bpftrace map: the number behind "@name: "
map_value() { sed -n "s/^@$1: *\\(-\\{0,1\\}[0-9][0-9]*\\)\$/\\1/p" out; }

for tool in perf bpftrace perl; do
	command -v $tool >/dev/null || { echo "the demo needs $tool in the guest"; exit 1; }
done
libc=$(find /usr/lib -name libc.so.6 | head -n 1)

say "(a) perf: count the calls of a C library function by an unmodified program"
perf probe -q -d 'probe_libc:*' 2>/dev/null
show perf probe -x "$libc" --add getppid
show perf stat -x, -e probe_libc:getppid perl -e 'getppid() for 1..1000'
check "perl called getppid()" "$(awk -F, '/probe_libc:getppid/ { print $1 }' out)" 1000
show perf probe -d probe_libc:getppid

say "(b) bpftrace: arguments, return values and a histogram of the time a call takes"
# One thread, one @start. 80 orders: pieces 1 to 8 ten times over = 360, at a price of 3 each
show bpftrace -c "$bakery 80" -e "
	uprobe:$bakery:bake { @start = nsecs; @calls = count(); @pieces = sum(arg1); @what[str(arg0)] = count(); }
	uretprobe:$bakery:bake { @returns = count(); @price = sum(retval);
		@nsecs[\"bake\"] = hist(nsecs - @start); }"
check "calls of bake()" "$(map_value calls)" 80
check "pieces, by its second argument" "$(map_value pieces)" 360
check "returns of bake()" "$(map_value returns)" 80
check "price, by its return value" "$(map_value price)" 1080
check "orders of cake, by its first argument" "$(sed -n 's/^@what\[cake\]: //p' out)" 20
check "calls in the histogram" \
	"$(awk -F'[])]' '/^[[(].*\|.*\|$/ { split($2, a, " "); n += a[1] } END { print n + 0 }' out)" 80

say "(c) USDT: a tracepoint of the program that costs nothing while nobody listens"
show "$bakery" 50
check "untraced" "$(cat out)" "bakery: 50 orders, semaphore 0, 0 traced"
show bpftrace -c "$bakery 50" -e "usdt:$bakery:bakery:baked { @hits = count(); @price = sum(arg1); }"
check "traced" "$(grep '^bakery:' out)" "bakery: 50 orders, semaphore 1, 50 traced"
check "hits of bakery:baked" "$(map_value hits)" 50
# six times 1 to 8 and then 1, 2: 219 pieces
check "price, by its second argument" "$(map_value price)" 657

say "(d) uprobe_events: the texts that a function is called with, without any tool"
offset=$(perf probe -x "$bakery" -D bake 2>/dev/null |
	sed -n 's/.*:\(0x[0-9a-f]*\).*/\1/p' | head -n 1)
case "$(uname -m)" in
x86_64) arg=%di ;;
aarch64) arg=%x0 ;;
riscv64) arg=%a0 ;;
esac
echo 0 >$T/tracing_on
echo >$T/trace
echo "\$ echo 'p:demo/bake $bakery:$offset what=+0($arg):string' >$T/uprobe_events"
echo "p:demo/bake $bakery:$offset what=+0($arg):string" >>$T/uprobe_events
echo 1 >$T/events/demo/bake/enable
echo 1 >$T/tracing_on
"$bakery" 12 >/dev/null
echo 0 >$T/events/demo/bake/enable
grep -v '^#' $T/trace >out
head -n 4 out | sed 's/^/    /'
echo "    ..."
check "events" "$(grep -c 'bake: (' out)" 12
for what in bread rolls pretzels cake; do
	check "events with the text $what" "$(grep -c "what=\"$what\"" out)" 3
done
echo "-:demo/bake" >>$T/uprobe_events
check "events that are left" "$(grep -c demo/ $T/uprobe_events)" 0

if grep -qs rust /sys/kernel/debug/uprobes/implementation || grep -q uprobes_rs /proc/kallsyms; then
	impl=Rust
else
	impl=C
fi
echo
if [ "$failed" -ne 0 ]; then
	echo "$failed checks failed."
fi
echo "This was Linux $(uname -r) on $(uname -m); its uprobes are written in $impl."
[ "$failed" -eq 0 ]
