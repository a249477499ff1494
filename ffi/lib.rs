// SPDX-License-Identifier: GPL-2.0

//! User-space probes in the kernel: the door between C and the crates `uprobes_core` and
//! `uprobes_arch`.
//!
//! Entry points convert what C gives, call one function, and convert back. The logic is in the
//! core; what is here is how it is done in this kernel.
//!
//! C header: [`include/linux/uprobes.h`](srctree/include/linux/uprobes.h)

/// Compares functions with their prototypes in `include/linux/uprobes_rs.h`, as `#[export]` does with
/// those that the kernel crate knows.
macro_rules! as_declared {
    ($($function:ident),*) => {
        $(const _: () = {
            if true {
                uprobes_bindings::$function
            } else {
                $function
            };
        };)*
    };
}

mod consumer;
#[cfg(CONFIG_DEBUG_FS)]
mod debugfs;
mod debugger;
mod deferred;
mod file_lock;
mod hit;
mod isa;
#[cfg(CONFIG_UPROBES_RUST_KUNIT_TEST)]
mod kunit;
mod layout;
mod mm;
mod ref_ctr;
mod register;
mod rescan;
mod returns;
mod signals;
mod sync;
mod task;
mod text;
mod uprobe;
mod user;
mod xol;

use kernel::prelude::*;

/// What `pr_info!` and its like print first.
const __LOG_PREFIX: &[u8] = b"uprobes\0";

/// Sets the subsystem up, early at boot.
///
/// # Safety
///
/// Called once, before any process runs.
#[export]
#[link_section = ".init.text"]
pub(crate) unsafe extern "C" fn uprobes_init() {
    // SAFETY: by contract.
    let listening = unsafe {
        uprobe::init();
        file_lock::init();
        deferred::init();
        isa::init()
    };
    if let Err(err) = listening {
        pr_err!("cannot listen for traps: {:?}\n", err);
    }
}

/// Makes what can be seen from outside.
#[no_mangle]
#[link_section = ".init.text"]
extern "C" fn uprobes_rs_late_init() -> kernel::ffi::c_int {
    #[cfg(CONFIG_DEBUG_FS)]
    debugfs::init();
    0
}
