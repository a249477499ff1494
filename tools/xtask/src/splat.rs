// SPDX-License-Identifier: GPL-2.0

//! Finds the kernel's complaints in a console log.

use regex::Regex;
use std::sync::LazyLock;

/// How a record of the kernel begins: time, then with CONFIG_PRINTK_CALLER who said it.
static STAMP: LazyLock<Regex> = LazyLock::new(|| regex(r"^.*\[ *\d+\.\d{6}\](?:\[ *[TC]\d+\])? "));

/// Beginnings of records that are complaints.
static SPLAT: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"^(?:",
        // Also lockdep and RCU: possible circular locking, suspicious RCU usage, ...
        r"WARNING: |",
        // KASAN, KCSAN, NULL pointers, sleeping functions, soft lockups, ...
        r"(?:watchdog: )?BUG: |BUG [\w-]+ \(|kernel BUG at |",
        r"UBSAN: |CFI failure |KASAN: |KCSAN: |",
        r"(?:general protection fault|Oops|Internal error|stack segment|double fault)[ :,]|",
        r"(?:int3|invalid opcode|divide error|alignment check): \d{4} \[#|",
        r"Unable to handle kernel |Insufficient stack space |",
        r"(?:rcu: )?INFO: (?:rcu|task .* blocked|trying to register|possible )|",
        r"rcu: \S+ detected .*stalls?|",
        r"(?:list_add|list_del|list) (?:double add|corruption)|",
        r"refcount_t: |ODEBUG: |DEBUG_LOCKS_WARN_ON|Bad page state|page:.* dumped because|",
        r"kmemleak: [1-9]\d* new suspected memory leaks|unreferenced object 0x|",
        r"Kernel panic - not syncing|Fixing recursive fault|note: .* exited with |",
        r"Call [Tt]race:",
        r")"
    ))
});

/// Records that look like complaints but tell about the machine, not about our code.
static HARMLESS: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^(?:WARNING: Unprivileged eBPF|WARNING: [Ss]pectre|BUG: Spectre)"));

/// A call trace after one of these is wanted.
static TRACE_WANTED: LazyLock<Regex> = LazyLock::new(|| regex(r"^(?:FAULT_INJECTION: |sysrq: )"));

fn regex(text: &str) -> Regex {
    // PANIC: the expressions are constants, which the tests below compile.
    Regex::new(text).expect("a constant expression")
}

/// Looks at a console line by line.
#[derive(Default)]
pub(crate) struct Scanner {
    found: Vec<String>,
    trace_wanted: bool,
}

impl Scanner {
    /// How many complaints are kept; the rest is in the log.
    const KEPT: usize = 10;

    /// Takes the next line.
    pub(crate) fn line(&mut self, line: &str) {
        let line = line.trim_end();
        let text = match STAMP.find(line) {
            Some(stamp) => &line[stamp.end()..],
            None => line,
        };
        let text = text.trim_start();
        if TRACE_WANTED.is_match(text) {
            self.trace_wanted = true;
        } else if SPLAT.is_match(text) && !HARMLESS.is_match(text) {
            let is_trace = text.starts_with("Call ");
            // A trace belongs to the complaint before it.
            let follows = is_trace && (self.trace_wanted || !self.found.is_empty());
            if is_trace {
                self.trace_wanted = false;
            }
            if !follows && self.found.len() < Self::KEPT {
                self.found.push(text.to_owned());
            }
        }
    }

    /// The complaints so far.
    pub(crate) fn found(&self) -> &[String] {
        &self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str) -> Vec<String> {
        let mut scanner = Scanner::default();
        text.lines().for_each(|line| scanner.line(line));
        scanner.found().to_vec()
    }

    #[test]
    fn complaints_are_found() {
        for line in [
            "[    1.234567] WARNING: kernel/fork.c:123 at copy_process+0x1/0x2, CPU#0: sh/1",
            "[    1.234567][   T42] WARNING: CPU: 0 PID: 1 at kernel/fork.c:1 f+0x1/0x2",
            "[    1.234567] WARNING: possible circular locking dependency detected",
            "[    1.234567] WARNING: inconsistent lock state",
            "[    1.234567] WARNING: suspicious RCU usage",
            "[    1.234567] BUG: KASAN: slab-out-of-bounds in uprobe_register+0x1/0x2",
            "[    1.234567] BUG: sleeping function called from invalid context at mm/x.c:1",
            "[    1.234567] BUG: unable to handle page fault for address: ffff",
            "[    1.234567] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [x:1]",
            "[    1.234567] kernel BUG at lib/list_debug.c:1!",
            "[    1.234567] Oops: general protection fault, probably for non-canonical: 0000 [#1]",
            "[    1.234567] Internal error: Oops - BRK: 00000000f2000008 [#1] SMP",
            "[    1.234567] Unable to handle kernel NULL pointer dereference at virtual address 0",
            "[    1.234567] rcu: INFO: rcu_preempt self-detected stall on CPU",
            "[    1.234567] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "[    1.234567] INFO: rcu_tasks detected stalls on tasks:",
            "[    1.234567] INFO: task kworker/0:1:9 blocked for more than 122 seconds.",
            "[    1.234567] list_del corruption. prev->next should be ffff, but was 0",
            "[    1.234567] UBSAN: array-index-out-of-bounds in kernel/x.c:1:2",
            "[    1.234567] kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
            "unreferenced object 0xffff888 (size 64):",
            "[    1.234567] Kernel panic - not syncing: Fatal exception",
            "[    1.234567] Call Trace:",
            "a program's text without end[    1.234567] BUG: kernel NULL pointer dereference",
        ] {
            assert_eq!(scan(line).len(), 1, "{line}");
        }
    }

    #[test]
    fn talk_is_no_complaint() {
        let boot = "\
SeaBIOS (version 1.16.2-debian-1.16.2-1)
[    0.000000] Linux version 7.3.4 (uprobes-rs@xtask) (Debian clang version 22.1.8)
[    0.000000] Command line: console=ttyS0 oops=panic panic=-1
[    0.000000] BIOS-provided physical RAM map:
[    0.024000] Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on, data leaks possible
[    0.024000] Spectre V1 : Mitigation: usercopy/swapgs barriers
[    0.030000] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar
[    0.030000] kmemleak: Kernel memory leak detector initialized (mem pool available: 15679)
[    0.030000] rcu: \tRCU debug extended QS entry/exit.
[    0.030000] rcu: RCU lockdep checking is enabled.
[    0.030000] Running RCU Tasks wait API self tests
[    0.030000] kasan: KernelAddressSanitizer initialized (generic)
[    0.040000] WARNING: Unprivileged eBPF is enabled
[    0.500000] Warning: unable to open an initial console.
[    0.600000] clocksource: timekeeping watchdog on CPU1: Marking clocksource 'tsc' as unstable
[    1.000000] traps: prog[77] trap int3 ip:401000 sp:7ffc0 error:0 in prog[401000+1000]
[    1.000000] traps: prog[78] general protection fault ip:401000 sp:7ffc0 error:0
[    1.000000] prog[79]: segfault at 0 ip 401000 sp 7ffc0 error 4 in prog[401000+1000]
[    1.000000] uprobe: bpftrace:99 failed to unregister, leaking uprobe
[    1.000000] init: WARNING is but a word here
# KTAP: the test BUG: does not begin the line
[    2.000000] reboot: Restarting system";
        assert_eq!(scan(boot), Vec::<String>::new());
    }

    #[test]
    fn trace_belongs_to_what_was_said_before() {
        let warning =
            "[    1.000000] WARNING: x\n[    1.000000] Call Trace:\n[    1.000000]  f+0x1/0x2";
        assert_eq!(scan(warning), ["WARNING: x"]);
        let injected =
            "[    1.000000] FAULT_INJECTION: forcing a failure.\n[    1.000000] Call Trace:";
        assert_eq!(scan(injected), Vec::<String>::new());
        let twice = format!("{injected}\n[    2.000000] Call Trace:");
        assert_eq!(scan(&twice), ["Call Trace:"]);
    }
}
