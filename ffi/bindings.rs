// SPDX-License-Identifier: GPL-2.0

//! What `rust/bindings` lacks: types and functions of C that only this subsystem uses, and the
//! helpers of `helpers.c`. Types that `rust/bindings` has are shared with it.

#![allow(
    missing_docs,
    improper_ctypes,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "made by bindgen"
)]

include!(concat!(
    env!("OBJTREE"),
    "/kernel/uprobes_rs/ffi/bindings_generated.rs"
));
