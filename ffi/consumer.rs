// SPDX-License-Identifier: GPL-2.0

//! `struct uprobe_consumer` as a [`Consumer`], and the list of those of a uprobe.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ptr;

use kernel::bindings;

use uprobes_bindings as c;
use uprobes_core::arch::Arch;
use uprobes_core::consumer::Consumer;
use uprobes_core::sys::{Atomic, Full, Relaxed};

use crate::isa::Isa;
use crate::sync::{ReadGuard, RwSemaphore, TasksTrace, WriteGuard};

/// A consumer registered by C code.
///
/// # Invariants
///
/// The handlers are constant while the consumer is registered.
#[repr(transparent)]
pub(crate) struct CConsumer(UnsafeCell<bindings::uprobe_consumer>);

impl CConsumer {
    /// # Safety
    ///
    /// `raw` is valid for `'a`, and its handlers do not change.
    pub(crate) unsafe fn from_raw<'a>(raw: *mut bindings::uprobe_consumer) -> &'a Self {
        // SAFETY: `CConsumer` is transparent; the rest by contract.
        unsafe { &*raw.cast() }
    }

    fn raw(&self) -> &bindings::uprobe_consumer {
        // SAFETY: the members read are constant by the type invariants.
        unsafe { &*self.0.get() }
    }

    /// Whether the consumer does not want hits in all processes.
    #[inline]
    pub(crate) fn is_choosy(&self) -> bool {
        self.raw().filter.is_some()
    }

    /// Whether the consumer wants hits in `mm`.
    ///
    /// # Context
    ///
    /// The consumers' lock or the registration lock of the uprobe is held.
    pub(crate) fn wants(&self, mm: *mut bindings::mm_struct) -> bool {
        match self.raw().filter {
            None => true,
            // SAFETY: the filter is called as `struct uprobe_consumer` promises.
            Some(filter) => unsafe { filter(self.0.get(), mm) },
        }
    }
}

impl Consumer for CConsumer {
    type Regs = <Isa as Arch>::Regs;

    #[inline]
    fn id(&self) -> u64 {
        self.raw().id
    }

    #[inline]
    fn has_entry(&self) -> bool {
        self.raw().handler.is_some()
    }

    #[inline]
    fn has_return(&self) -> bool {
        self.raw().ret_handler.is_some()
    }

    #[inline]
    fn entry(&self, regs: &mut Self::Regs, cookie: &mut u64) -> i32 {
        let Some(handler) = self.raw().handler else {
            return 0;
        };
        // SAFETY: called in the context that `struct uprobe_consumer` promises, with the
        // registers of the current task (`Regs` is laid out as `struct pt_regs`).
        unsafe { handler(self.0.get(), ptr::from_mut(regs).cast(), cookie) }
    }

    #[inline]
    fn ret(&self, func: u64, regs: &mut Self::Regs, cookie: Option<&mut u64>) {
        if let Some(handler) = self.raw().ret_handler {
            let cookie = cookie.map_or(ptr::null_mut(), ptr::from_mut);
            // SAFETY: as in `entry`.
            unsafe {
                handler(
                    self.0.get(),
                    func as usize,
                    ptr::from_mut(regs).cast(),
                    cookie,
                )
            };
        }
    }
}

/// The consumers of a uprobe.
///
/// # Invariants
///
/// `head` is the head of a list of registered consumers, changed under `lock` held for writing and
/// walked under `lock` or in an RCU Tasks Trace section; a consumer leaves a section's reach only
/// after a grace period.
pub(crate) struct ConsumerList {
    /// Guards the list and calls of filters. Inside the registration lock and the `mmap_lock`.
    pub(crate) lock: RwSemaphore,
    head: UnsafeCell<bindings::list_head>,
}

/// The identity given last.
static LAST_ID: Atomic<u64> = Atomic::new(0);

impl ConsumerList {
    /// Initialises an empty list at `this`.
    ///
    /// # Safety
    ///
    /// `this` is valid for writes, shared with nobody yet, and stays where it is.
    pub(crate) unsafe fn init(this: *mut Self) {
        // SAFETY: by contract.
        unsafe {
            RwSemaphore::init(&raw mut (*this).lock, c::uprobes_init_consumers_lock);
            c::uprobes_list_init((*this).head.get());
        }
    }

    /// Adds a consumer and gives it its identity.
    ///
    /// # Safety
    ///
    /// `consumer` is in no list and stays valid until a grace period after its removal.
    pub(crate) unsafe fn add(
        &self,
        _lock: &WriteGuard<'_>,
        consumer: *mut bindings::uprobe_consumer,
    ) {
        // SAFETY: by contract; the list is locked for changes.
        unsafe { self.add_to_new(consumer) };
    }

    /// As [`ConsumerList::add`], for a list that nobody else knows yet.
    ///
    /// # Safety
    ///
    /// As there, and nobody else changes the list meanwhile.
    pub(crate) unsafe fn add_to_new(&self, consumer: *mut bindings::uprobe_consumer) {
        // SAFETY: nobody else knows the consumer yet; the list is not changed meanwhile.
        unsafe {
            (*consumer).id = LAST_ID.fetch_add(1, Full).wrapping_add(1);
            c::uprobes_list_add_rcu(&raw mut (*consumer).cons_node, self.head.get());
        }
    }

    /// Removes a consumer; sections that are open may still see it.
    ///
    /// # Safety
    ///
    /// `consumer` is in this list.
    pub(crate) unsafe fn remove(
        &self,
        _lock: &WriteGuard<'_>,
        consumer: *mut bindings::uprobe_consumer,
    ) {
        // SAFETY: in the list by contract, which is locked for changes.
        unsafe { c::uprobes_list_del_rcu(&raw mut (*consumer).cons_node) };
    }

    /// Walks the consumers without a lock.
    #[inline]
    pub(crate) fn iter_rcu<'g>(&'g self, _rcu: &'g TasksTrace) -> Iter<'g> {
        self.walk()
    }

    /// Walks the consumers under their lock.
    pub(crate) fn iter_locked<'g>(&'g self, _lock: &'g ReadGuard<'_>) -> Iter<'g> {
        self.walk()
    }

    #[inline]
    fn walk(&self) -> Iter<'_> {
        Iter {
            head: self.head.get(),
            at: self.head.get(),
            _list: PhantomData,
        }
    }

    /// Whether there is none.
    ///
    /// # Context
    ///
    /// The registration lock is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.walk().next().is_none()
    }

    /// Whether any consumer wants hits in all processes. Takes no lock.
    #[inline]
    pub(crate) fn any_wants_all(&self, rcu: &TasksTrace) -> bool {
        self.iter_rcu(rcu).any(|consumer| !consumer.is_choosy())
    }

    /// Whether any consumer wants hits in `mm`.
    ///
    /// # Context
    ///
    /// Takes the consumers' lock; may sleep.
    pub(crate) fn any_wants(&self, mm: *mut bindings::mm_struct) -> bool {
        let guard = self.lock.read();
        let wanted = self.iter_locked(&guard).any(|consumer| consumer.wants(mm));
        wanted
    }
}

/// Walks a [`ConsumerList`].
pub(crate) struct Iter<'g> {
    head: *mut bindings::list_head,
    at: *mut bindings::list_head,
    _list: PhantomData<&'g ConsumerList>,
}

impl<'g> Iterator for Iter<'g> {
    type Item = &'g CConsumer;

    #[inline]
    fn next(&mut self) -> Option<&'g CConsumer> {
        // SAFETY: `at` is the head or a consumer of the list, valid in the section or under the
        // lock that the iterator borrows; `next` is read as `list_next_rcu()` does.
        let next = unsafe { Atomic::from_ptr(&raw mut (*self.at).next) }.load(Relaxed);
        if next == self.head {
            return None;
        }
        self.at = next;
        // SAFETY: every node but the head is the `cons_node` of a consumer.
        let raw = unsafe { kernel::container_of!(next, bindings::uprobe_consumer, cons_node) };
        // SAFETY: valid as above; handlers of registered consumers do not change.
        Some(unsafe { CConsumer::from_raw(raw) })
    }
}
