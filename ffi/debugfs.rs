// SPDX-License-Identifier: GPL-2.0

//! What can be seen from outside: `/sys/kernel/debug/uprobes/`.
//!
//! - `implementation`: which implementation the kernel was built with;
//! - `probes`: a line for each uprobe: inode, offset, semaphore, kind and number of consumers;
//! - `text_changes`: how many changes of text were made in place, how many apart.

use core::ptr;

use kernel::bindings;
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;
use kernel::str::CStr;

use crate::sync::TasksTrace;
use crate::text;
use crate::uprobe;

use uprobes_bindings as c;

/// The operations of a file that `single_open()` serves.
struct FileOps(bindings::file_operations);

// SAFETY: constant, and its functions may be called from anywhere.
unsafe impl Sync for FileOps {}

const fn ops(
    open: unsafe extern "C" fn(*mut bindings::inode, *mut bindings::file) -> c_int,
) -> FileOps {
    // SAFETY: zero is valid for every member.
    let mut ops: bindings::file_operations = unsafe { core::mem::zeroed() };
    ops.open = Some(open);
    ops.read = Some(bindings::seq_read);
    ops.llseek = Some(bindings::seq_lseek);
    ops.release = Some(bindings::single_release);
    FileOps(ops)
}

static IMPLEMENTATION: FileOps = ops(open_implementation);
static PROBES: FileOps = ops(open_probes);
static TEXT_CHANGES: FileOps = ops(open_text_changes);

unsafe extern "C" fn open_implementation(
    _inode: *mut bindings::inode,
    file: *mut bindings::file,
) -> c_int {
    // SAFETY: called by the VFS with a valid file.
    unsafe { bindings::single_open(file, Some(show_implementation), ptr::null_mut()) }
}

unsafe extern "C" fn open_probes(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    // SAFETY: called by the VFS with a valid file.
    unsafe { bindings::single_open(file, Some(show_probes), ptr::null_mut()) }
}

unsafe extern "C" fn open_text_changes(
    _inode: *mut bindings::inode,
    file: *mut bindings::file,
) -> c_int {
    // SAFETY: called by the VFS with a valid file.
    unsafe { bindings::single_open(file, Some(show_text_changes), ptr::null_mut()) }
}

unsafe extern "C" fn show_text_changes(m: *mut bindings::seq_file, _: *mut c_void) -> c_int {
    // SAFETY: called by seq_file with itself.
    let m = unsafe { kernel::seq_file::SeqFile::from_raw(m) };
    kernel::seq_print!(
        m,
        "in-place {}\napart {}\nidle {}\n",
        text::IN_PLACE.get(),
        text::APART.get(),
        text::IDLE.get()
    );
    0
}

unsafe extern "C" fn show_implementation(m: *mut bindings::seq_file, _: *mut c_void) -> c_int {
    // SAFETY: called by seq_file with itself.
    unsafe { c::uprobes_seq_puts(m, c"rust\n".as_ptr().cast()) };
    0
}

unsafe extern "C" fn show_probes(m: *mut bindings::seq_file, _: *mut c_void) -> c_int {
    // SAFETY: called by seq_file with itself.
    let m = unsafe { kernel::seq_file::SeqFile::from_raw(m) };
    kernel::seq_print!(m, "inode offset semaphore kind consumers\n");
    let rcu = TasksTrace::enter();
    for uprobe in uprobe::all(&rcu) {
        // The inode is kept by the consumers, which may be gone any moment.
        let Some(uprobe) = uprobe.try_get() else {
            continue;
        };
        let lock = uprobe.consumers.lock.read();
        let consumers = uprobe.consumers.iter_locked(&lock).count();
        if consumers == 0 {
            continue;
        }
        let kind = match uprobe.code() {
            None => "unmapped",
            Some(code) if code.analysis.simulated => "simulated",
            Some(_) => "stepped",
        };
        // SAFETY: kept by the consumers, which cannot leave while their lock is held.
        let ino = unsafe { (*uprobe.inode()).i_ino };
        kernel::seq_print!(
            m,
            "{} {:#x} {:#x} {} {}\n",
            ino,
            uprobe.offset(),
            uprobe.ref_ctr_offset(),
            kind,
            consumers
        );
    }
    0
}

fn create(dir: *mut bindings::dentry, name: &CStr, ops: &'static FileOps) {
    // SAFETY: the operations are static; debugfs takes an error for `dir` and does nothing then.
    unsafe {
        bindings::debugfs_create_file_full(
            name.as_char_ptr(),
            0o444,
            dir,
            ptr::null_mut(),
            ptr::null(),
            &ops.0,
        );
    }
}

/// Makes the files. Called once, when file systems can be.
pub(crate) fn init() {
    // SAFETY: an FFI call in process context.
    let dir = unsafe { bindings::debugfs_create_dir(c"uprobes".as_ptr().cast(), ptr::null_mut()) };
    create(dir, c"implementation", &IMPLEMENTATION);
    create(dir, c"probes", &PROBES);
    create(dir, c"text_changes", &TEXT_CHANGES);
}
