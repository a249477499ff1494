// SPDX-License-Identifier: GPL-2.0

//! Proofs that what C code reads is where C code expects it.

use core::mem::{align_of, offset_of, size_of};

use kernel::bindings;

use uprobes_core::hprobe::HprobeState;
use uprobes_core::returns::{LeasedUprobe, ReturnConsumer, ReturnInstance, ReturnStack, MAX_DEPTH};

macro_rules! same_layout {
    ($ours:ty as $theirs:ty { $($our_field:ident = $their_field:ident),* $(,)? }) => {
        const _: () = assert!(size_of::<$ours>() == size_of::<$theirs>());
        const _: () = assert!(align_of::<$ours>() >= align_of::<$theirs>());
        $(const _: () = assert!(
            offset_of!($ours, $our_field) == offset_of!($theirs, $their_field)
        );)*
    };
}

same_layout!(ReturnInstance as bindings::return_instance {
    hprobe = hprobe,
    func = func,
    stack = stack,
    orig_ret_vaddr = orig_ret_vaddr,
    chained = chained,
    cons_cnt = cons_cnt,
    rcu = rcu,
    consumer = consumer,
    extra_consumers = extra_consumers,
});
same_layout!(LeasedUprobe as bindings::hprobe {
    state = state,
    srcu_scp = srcu_scp,
    uprobe = uprobe,
});
same_layout!(ReturnConsumer as bindings::return_consumer {
    cookie = cookie,
    id = id,
});

const _: () = assert!(ReturnInstance::NEXT_OFFSET == offset_of!(bindings::return_instance, next));
const _: () = assert!(ReturnStack::DEPTH_OFFSET == offset_of!(bindings::uprobe_task, depth));
const _: () =
    assert!(ReturnStack::HEAD_OFFSET == offset_of!(bindings::uprobe_task, return_instances));
const _: () = assert!(ReturnStack::POOL_OFFSET == offset_of!(bindings::uprobe_task, ri_pool));
const _: () = assert!(MAX_DEPTH == bindings::MAX_URETPROBE_DEPTH);

const _: () = assert!(HprobeState::Leased as u32 == bindings::hprobe_state_HPROBE_LEASED);
const _: () = assert!(HprobeState::Stable as u32 == bindings::hprobe_state_HPROBE_STABLE);
const _: () = assert!(HprobeState::Gone as u32 == bindings::hprobe_state_HPROBE_GONE);
const _: () = assert!(HprobeState::Consumed as u32 == bindings::hprobe_state_HPROBE_CONSUMED);

const _: () = assert!(size_of::<bindings::uprobes_state>() == size_of::<usize>());
