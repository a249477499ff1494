// SPDX-License-Identifier: GPL-2.0

//! Proofs that what C code reads is where C code expects it.

use core::mem::{align_of, offset_of, size_of};

use kernel::bindings;

use uprobes_bindings as c;

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

/// Compares what bindgen found with what the C compiler does.
macro_rules! as_in_c {
    ($($type:ident { $($($path:ident).+),* $(,)? })*) => {
        $($(as_in_c!(@offset $type, $($path).+);)*)*
    };
    (@offset $type:ident, $field:ident) => {
        as_in_c!(@assert $type, $field, offset_of!(bindings::$type, $field));
    };
    (@offset $type:ident, $outer:ident . $field:ident) => {
        as_in_c!(@assert $type, $field, offset_of!(bindings::$type, $outer.$field));
    };
    (@offset $type:ident, $outer:ident . $inner:ident . $field:ident) => {
        as_in_c!(@assert $type, $field, offset_of!(bindings::$type, $outer.$inner.$field));
    };
    (@assert $type:ident, $field:ident, $offset:expr) => {
        kernel::macros::paste! {
            const _: () = assert!($offset == c::[<UPROBES_OFFSET_ $type _ $field>]);
        }
    };
}

as_in_c! {
    vm_area_struct {
        __bindgen_anon_1.__bindgen_anon_1.vm_start,
        __bindgen_anon_1.__bindgen_anon_1.vm_end,
        vm_mm,
        vm_file,
    }
    mm_struct { __bindgen_anon_1.uprobes_state }
    file { f_mapping }
    inode { i_mapping, i_ino }
    vm_fault { page }
    sigqueue { list, info }
    uprobe_consumer { handler, ret_handler, filter, cons_node, id }
    uprobe_task {
        depth,
        return_instances,
        ri_pool,
        ri_timer,
        __bindgen_anon_1.__bindgen_anon_1.vaddr,
        __bindgen_anon_1.__bindgen_anon_2.dup_xol_work,
        __bindgen_anon_1.__bindgen_anon_2.dup_xol_addr,
        auprobe,
    }
    return_instance {
        hprobe, func, stack, orig_ret_vaddr, chained, cons_cnt, next, consumer, extra_consumers,
    }
}

macro_rules! same_size_as_in_c {
    ($from:ident: $($type:ident),* $(,)?) => {
        kernel::macros::paste! {
            $(const _: () = assert!(size_of::<$from::$type>() == c::[<UPROBES_SIZE_ $type>]);)*
        }
    };
}

same_size_as_in_c! {
    bindings: uprobe_task, return_instance, rw_semaphore, spinlock, wait_queue_head,
    wait_queue_entry, work_struct, delayed_work, callback_head,
    vm_special_mapping, file_operations, notifier_block,
}
same_size_as_in_c! { c: folio_walk, mmu_notifier_range }
