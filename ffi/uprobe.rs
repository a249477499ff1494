// SPDX-License-Identifier: GPL-2.0

//! The uprobe object, its life and the index of all of them.
//!
//! ```text
//!   alloc ── insert ──> indexed ── last consumer and last breakpoint gone ──> retired: erased
//!                                                                               │
//!                                                         last reference put <──┘
//!                                                                 │ worker
//!           freed <── RCU <── lease SRCU <── RCU Tasks Trace <────┘
//! ```
//!
//! A consumer owns a reference, the index owns none; a uprobe whose breakpoints could not be put in
//! is erased with its last reference. Whoever found a uprobe in the index inside a
//! [`TasksTrace`] section, or holds a lease, may use it until the section or the lease ends; to
//! keep it longer it takes a reference, which fails once the last one is gone.
//!
//! The order of the grace periods is that of the ways to a uprobe: a section finds it, takes a
//! lease in it, and a timer that looks at the lease does so inside RCU (see
//! [`uprobes_core::hprobe`]).

use core::cell::UnsafeCell;
use core::mem::{self, MaybeUninit};
use core::ops::Deref;
use core::ptr::{self, NonNull};

use kernel::bindings;
use kernel::ffi::c_void;
use kernel::prelude::*;

use uprobes_bindings as c;
use uprobes_core::arch::{same_start, Analysis, Arch, MAX_INSN_BYTES};
use uprobes_core::deferred::Node as Grave;
use uprobes_core::errno::Errno;
use uprobes_core::index::{Index, Key, Node, NodeRef, ReadSection, WriteLocked, Writer};
use uprobes_core::pending_work::PendingWork;
use uprobes_core::sys::{Acquire, Atomic, Full, Release};

use crate::consumer::ConsumerList;
use crate::deferred::Deferrer;
use crate::file_lock::FileGuard;
use crate::isa::Isa;
use crate::sync::{self, lease_srcu, SpinGuard, SpinLock, TasksTrace};

/// An instruction as the backend has analysed it.
pub(crate) type Insn = <Isa as Arch>::Insn;

/// The probed instruction: its bytes in the file and what the backend made of them.
#[derive(Clone, Copy)]
pub(crate) struct Code {
    /// The bytes in the file, zero beyond its end.
    pub(crate) bytes: [u8; MAX_INSN_BYTES],
    /// What the backend made of them.
    pub(crate) analysis: Analysis<Insn>,
}

impl Code {
    /// Whether `bytes` begin with the same instruction.
    pub(crate) fn is_start_of(&self, bytes: &[u8; MAX_INSN_BYTES]) -> bool {
        same_start(&self.bytes, bytes, usize::from(self.analysis.len))
    }
}

/// A probed place in a file.
///
/// # Invariants
///
/// - `code` is initialised and constant once `ready` is true.
/// - `inode` is valid as long as there is a consumer (its owner keeps the inode).
#[repr(C)]
pub(crate) struct Uprobe {
    node: Node,
    refs: UnsafeCell<bindings::refcount_t>,
    /// The consumers and the lock for changing them and for calling their filters.
    pub(crate) consumers: ConsumerList,
    id: u64,
    inode: *mut bindings::inode,
    offset: u64,
    ref_ctr_offset: u64,
    ready: Atomic<bool>,
    code: UnsafeCell<MaybeUninit<Code>>,
    grave: UnsafeCell<Grave>,
    work: UnsafeCell<MaybeUninit<bindings::delayed_work>>,
    /// Whether `work` is to remove breakpoints that could not be removed.
    pub(crate) removal: PendingWork,
}

// SAFETY: what changes after construction is atomic or guarded by the locks beside it.
unsafe impl Send for Uprobe {}
// SAFETY: as above.
unsafe impl Sync for Uprobe {}

/// All uprobes by inode and offset.
static INDEX: Index = Index::new();

struct IndexLock(UnsafeCell<MaybeUninit<SpinLock>>);

// SAFETY: written once at boot, before anything can use it; a spin lock from then on.
unsafe impl Sync for IndexLock {}

/// Serialises changes of [`INDEX`]; innermost lock.
static INDEX_LOCK: IndexLock = IndexLock(UnsafeCell::new(MaybeUninit::uninit()));

/// The right to change [`INDEX`].
struct IndexWriter(#[expect(dead_code, reason = "held for its drop")] SpinGuard<'static>);

// SAFETY: nodes are erased under the lock only, so none that is found under it goes away.
unsafe impl ReadSection for IndexWriter {}
// SAFETY: the guard of the one lock of the index.
unsafe impl WriteLocked for IndexWriter {}

impl IndexWriter {
    /// How many changes are made before others get the lock.
    const AT_ONCE: usize = 64;

    fn lock() -> Self {
        // SAFETY: initialised by `init` at boot.
        let lock = unsafe { (*INDEX_LOCK.0.get()).assume_init_ref() };
        Self(lock.lock())
    }

    fn writer(&mut self) -> Writer<'_> {
        // SAFETY: the lock is that of the index.
        unsafe { INDEX.writer(self) }
    }
}

/// Where uprobes are allocated.
struct Cache(UnsafeCell<*mut bindings::kmem_cache>);

// SAFETY: written once at boot, before anything can use it.
unsafe impl Sync for Cache {}

static CACHE: Cache = Cache(UnsafeCell::new(ptr::null_mut()));

impl Cache {
    /// # Safety
    ///
    /// Called once at boot, before anything is allocated.
    unsafe fn init(&self) {
        // SAFETY: nobody else uses the cache yet. It does not return without one.
        unsafe {
            *self.0.get() =
                c::uprobes_cache_create(c"uprobe".as_ptr().cast(), size_of::<Uprobe>() as u32);
        }
    }

    /// Fills `memory` with that of uprobes; answers whether there was so much.
    ///
    /// # Context
    ///
    /// May sleep.
    fn alloc(&self, memory: &mut [*mut c_void]) -> bool {
        // SAFETY: initialised at boot.
        unsafe { c::uprobes_cache_alloc_bulk(*self.0.get(), memory.len(), memory.as_mut_ptr()) }
    }

    /// # Safety
    ///
    /// `uprobe` is memory from [`Cache::alloc`], and nobody uses it.
    unsafe fn free(&self, uprobe: *mut Uprobe) {
        // SAFETY: by contract.
        unsafe { bindings::kmem_cache_free(*self.0.get(), uprobe.cast()) };
    }
}

/// Prepares the index.
///
/// # Safety
///
/// Called once at boot, before any other function of this module.
pub(crate) unsafe fn init() {
    // SAFETY: nobody else uses the lock yet; statics do not move.
    unsafe {
        SpinLock::init(INDEX_LOCK.0.get().cast(), c::uprobes_init_index_lock);
        CACHE.init();
        GRAVEYARD.init(bury);
    }
}

/// Whether there is no uprobe at all.
#[inline]
pub(crate) fn none_registered() -> bool {
    INDEX.is_empty()
}

/// Whether there may be uprobes of `inode`; if not, there is none for sure.
#[inline]
pub(crate) fn may_be_in(inode: *mut bindings::inode) -> bool {
    INDEX.may_have(inode as u64)
}

/// Number of uprobes ever taken out of the index; see [`uprobes_core::last_hit`].
#[inline]
pub(crate) fn erasures() -> u64 {
    INDEX.erasures()
}

fn key(inode: *mut bindings::inode, offset: u64) -> Key {
    Key::new(inode as u64, offset)
}

/// The uprobe that a node of [`INDEX`] is a part of.
fn of_node(node: NodeRef<'_>) -> &Uprobe {
    // SAFETY: every node of the index is the first member of a `Uprobe`, which is valid for as
    // long as the section that `node` borrows.
    unsafe { node.as_ptr().cast().as_ref() }
}

/// Finds the uprobe at `offset` of `inode`, which need not be valid.
///
/// # Context
///
/// Inside an RCU Tasks Trace section, shown by `rcu`, which the result borrows. Takes no lock.
#[inline]
pub(crate) fn find<'g>(
    inode: *mut bindings::inode,
    offset: u64,
    rcu: &'g TasksTrace,
) -> Option<&'g Uprobe> {
    INDEX.find(key(inode, offset), rcu).map(of_node)
}

/// The uprobes of `inode` at offsets `range`, ascending.
///
/// # Context
///
/// As [`find`].
pub(crate) fn in_range<'g>(
    inode: *mut bindings::inode,
    range: core::ops::Range<u64>,
    rcu: &'g TasksTrace,
) -> impl Iterator<Item = &'g Uprobe> {
    let end = key(inode, range.end);
    INDEX
        .iter_from(key(inode, range.start), rcu)
        .take_while(move |node| node.key() < end)
        .map(of_node)
}

/// Every uprobe, by inode and offset.
///
/// # Context
///
/// As [`find`].
pub(crate) fn all(rcu: &TasksTrace) -> impl Iterator<Item = &Uprobe> {
    INDEX.iter_from(Key::new(0, 0), rcu).map(of_node)
}

/// The identity given last.
static LAST_ID: Atomic<u64> = Atomic::new(0);

impl Uprobe {
    /// A number that no other uprobe has or had.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The file.
    pub(crate) fn inode(&self) -> *mut bindings::inode {
        self.inode
    }

    /// Offset in the file in bytes.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Offset of the semaphore in the file in bytes; zero if there is none.
    pub(crate) fn ref_ctr_offset(&self) -> u64 {
        self.ref_ctr_offset
    }

    /// The analysed instruction, or [`None`] until the first mapping was seen.
    #[inline]
    pub(crate) fn code(&self) -> Option<&Code> {
        if !self.ready.load(Acquire) {
            return None;
        }
        // SAFETY: by the type invariants, `ready` means initialised and constant.
        Some(unsafe { (*self.code.get()).assume_init_ref() })
    }

    /// Gets the instruction, reading and analysing it with `make` the first time.
    ///
    /// # Context
    ///
    /// May sleep. Takes the consumers' lock.
    pub(crate) fn code_or_make(
        &self,
        make: impl FnOnce() -> Result<Code, Errno>,
    ) -> Result<&Code, Errno> {
        if let Some(code) = self.code() {
            return Ok(code);
        }
        let _guard = self.consumers.lock.write();
        if let Some(code) = self.code() {
            return Ok(code);
        }
        let code = make()?;
        // SAFETY: `ready` is false and only changes under the lock, so nobody reads `code`.
        let code = unsafe { (*self.code.get()).write(code) };
        // INVARIANT: `code` was initialised just now and is not written again.
        self.ready.store(true, Release);
        Ok(code)
    }

    /// Has `work` called in a worker in `delay` jiffies.
    ///
    /// # Safety
    ///
    /// The work is neither queued nor will it be before it is called.
    pub(crate) unsafe fn call_later(
        &self,
        work: unsafe extern "C" fn(*mut bindings::work_struct),
        delay: usize,
    ) {
        // SAFETY: by contract.
        unsafe {
            c::uprobes_init_delayed_work(self.work.get().cast(), Some(work));
            c::uprobes_schedule_delayed_work(self.work.get().cast(), delay);
        }
    }

    /// The uprobe that `work` was given for by [`Uprobe::call_later`].
    ///
    /// # Safety
    ///
    /// `work` is what the function was called with.
    pub(crate) unsafe fn of_work(work: *mut bindings::work_struct) -> *mut Uprobe {
        let work = work.cast::<UnsafeCell<MaybeUninit<bindings::delayed_work>>>();
        // SAFETY: the work is the first member of the delayed work of a uprobe.
        unsafe { kernel::container_of!(work, Uprobe, work) }
    }

    /// Takes a reference, unless the last one is gone.
    pub(crate) fn try_get(&self) -> Option<UprobeRef> {
        // SAFETY: the count is initialised.
        let got = unsafe { c::uprobes_refcount_inc_not_zero(self.refs.get()) };
        // INVARIANT: the reference taken goes to the result.
        got.then(|| UprobeRef(NonNull::from(self)))
    }

    /// The address that C code knows the uprobe by.
    pub(crate) fn as_raw(&self) -> *mut bindings::uprobe {
        ptr::from_ref(self).cast_mut().cast()
    }
}

/// A counted reference.
///
/// # Invariants
///
/// The value owns one reference of the uprobe it points to.
pub(crate) struct UprobeRef(NonNull<Uprobe>);

impl UprobeRef {
    /// Turns the reference into what C code keeps.
    pub(crate) fn into_raw(self) -> *mut bindings::uprobe {
        let raw = self.as_raw();
        mem::forget(self);
        raw
    }

    /// Takes back what [`UprobeRef::into_raw`] gave.
    ///
    /// # Safety
    ///
    /// `raw` comes from [`UprobeRef::into_raw`] and is used once.
    pub(crate) unsafe fn from_raw(raw: *mut bindings::uprobe) -> Self {
        // INVARIANT: the reference given to `into_raw` is owned again.
        // SAFETY: `into_raw` gives no null pointer.
        Self(unsafe { NonNull::new_unchecked(raw.cast()) })
    }

    /// Puts the uprobe, which is new, into the index, unless there is one at its place, which is
    /// then answered.
    fn insert(&self, writer: &mut Writer<'_>) -> Option<UprobeRef> {
        // The node is the first member.
        let node = self.0.cast();
        // SAFETY: it is new and stays where it is; it is taken out of the index before it is freed.
        let twin = unsafe { writer.insert(node) }.err()?;
        let known = of_node(twin).try_get();
        if known.is_none() {
            // The twin is dying and its worker has not erased it yet: take its place.
            // SAFETY: as for `insert`; the twin's worker frees it only after the grace periods.
            unsafe { writer.replace(twin.as_ptr(), node) };
        }
        known
    }

    /// Frees a uprobe that never got into the index.
    pub(crate) fn free_unused(self) {
        let this = self.0.as_ptr();
        mem::forget(self);
        // SAFETY: from the cache, and known to nobody else.
        unsafe { CACHE.free(this) };
    }
}

/// Makes uprobes, for which it gets memory in bulk.
pub(crate) struct Supply {
    /// Memory of uprobes, of which the first `left` are not in use.
    memory: [*mut c_void; Self::AT_ONCE],
    left: usize,
    /// How many uprobes are wanted yet.
    wanted: usize,
}

impl Supply {
    const AT_ONCE: usize = 16;

    /// One that is to make `wanted` uprobes.
    pub(crate) const fn new(wanted: usize) -> Self {
        Self {
            memory: [ptr::null_mut(); Self::AT_ONCE],
            left: 0,
            wanted,
        }
    }

    #[inline]
    fn take(&mut self) -> Option<NonNull<Uprobe>> {
        if self.left == 0 {
            self.refill();
        }
        self.left = self.left.checked_sub(1)?;
        NonNull::new(self.memory.get(self.left)?.cast())
    }

    #[cold]
    fn refill(&mut self) {
        let count = self.wanted.clamp(1, Self::AT_ONCE);
        let memory = self.memory.get_mut(..count).unwrap_or_default();
        if CACHE.alloc(memory) {
            self.left = count;
            self.wanted = self.wanted.saturating_sub(count);
        }
    }

    /// A new uprobe that nobody else knows.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// May sleep.
    pub(crate) fn make(
        &mut self,
        inode: *mut bindings::inode,
        offset: u64,
        ref_ctr_offset: u64,
    ) -> Result<UprobeRef, Errno> {
        let memory = self.take().ok_or(Errno::ENOMEM)?;
        let this = memory.as_ptr();
        // SAFETY: `this` is fresh memory of a `Uprobe`; every member that must be is initialised
        // here.
        unsafe {
            (&raw mut (*this).node).write(Node::new(key(inode, offset)));
            (*this).refs.get().write(bindings::refcount_t {
                refs: bindings::atomic_t { counter: 1 },
            });
            ConsumerList::init(&raw mut (*this).consumers);
            (&raw mut (*this).id).write(LAST_ID.fetch_add(1, Full).wrapping_add(1));
            (&raw mut (*this).inode).write(inode);
            (&raw mut (*this).offset).write(offset);
            (&raw mut (*this).ref_ctr_offset).write(ref_ctr_offset);
            (&raw mut (*this).ready).write(Atomic::new(false));
            (&raw mut (*this).grave).write(UnsafeCell::new(Grave::new()));
            (&raw mut (*this).removal).write(PendingWork::new());
        }
        // INVARIANT: the one reference goes to the result.
        Ok(UprobeRef(memory))
    }
}

impl Drop for Supply {
    fn drop(&mut self) {
        for memory in self.memory.iter().take(self.left) {
            // SAFETY: from the cache, and not in use.
            unsafe { CACHE.free(memory.cast()) };
        }
    }
}

/// Puts each uprobe, which is new, into the index. Where there is one already, takes that instead
/// and calls `met`, with the new one, which is then freed. It takes least time if they are ascending
/// by place.
///
/// None of them is retired as long as the file is locked.
///
/// # Context
///
/// Process context. `met` must not sleep.
pub(crate) fn insert_all<E: AsMut<UprobeRef>>(
    _file: &FileGuard<'_>,
    entries: &mut [E],
    mut met: impl FnMut(&mut E, &Uprobe),
) {
    for some in entries.chunks_mut(IndexWriter::AT_ONCE) {
        let mut lock = IndexWriter::lock();
        let mut writer = lock.writer();
        for entry in some {
            let fresh = entry.as_mut();
            if let Some(twin) = fresh.insert(&mut writer) {
                let fresh = mem::replace(fresh, twin);
                met(entry, &fresh);
                fresh.free_unused();
            }
        }
    }
}

/// Takes those that are some out of the index: their last consumers and breakpoints have gone. Pending returns
/// may have references for as long as their functions run, and whoever probes the places next need
/// not care about them.
///
/// # Context
///
/// The lock of the file is held, shown by the guard, so nobody is about to register here.
pub(crate) fn retire_all<'u>(
    _file: &FileGuard<'_>,
    uprobes: impl Iterator<Item = Option<&'u Uprobe>>,
) {
    erase_all(uprobes);
}

/// Takes those that are some out of the index, as far as they are there.
fn erase_all<'u>(uprobes: impl Iterator<Item = Option<&'u Uprobe>>) {
    let mut uprobes = uprobes.peekable();
    while uprobes.peek().is_some() {
        let mut lock = IndexWriter::lock();
        let mut writer = lock.writer();
        for uprobe in uprobes.by_ref().take(IndexWriter::AT_ONCE) {
            if let Some(uprobe) = uprobe {
                // The node is the first member.
                // SAFETY: the memory is freed after the grace periods only; no `NodeRef` is kept.
                unsafe { writer.erase(NonNull::from(uprobe).cast()) };
            }
        }
    }
}

impl Deref for UprobeRef {
    type Target = Uprobe;

    fn deref(&self) -> &Uprobe {
        // SAFETY: by the type invariants the uprobe has a reference.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for UprobeRef {
    fn drop(&mut self) {
        // SAFETY: the reference is given up here.
        if !unsafe { c::uprobes_refcount_dec_and_test(self.refs.get()) } {
            return;
        }
        // The last reference may be put by a timer, where nothing may sleep.
        // SAFETY: nobody can get a reference any more, so it is pushed once.
        unsafe { GRAVEYARD.defer(self.grave.get()) };
    }
}

/// Uprobes without references, on their way to be freed.
static GRAVEYARD: Deferrer = Deferrer::new();

/// Takes uprobes without references out of the index, and frees them after the grace periods.
unsafe extern "C" fn bury(_work: *mut bindings::work_struct) {
    let dead = GRAVEYARD.take();
    // They may have been retired, or new uprobes for the same places have taken their places.
    // SAFETY: what is buried is a uprobe, and stays one until the end of this function.
    erase_all(dead.peek().map(|node| Some(unsafe { &*of_grave(node) })));
    // In the order of the ways to a uprobe.
    sync::synchronize_tasks_trace();
    // SAFETY: FFI calls in process context.
    unsafe {
        bindings::synchronize_srcu(lease_srcu());
        bindings::synchronize_rcu();
    }
    for node in dead {
        // SAFETY: from the cache; after the grace periods nobody can reach it.
        unsafe { CACHE.free(of_grave(node)) };
    }
}

/// The uprobe that is buried in `node`.
///
/// # Safety
///
/// `node` was pushed by the drop of a [`UprobeRef`].
unsafe fn of_grave(node: *mut Grave) -> *mut Uprobe {
    // SAFETY: by contract, the node is a member of a uprobe.
    unsafe { kernel::container_of!(node.cast::<UnsafeCell<Grave>>(), Uprobe, grave) }
}
