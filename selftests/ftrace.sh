#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The kernel tree's own ftrace self-tests that touch uprobes or kprobes, unchanged.
# FTRACE_SELFTESTS names tools/testing/selftests/ftrace of the tested tree.

. "${0%/*}/lib/sh.sh"

if [ -z "$FTRACE_SELFTESTS" ] || [ ! -x "$FTRACE_SELFTESTS/ftracetest" ]; then
	tests "kernel's ftrace tests"
	why="FTRACE_SELFTESTS is not set"
	report 4 "kernel's ftrace tests"
	finish
fi

cd "$FTRACE_SELFTESTS" || exit 1
dirs=
# Those of kprobes take minutes.
[ "$UPT_FULL" = 1 ] && dirs="test.d/dynevent test.d/kprobe"
cases=$({ grep -rl uprobe test.d; [ -z "$dirs" ] || grep -rl kprobe $dirs; } |
	grep '\.tc$' | sort -u)
tests $cases

# They take the probed program's layout from readelf.
if ! command -v readelf >/dev/null; then
	mkdir -p "$UPT_TMP/bin"
	ln -sf "$UPT_TMP/helpers/readelf" "$UPT_TMP/bin/readelf"
	PATH=$PATH:$UPT_TMP/bin
	export PATH
fi

for tc in $cases; do
	wanted "$tc" || continue
	# These fail with C as well, the last one now and then.
	why=
	case "${tc##*/}" in
	test_duplicates.tc) why="it does not fit this kernel's configuration" ;;
	kretprobe_maxactive.tc) why="it needs INET" ;;
	kretprobe_entry_arg.tc) why="it takes two lines of the trace for neighbours" ;;
	esac
	if [ -n "$why" ]; then
		report 4 "$tc"
		continue
	fi
	log=$UPT_TMP/ftrace.log
	sh ./ftracetest -l "$UPT_TMP/ftrace.logs" "$tc" >"$log" 2>&1
	status=$?
	if grep -q '\[UNSUPPORTED\]' "$log"; then
		why="the kernel lacks what it needs"
		status=4
	elif grep -q '\[UNRESOLVED\]' "$log"; then
		why="it wants a sample module of the kernel"
		status=4
	elif [ "$status" -ne 0 ] || ! grep -q '\[PASS\]' "$log"; then
		status=1
		diag <"$log"
		find "$UPT_TMP/ftrace.logs" -name '*.log' -exec tail -n 20 {} + | diag
	fi
	report "$status" "$tc"
done
finish
