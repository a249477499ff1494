// SPDX-License-Identifier: GPL-2.0

//! User-space probes, the part that knows neither an instruction set nor C.

#![cfg_attr(not(any(test, loom, CONFIG_RUST)), no_std)]

pub mod alarm;
pub mod arch;
pub mod consumer;
pub mod deferred;
pub mod errno;
pub mod hit;
pub mod hprobe;
pub mod index;
pub mod last_hit;
pub mod lease;
pub mod owner_lock;
pub mod pending_work;
pub mod returns;
pub mod semaphore;
pub mod slots;
pub mod sys;
