#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# uprobe_events of tracefs: fetched arguments, return values, filters, profile.

. "${0%/*}/lib/sh.sh"

# Registers of the first three arguments.
case "$(uname -m)" in
x86_64) arg0=%di arg1=%si arg2=%dx ;;
aarch64) arg0=%x0 arg1=%x1 arg2=%x2 ;;
riscv64) arg0=%a0 arg1=%a1 arg2=%a2 ;;
esac

T=/sys/kernel/tracing
G=$UPT_TMP/helpers/greeter

names="string argument
integer arguments
dereferenced arguments
return value
stack and comm
filter on an argument
two events on one site
profile counts hits
histogram trigger
snapshot of uprobe_events
clean afterwards"
oldifs=$IFS
IFS='
'
tests $names
IFS=$oldifs

# greet() has the offset of its address in the file; the program is not PIE.
addr=$("$G" -a)
load=$("$UPT_TMP/helpers/readelf" -lW "$G" | while read -r _ off vaddr _ size _; do
	[ $((0x$addr)) -ge $((vaddr)) ] && [ $((0x$addr)) -lt $((vaddr + size)) ] &&
		echo $((0x$addr - vaddr + off))
done)
offset=$(printf '%#x' "$load")

reset() {
	echo 0 >$T/events/enable
	echo >$T/uprobe_events
	echo >$T/trace
	echo 1 >$T/tracing_on
}

# trace EVENT...: defines the events, runs the program, leaves the trace in $out
trace() {
	reset
	for e in "$@"; do
		echo "$e" >>$T/uprobe_events || return 1
	done
	echo 1 >$T/events/upt/enable || return 1
	"$G" 3 || return 1
	echo 0 >$T/events/upt/enable
	out=$(grep -v '^#' $T/trace)
}

# expect N PATTERN: so many lines of the trace match
expect() {
	n=$(echo "$out" | grep -cE "$2")
	[ "$n" -eq "$1" ] && return 0
	{ echo "$n lines match '$2', expected $1:"; echo "$out"; } | diag
	return 1
}

run() {	# run NAME FUNCTION
	wanted "$1" || return
	"$2"
	report $? "$1"
}

string_argument() {
	trace "p:upt/g $G:$offset text=+0($arg0):string" &&
	expect 3 'g: \(0x' && expect 1 'text="hello"' && expect 1 'text="uprobes"' &&
	expect 1 'text="in Rust"'
}

integer_arguments() {
	trace "p:upt/g $G:$offset n=$arg1:s64 x=$arg1:x8 u=$arg1:u32" &&
	expect 1 'n=0 x=0x0 u=0' && expect 1 'n=1 x=0x1 u=1' && expect 1 'n=2 x=0x2 u=2'
}

dereferenced() {
	trace "p:upt/g $G:$offset id=+0($arg2):s64 name=+0(+8($arg2)):string" &&
	expect 3 'id=4711 name="nobody"'
}

return_value() {
	trace "r:upt/g $G:$offset ret=\$retval:s64" &&
	expect 1 'ret=0' && expect 1 'ret=2' && expect 1 'ret=4' &&
	expect 3 "<- 0x$addr"
}

stack_and_comm() {
	trace "p:upt/g $G:$offset sp=\$stack top=\$stack0 comm=\$comm" &&
	expect 3 'sp=0x[0-9a-f]+ top=0x[0-9a-f]+ comm="greeter"'
}

filter() {
	reset
	echo "p:upt/g $G:$offset n=$arg1:s64" >>$T/uprobe_events
	echo 'n >= 5' >$T/events/upt/g/filter
	echo 1 >$T/events/upt/g/enable
	"$G" 8
	echo 0 >$T/events/upt/g/enable
	out=$(grep -v '^#' $T/trace)
	expect 3 'n=[567]' && expect 3 'g: '
}

two_events() {
	trace "p:upt/a $G:$offset" "p:upt/b $G:$offset" "r:upt/c $G:$offset" &&
	expect 3 ' a: ' && expect 3 ' b: ' && expect 3 ' c: '
}

profile() {
	reset
	echo "p:upt/g $G:$offset" >>$T/uprobe_events
	echo 1 >$T/events/upt/g/enable
	"$G" 100
	echo 0 >$T/events/upt/g/enable
	out=$(cat $T/uprobe_profile)
	expect 1 'g +100$'
}

histogram() {
	[ -e $T/events/sched ] || true
	reset
	echo "p:upt/g $G:$offset n=$arg1:s64" >>$T/uprobe_events
	if ! echo 'hist:keys=n' >$T/events/upt/g/trigger 2>/dev/null; then
		why="no histogram triggers in this kernel"
		return 4
	fi
	"$G" 5
	out=$(cat $T/events/upt/g/hist)
	echo '!hist:keys=n' >$T/events/upt/g/trigger
	expect 5 'hitcount: +1'
}

listing_of_events() {
	reset
	echo "p:upt/g $G:$offset text=+0($arg0):string" >>$T/uprobe_events
	echo "r:upt/h $G:$offset" >>$T/uprobe_events
	out=$(cat $T/uprobe_events)
	expect 1 "^p:upt/g $G:0x0*$(printf '%x' "$load") text=\+0\($arg0\):string$" &&
	expect 1 "^r:upt/h $G:0x0*$(printf '%x' "$load")$" || return 1
	# The listing can be written back.
	saved=$out
	reset
	echo "$saved" | while read -r line; do echo "$line" >>$T/uprobe_events; done
	out=$(cat $T/uprobe_events)
	[ "$out" = "$saved" ]
}

clean() {
	reset
	[ -z "$(cat $T/uprobe_events)" ] && [ ! -d $T/events/upt ]
}

run "string argument" string_argument
run "integer arguments" integer_arguments
run "dereferenced arguments" dereferenced
run "return value" return_value
run "stack and comm" stack_and_comm
run "filter on an argument" filter
run "two events on one site" two_events
run "profile counts hits" profile
run "histogram trigger" histogram
run "snapshot of uprobe_events" listing_of_events
run "clean afterwards" clean
finish
