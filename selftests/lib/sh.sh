# SPDX-License-Identifier: GPL-2.0
# For tests in shell: sourced, gives begin, pass, fail, skip and the tools of
# busybox where the root file system has no others.
#
# A script calls `tests "name" "name"...`, then one of the others for each name
# in that order. It ends with `finish`.

base=${0##*/}
base=${base%.sh}
listing=
[ "$1" = --list ] && listing=1

if ! command -v awk >/dev/null && command -v busybox >/dev/null; then
	mkdir -p "${UPT_TMP:-/tmp}/bin"
	busybox --install -s "${UPT_TMP:-/tmp}/bin"
	PATH=$PATH:${UPT_TMP:-/tmp}/bin
	export PATH
fi

nr=0
failed=0

# wanted NAME: does the filter let it run?
wanted() {
	case "$base.sh.$1" in
	*"$UPT_FILTER"*) return 0 ;;
	esac
	return 1
}

# tests NAME...: prints the plan
tests() {
	count=0
	for t in "$@"; do
		wanted "$t" || continue
		count=$((count + 1))
		[ -n "$listing" ] && echo "$base.sh.$t"
	done
	[ -n "$listing" ] && exit 0
	echo "  KTAP version 1"
	echo "  1..$count"
}

diag() { sed 's/^/    # /'; }

# report STATUS NAME: 0 passes, 4 is a skip (reason in $why), all else fails
report() {
	nr=$((nr + 1))
	case "$1" in
	0) echo "  ok $nr $2" ;;
	4) echo "  ok $nr $2 # SKIP $why" ;;
	*) echo "  not ok $nr $2"; failed=$((failed + 1)) ;;
	esac
}

finish() { [ "$failed" -eq 0 ]; exit; }
