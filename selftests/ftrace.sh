#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The kernel tree's own ftrace self-tests that touch uprobes, unchanged.
# FTRACE_SELFTESTS names tools/testing/selftests/ftrace of the tested tree.

. "${0%/*}/lib/sh.sh"

if [ -z "$FTRACE_SELFTESTS" ] || [ ! -x "$FTRACE_SELFTESTS/ftracetest" ]; then
	tests "kernel's ftrace tests"
	why="FTRACE_SELFTESTS is not set"
	report 4 "kernel's ftrace tests"
	finish
fi

cd "$FTRACE_SELFTESTS" || exit 1
cases=$(grep -rl uprobe test.d | grep '\.tc$' | sort)
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
	log=$UPT_TMP/ftrace.log
	sh ./ftracetest -l "$UPT_TMP/ftrace.logs" "$tc" >"$log" 2>&1
	status=$?
	if grep -q '\[UNSUPPORTED\]' "$log"; then
		why="the kernel lacks what it needs"
		status=4
	elif [ "$status" -ne 0 ] || ! grep -q '\[PASS\]' "$log"; then
		status=1
		diag <"$log"
		find "$UPT_TMP/ftrace.logs" -name '*.log' -exec tail -n 20 {} + | diag
	fi
	report "$status" "$tc"
done
finish
