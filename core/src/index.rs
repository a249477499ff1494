// SPDX-License-Identifier: GPL-2.0

//! From a place in a file to the uprobe there: an ordered map that is read without a lock.
//!
//! A skip list. Level 0 links all nodes in the order of their keys; one node in four is also
//! linked on level 1, one in sixteen on level 2, and so on. A lookup starts on the highest level
//! in use, goes right while keys are less than the one it wants, then down, until it is on
//! level 0.
//!
//! ```text
//! head  2 ------------------> D ------------------------------> null
//!       1 --------> B ------> D --------------> F ------------> null
//!       0 --> A --> B --> C > D ------> E ----> F ----> G ----> null
//! ```
//!
//! Writers exclude each other by a lock of the caller. Readers take none and never start over:
//! unlike in a tree, no rotation can hide a key from them for a moment, since each insertion and
//! each erasure becomes visible by one store on level 0, and higher levels are only shortcuts.
//!
//! # Insertion
//!
//! The node's own links are filled in first; then it is published from level 0 upwards. A reader
//! that meets it on any level finds its links valid:
//!
//! ```text
//! CPU0: insert(B), between A and C        CPU1: find(C)
//! ------------------------------------    ------------------------------------
//! B.next[0] = C
//! B.next[1] = F
//!                                         at A: A.next[0] == C: found
//! A.next[0] = B  (release)
//!                                         at A: A.next[0] == B, B.next[0] == C: found
//! head.next[1] = B  (release)
//! ```
//!
//! # Erasure
//!
//! The node is unlinked from its highest level downwards and keeps its own links, so that a
//! reader that stands on it goes on as if nothing had happened:
//!
//! ```text
//! CPU0: erase(B), erase(C)                CPU1: find(D)
//! ------------------------------------    ------------------------------------
//!                                         at B
//! A.next[0] = C
//! A.next[0] = D
//!                                         B.next[0] == C, erased, but readable
//!                                         C.next[0] == D: found
//! ```
//!
//! Why a key that is there all the time of a lookup is found: the lookup begins at the head, so
//! every node that it stands on was linked at some moment during the lookup. The links of an
//! erased node are those of the moment of its erasure, hence do not pass over a key that was
//! there then. And by the same argument every erased node that it can meet was erased after the
//! lookup began, hence after its read section began: the memory is still there.
//!
//! # Replacement
//!
//! [`Writer::replace`] puts a node in the place of one with the same key, level by level. As the
//! two have the same key they have the same height; a reader that goes by the one on one level
//! and by the other on the next finds the same neighbours, and one of the two itself.
//!
//! # Erasures are counted
//!
//! [`Index::erasures`] grows after each node has been unlinked and before [`Writer::erase`] or
//! [`Writer::replace`] returns, hence before the grace period that the caller then waits for. A
//! reader that has found a node and sees the same count in a later read section may use the node
//! without a lookup; [`crate::last_hit`] has the proof.

use core::{
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    }, //
};

use crate::sys::{
    atomics,
    const_unless_loom,
    Acquire,
    Atomic,
    Dependent,
    Full,
    Relaxed,
    Release, //
};

/// Levels of the list: with one node in four a level, enough for some 100 000 nodes. More make
/// it slower, not wrong. A power of two, so that a level can be masked instead of checked.
pub const MAX_HEIGHT: usize = 8;

const _: () = assert!(MAX_HEIGHT.is_power_of_two());

/// Buckets that inodes are counted in. A power of two.
const BUCKETS: usize = if cfg!(loom) { 2 } else { 64 };

const _: () = assert!(BUCKETS.is_power_of_two());

/// A place in a file. Ordered by inode, then by offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct Key {
    /// A number that stands for the inode while it is referenced, such as its address.
    pub inode: u64,
    /// Bytes from the start of the file.
    pub offset: u64,
}

impl Key {
    /// The key of `offset` in `inode`.
    #[inline]
    pub const fn new(inode: u64, offset: u64) -> Self {
        Self { inode, offset }
    }

    /// On how many levels a node with this key is linked, `1..=MAX_HEIGHT`.
    ///
    /// A hash takes the place of a random number: the same key has the same height always, which
    /// [`Writer::replace`] leans on. Keys come from privileged users only, so nobody is tempted
    /// to choose them such that the list becomes slow.
    const fn height(self) -> usize {
        // The finaliser of splitmix64: every bit of the key flips each result bit about half of
        // the time, so offsets that differ by a constant stride are as good as any.
        let mut h = self.inode ^ self.offset.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        h = (h ^ (h >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        h = (h ^ (h >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        h ^= h >> 31;
        // A pair of zero bits has the probability 1/4.
        // CAST: At most 32.
        let pairs = (h.trailing_zeros() / 2) as usize;
        if pairs < MAX_HEIGHT {
            pairs + 1
        } else {
            MAX_HEIGHT
        }
    }
}

/// Evidence that the caller is in a read section, and that it is one of those that the memory of
/// erased nodes outlives.
///
/// # Safety
///
/// While a value exists, the context that holds it is in a read section, such as that of RCU
/// Tasks Trace, which began before the value came into being.
pub unsafe trait ReadSection {}

/// Evidence that the caller holds the lock of writers, under which nodes may be read as well.
///
/// # Safety
///
/// While a value exists, no other context has one for the same [`Index`], and what one holder has
/// written the next one sees.
pub unsafe trait WriteLocked: ReadSection {}

/// Where a node or the head is linked to, by level.
#[derive(Debug)]
#[repr(transparent)]
struct Links([Atomic<*mut Node>; MAX_HEIGHT]);

impl Links {
    const_unless_loom! {
        fn new() -> Self {
            Self(atomics![Atomic::new(ptr::null_mut()); MAX_HEIGHT])
        }
    }

    /// The link on `level`, which is less than [`MAX_HEIGHT`].
    #[inline(always)]
    fn on(&self, level: usize) -> &Atomic<*mut Node> {
        // PANIC: The mask is less than the length, known when compiled.
        &self.0[level & (MAX_HEIGHT - 1)]
    }
}

/// What links an object into an [`Index`]; a field of it.
///
/// Pointers to a node that are given to this module must be made from a pointer to the whole
/// object if the object is to be reached from those that come back.
#[derive(Debug)]
#[repr(C)]
pub struct Node {
    key: Key,
    next: Links,
    height: u32,
    linked: Atomic<bool>,
}

impl Node {
    const_unless_loom! {
        /// Creates a node that is in no index.
        pub fn new(key: Key) -> Self {
            Self {
                key,
                next: Links::new(),
                // CAST: At most `MAX_HEIGHT`.
                height: key.height() as u32,
                linked: Atomic::new(false),
            }
        }
    }

    /// The key.
    ///
    /// # Context
    ///
    /// Any.
    #[inline]
    pub const fn key(&self) -> Key {
        self.key
    }

    /// Whether it is in an index. Exact under the lock of writers, else as of some moment.
    ///
    /// # Context
    ///
    /// Any.
    #[inline]
    pub fn is_linked(&self) -> bool {
        self.linked.load(Relaxed)
    }

    /// Number of levels that it is linked on.
    #[inline]
    const fn height(&self) -> usize {
        // CAST: Widens.
        self.height as usize
    }
}

/// A node that was found, valid as long as the evidence `'g` that it was found with.
#[derive(Clone, Copy, Debug)]
pub struct NodeRef<'g> {
    /// Invariant: points to a node that stays readable for `'g`, as [`Writer::insert`] demands.
    ptr: NonNull<Node>,
    section: PhantomData<&'g Node>,
}

impl<'g> NodeRef<'g> {
    /// # Safety
    ///
    /// A `ptr` that is not null points to a node that stays readable for `'g`.
    #[inline]
    unsafe fn from_link(ptr: *mut Node) -> Option<Self> {
        // INVARIANT: By the contract of this function.
        NonNull::new(ptr).map(|ptr| Self {
            ptr,
            section: PhantomData,
        })
    }

    #[inline]
    fn node(self) -> &'g Node {
        // SAFETY: By the type invariant.
        unsafe { self.ptr.as_ref() }
    }

    /// The key.
    #[inline]
    pub fn key(self) -> Key {
        self.node().key
    }

    /// The pointer that [`Writer::insert`] or [`Writer::replace`] was given, from which the object
    /// around the node can be computed.
    #[inline]
    pub fn as_ptr(self) -> NonNull<Node> {
        self.ptr
    }

    /// Whether it is still in the index. Exact under the lock of writers.
    #[inline]
    pub fn is_linked(self) -> bool {
        self.node().is_linked()
    }

    /// The node after it. Keys grow; a node that is there all the time is not passed over.
    ///
    /// If this one has been erased meanwhile, goes on from where it was.
    #[inline]
    pub fn next(self) -> Option<NodeRef<'g>> {
        let next = self.node().next.on(0).load(Dependent);
        // SAFETY: A link leads to a node that was linked when this one was, or after; the section
        // `'g` began before either was erased (see the module documentation). Under the lock of
        // writers, nodes are erased by the holder only, who answers for it (`Writer::erase`).
        unsafe { NodeRef::from_link(next) }
    }
}

/// The nodes of an index from some key on; see [`Index::iter_from`].
#[derive(Clone, Debug)]
pub struct Iter<'g>(Option<NodeRef<'g>>);

impl<'g> Iterator for Iter<'g> {
    type Item = NodeRef<'g>;

    #[inline]
    fn next(&mut self) -> Option<NodeRef<'g>> {
        let here = self.0?;
        self.0 = here.next();
        Some(here)
    }
}

/// An ordered map from [`Key`] to nodes. See the [module documentation](self).
///
/// Reads touch the head, the nodes on the way, and nothing else; they write nothing.
#[derive(Debug)]
#[repr(C)]
pub struct Index {
    /// The highest level in use, where searches start. A hint: a wrong value costs time only.
    top: Atomic<u32>,
    len: Atomic<usize>,
    erasures: Atomic<u64>,
    /// How many nodes there are whose inodes are in each bucket.
    inodes: [Atomic<usize>; BUCKETS],
    /// Invariant: links lead to nodes that [`Writer::insert`] or [`Writer::replace`] was given and
    /// that its contract keeps readable.
    head: Links,
}

impl Index {
    const_unless_loom! {
        /// Creates an empty index.
        pub fn new() -> Self {
            Self {
                top: Atomic::new(0),
                len: Atomic::new(0),
                erasures: Atomic::new(0),
                inodes: atomics![Atomic::new(0); BUCKETS],
                head: Links::new(),
            }
        }
    }

    /// Whether there is no node. Exact under the lock of writers, else as of some moment.
    ///
    /// # Context
    ///
    /// Any.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.on(0).load(Relaxed).is_null()
    }

    /// The number of nodes. Exact under the lock of writers, else as of some moment.
    ///
    /// # Context
    ///
    /// Any.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Whether there may be nodes of `inode`; if not, there is none for sure. Exact under the lock of
    /// writers, else as of some moment.
    ///
    /// For those who would search for nothing most of the time: it takes one load.
    ///
    /// # Context
    ///
    /// Any.
    #[inline]
    pub fn may_have(&self, inode: u64) -> bool {
        self.count_of(inode).load(Relaxed) != 0
    }

    /// The count of the bucket of `inode`.
    #[inline]
    fn count_of(&self, inode: u64) -> &Atomic<usize> {
        // The highest bits, which depend on all of the number's.
        let hash = inode.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - BUCKETS.ilog2());
        // CAST: Less than `BUCKETS`. PANIC: So is the mask, known when compiled.
        &self.inodes[hash as usize & (BUCKETS - 1)]
    }

    /// How many nodes have been erased or replaced so far.
    ///
    /// What is looked up after this was read cannot find a node whose removal is in the count.
    ///
    /// # Context
    ///
    /// Any; to be compared in another section, in a read section.
    #[inline]
    pub fn erasures(&self) -> u64 {
        self.erasures.load(Acquire)
    }

    /// The node with this key.
    ///
    /// # Context
    ///
    /// In a read section or under the lock of writers, shown by `section`. Takes no lock and does
    /// not sleep; the number of steps grows with the logarithm of the number of nodes.
    #[inline]
    pub fn find<'g>(&self, key: Key, section: &'g impl ReadSection) -> Option<NodeRef<'g>> {
        self.lower_bound(key, section)
            .filter(|found| found.key() == key)
    }

    /// The first node whose key is not less than `key`.
    ///
    /// # Context
    ///
    /// As [`Index::find`].
    #[inline]
    pub fn lower_bound<'g>(&self, key: Key, _section: &'g impl ReadSection) -> Option<NodeRef<'g>> {
        let mut links = &self.head;
        // CAST: Widens.
        let mut level = self.top.load(Relaxed) as usize;
        loop {
            let after = loop {
                // SAFETY: The walk began at the head within the section `'g`, so each node that
                // it meets was linked at some moment of it, and stays readable until its end by
                // the contract of `insert`.
                let next = unsafe { NodeRef::from_link(links.on(level).load(Dependent)) };
                match next {
                    Some(node) if node.key() < key => links = &node.node().next,
                    _ => break next,
                }
            };
            if level == 0 {
                return after;
            }
            level -= 1;
        }
    }

    /// The nodes whose keys are not less than `key`, in order. One that is there all the time is
    /// not passed over; one that comes or goes meanwhile may be among them or not.
    ///
    /// # Context
    ///
    /// As [`Index::find`], for as long as the iterator is used.
    pub fn iter_from<'g>(&self, key: Key, section: &'g impl ReadSection) -> Iter<'g> {
        Iter(self.lower_bound(key, section))
    }

    /// What changes it.
    ///
    /// # Context
    ///
    /// Under the lock of writers, which `_lock` stands for. Does not sleep.
    ///
    /// # Safety
    ///
    /// `_lock` stands for the lock of this index.
    pub unsafe fn writer<'g, L: WriteLocked>(&'g self, _lock: &'g mut L) -> Writer<'g> {
        Writer {
            index: self,
            before: [&self.head; MAX_HEIGHT],
            key: Key::new(0, 0),
        }
    }

    /// Accounts for a node that has been unlinked from all levels.
    fn removed(&self, old: &Node) {
        old.linked.store(false, Relaxed);
        // Full: who sees this count sees the node unlinked, and the grace period that the caller
        // waits for begins after it.
        self.erasures.fetch_add(1, Full);
    }

    /// Lets searches start below the levels that have become empty.
    fn lower_top(&self) {
        // CAST: Widens.
        let mut top = self.top.load(Relaxed) as usize;
        while top > 0 && self.head.on(top).load(Relaxed).is_null() {
            top -= 1;
        }
        // CAST: Less than `MAX_HEIGHT`.
        self.top.store(top as u32, Relaxed);
    }
}

/// Changes an [`Index`], under its lock.
///
/// Goes on from where it was: a change near the last one, at a higher key, takes few steps, however
/// many nodes there are.
#[derive(Debug)]
pub struct Writer<'g> {
    index: &'g Index,
    /// The last links before `key` on each level.
    ///
    /// Invariant: of the head, or of a node that is in the index.
    before: [&'g Links; MAX_HEIGHT],
    /// What was sought last.
    key: Key,
}

impl<'g> Writer<'g> {
    /// The last links known to be before `key` on `level`, which is less than [`MAX_HEIGHT`].
    #[inline(always)]
    fn before(&mut self, level: usize) -> &mut &'g Links {
        // PANIC: The mask is less than the length, known when compiled.
        &mut self.before[level & (MAX_HEIGHT - 1)]
    }

    /// The links of the node after `links` on `level`, if it is before `key` too.
    #[inline(always)]
    fn step(links: &'g Links, level: usize, key: Key) -> Option<&'g Links> {
        // SAFETY: The lock is held for `'g`: a node that is linked stays readable.
        let next = unsafe { NodeRef::from_link(links.on(level).load(Dependent)) }?;
        (next.key() < key).then_some(&next.node().next)
    }

    /// Goes to the last place before `key`, on all levels, and answers the node with this key.
    fn seek(&mut self, key: Key) -> Option<NodeRef<'g>> {
        if key < self.key {
            self.before = [&self.index.head; MAX_HEIGHT];
        }
        self.key = key;

        // Up, as long as there is a way to the right: a level with none has none above it.
        // CAST: Widens.
        let top = self.index.top.load(Relaxed) as usize;
        let mut level = 0;
        while Self::step(self.before(level), level, key).is_some() && level < top {
            level += 1;
        }
        // Right and down. Wherever it went right, it is further than any lower level was before.
        let mut further = None;
        loop {
            let mut links = further.unwrap_or(*self.before(level));
            while let Some(next) = Self::step(links, level, key) {
                links = next;
                further = Some(links);
            }
            *self.before(level) = links;
            if level == 0 {
                break;
            }
            level -= 1;
        }
        // SAFETY: As in `step`.
        let next = unsafe { NodeRef::from_link(self.before(0).on(0).load(Dependent)) };
        next.filter(|node| node.key() == key)
    }

    /// Inserts `node`, or returns the one that has its key already, which then stays.
    ///
    /// # Safety
    ///
    /// - `node` points to a [`Node`] that has never been in an index.
    /// - If this succeeds, the node is not moved, and is only accessed through shared references,
    ///   until it has been taken out by [`erase`](Self::erase) or [`replace`](Self::replace) and
    ///   every value of [`ReadSection`] that existed then is gone: a grace period.
    pub unsafe fn insert(&mut self, node: NonNull<Node>) -> Result<(), NodeRef<'g>> {
        // SAFETY: By the contract of this function.
        let new = unsafe { node.as_ref() };
        if let Some(there) = self.seek(new.key) {
            return Err(there);
        }

        for (level, links) in self.before.iter().enumerate().take(new.height()) {
            let after = links.on(level).load(Relaxed);
            new.next.on(level).store(after, Relaxed);
        }
        new.linked.store(true, Relaxed);
        // Before the node is: who is told that there is none would not have found it.
        let count = self.index.count_of(new.key.inode);
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
        for (level, links) in self.before.iter_mut().enumerate().take(new.height()) {
            // Release: the node's own links and key are visible to who finds it.
            links.on(level).store(node.as_ptr(), Release);
            *links = &new.next;
        }
        // INVARIANT: Between the new node and the one after it there is none.
        self.key = match new.key.offset.checked_add(1) {
            Some(offset) => Key::new(new.key.inode, offset),
            None => Key::new(new.key.inode.saturating_add(1), 0),
        };
        let index = self.index;
        let top = new.height.saturating_sub(1);
        if top > index.top.load(Relaxed) {
            index.top.store(top, Relaxed);
        }
        index
            .len
            .store(index.len.load(Relaxed).wrapping_add(1), Relaxed);
        Ok(())
    }

    /// Takes out `node`; answers whether it was in the index. See [`Writer::insert`] for how long
    /// it must still be left as it is.
    ///
    /// # Safety
    ///
    /// - `node` points to a [`Node`].
    /// - A [`NodeRef`] that the caller has got by the lock is not used after the memory of the node
    ///   it stands for, or of one that could be reached by [`NodeRef::next`], has been freed.
    pub unsafe fn erase(&mut self, node: NonNull<Node>) -> bool {
        // SAFETY: By the contract of this function.
        let old = unsafe { node.as_ref() };
        if !old.is_linked() {
            return false;
        }
        if self.seek(old.key).is_none_or(|there| there.ptr != node) {
            return false;
        }

        for (level, links) in self.before.iter().enumerate().take(old.height()).rev() {
            let after = old.next.on(level).load(Relaxed);
            // Release: the node after it was made visible by another store, maybe by another CPU.
            links.on(level).store(after, Release);
        }
        let index = self.index;
        let count = index.count_of(old.key.inode);
        count.store(count.load(Relaxed).wrapping_sub(1), Relaxed);
        index.lower_top();
        index
            .len
            .store(index.len.load(Relaxed).wrapping_sub(1), Relaxed);
        index.removed(old);
        true
    }

    /// Puts `new` in the place of `old`, such that a reader finds the one or the other at each
    /// moment; answers whether it did. It does nothing unless `old` is in the index and both
    /// have the same key.
    ///
    /// # Safety
    ///
    /// That of [`Writer::insert`] for `new`, and that of [`Writer::erase`] for `old`.
    pub unsafe fn replace(&mut self, old: NonNull<Node>, new: NonNull<Node>) -> bool {
        // SAFETY: By the contract of this function.
        let (from, to) = unsafe { (old.as_ref(), new.as_ref()) };
        let there = self.seek(from.key);
        if from.key != to.key || old == new || there.is_none_or(|there| there.ptr != old) {
            return false;
        }

        for level in 0..from.height() {
            let after = from.next.on(level).load(Relaxed);
            to.next.on(level).store(after, Relaxed);
        }
        to.linked.store(true, Relaxed);
        for (level, links) in self.before.iter().enumerate().take(from.height()) {
            // Release: as in `insert`.
            links.on(level).store(new.as_ptr(), Release);
        }
        self.index.removed(from);
        true
    }
}

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

/// An object with a node in it, for the tests and the models.
#[cfg(test)]
mod objects {
    use super::*;

    /// Evidence that means nothing: each test says why it may have it.
    pub(super) struct Token;

    // SAFETY: Tests free nodes only when no thread that reads is left, or after a grace period
    // of their own.
    unsafe impl ReadSection for Token {}
    // SAFETY: Tests write from one thread, or under a mutex.
    unsafe impl WriteLocked for Token {}

    #[repr(C)]
    pub(super) struct Object<T> {
        node: Node,
        pub(super) payload: T,
    }

    impl<T> Object<T> {
        /// A new object; the pointer reaches all of it.
        pub(super) fn create(key: Key, payload: T) -> NonNull<Node> {
            let object = Box::new(Object {
                node: Node::new(key),
                payload,
            });
            NonNull::from(Box::leak(object)).cast()
        }

        /// # Safety
        ///
        /// `node` is from [`create`](Self::create) with the same `T` and stays for `'a`.
        pub(super) unsafe fn of<'a>(node: NonNull<Node>) -> &'a Self {
            // SAFETY: By the contract of this function; the node is the first field.
            unsafe { node.cast().as_ref() }
        }

        /// # Safety
        ///
        /// `node` is from [`create`](Self::create) with the same `T`, and nobody uses it.
        pub(super) unsafe fn free(node: NonNull<Node>) {
            // SAFETY: By the contract of this function; the node is the first field.
            drop(unsafe { Box::from_raw(node.cast::<Self>().as_ptr()) });
        }
    }

    /// The `nth` key in inode 1 that is linked on `height` levels.
    pub(super) fn key_of_height(height: usize, nth: usize) -> Key {
        (0..)
            .map(|offset| Key::new(1, offset))
            .filter(|key| key.height() == height)
            .nth(nth)
            .expect("heights are spread")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{
        objects::{key_of_height, Object, Token},
        *,
    };
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// An index with the objects that it was given, for one thread.
    #[derive(Default)]
    struct Owned {
        index: Index,
        created: Vec<NonNull<Node>>,
    }

    impl Owned {
        fn create(&mut self, key: Key) -> NonNull<Node> {
            let node = Object::create(key, self.created.len());
            self.created.push(node);
            node
        }

        fn insert(&mut self, key: Key) -> Result<NonNull<Node>, NonNull<Node>> {
            let node = self.create(key);
            // SAFETY: The node is new and is freed after the index; there is one thread.
            match unsafe { self.index.writer(&mut Token).insert(node) } {
                Ok(()) => Ok(node),
                Err(there) => Err(there.as_ptr()),
            }
        }

        fn erase(&self, node: NonNull<Node>) -> bool {
            // SAFETY: From `create`; nothing is freed before the index is.
            unsafe { self.index.writer(&mut Token).erase(node) }
        }

        fn replace(&self, old: NonNull<Node>, new: NonNull<Node>) -> bool {
            // SAFETY: Both from `create`, `new` is new; nothing is freed before the index is.
            unsafe { self.index.writer(&mut Token).replace(old, new) }
        }

        fn find(&self, key: Key) -> Option<NonNull<Node>> {
            self.index.find(key, &Token).map(NodeRef::as_ptr)
        }

        fn keys_from(&self, key: Key) -> Vec<Key> {
            self.index
                .iter_from(key, &Token)
                .map(NodeRef::key)
                .collect()
        }

        /// Checks what holds between two writes.
        fn check(&self) {
            let keys = self.keys_from(Key::new(0, 0));
            assert_eq!(keys.len(), self.index.len());
            assert_eq!(keys.is_empty(), self.index.is_empty());
            assert!(keys.iter().all(|key| self.index.may_have(key.inode)));
            let counts = self.index.inodes.iter().map(|count| count.load(Relaxed));
            assert_eq!(counts.sum::<usize>(), keys.len());
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
            for level in 0..MAX_HEIGHT {
                let wanted: Vec<_> = keys.iter().filter(|key| key.height() > level).collect();
                let mut links = &self.index.head;
                for key in &wanted {
                    let next = links.on(level).load(Relaxed);
                    // SAFETY: Nothing is freed before the index is.
                    let node = unsafe { next.as_ref() }.expect("linked on its levels");
                    assert_eq!(node.key, **key);
                    assert!(node.is_linked());
                    links = &node.next;
                }
                assert!(links.on(level).load(Relaxed).is_null());
                let walked = level <= self.index.top.load(Relaxed) as usize;
                assert!(walked || wanted.is_empty(), "searches start too low");
            }
        }
    }

    impl Drop for Owned {
        fn drop(&mut self) {
            for node in self.created.drain(..) {
                // SAFETY: From `create`, and the index is gone.
                unsafe { Object::<usize>::free(node) };
            }
        }
    }

    fn key(offset: u64) -> Key {
        Key::new(1, offset)
    }

    #[test]
    fn most_inodes_without_nodes_are_known_to_have_none() {
        let mut owned = Owned::default();
        let inodes = |from: u64| (from..).step_by(0x2c8).map(|inode| inode << 3);
        for inode in inodes(0x1122_3344_5566).take(4) {
            owned.insert(Key::new(inode, 8)).unwrap();
        }
        let others = inodes(0x1122_3355_0000).take(1000);
        let taken_for_one = others.filter(|inode| owned.index.may_have(*inode)).count();
        assert!(taken_for_one < 1000 / 8, "{taken_for_one}");
    }

    #[test]
    fn an_empty_index_finds_nothing() {
        let owned = Owned::default();
        owned.check();
        assert_eq!(owned.find(key(1)), None);
        assert!(owned.index.lower_bound(key(0), &Token).is_none());
    }

    #[test]
    fn finds_what_was_inserted_and_the_object_around_it() {
        let mut owned = Owned::default();
        let nodes: Vec<_> = [5, 1, 9, 3].map(|o| owned.insert(key(o)).unwrap()).into();
        owned.check();
        for (node, offset) in nodes.iter().zip([5, 1, 9, 3]) {
            assert_eq!(owned.find(key(offset)), Some(*node));
        }
        let found = owned.find(key(9)).unwrap();
        // SAFETY: From `create` with this type.
        assert_eq!(unsafe { Object::<usize>::of(found) }.payload, 2);
        assert_eq!(owned.find(key(4)), None);
        assert_eq!(owned.find(Key::new(2, 5)), None);
        assert_eq!(owned.find(Key::new(0, 5)), None);
    }

    #[test]
    fn orders_by_inode_then_offset() {
        let mut owned = Owned::default();
        for (inode, offset) in [(2, 1), (1, u64::MAX), (u64::MAX, 0), (1, 0)] {
            owned.insert(Key::new(inode, offset)).unwrap();
        }
        let from = |key| owned.keys_from(key).first().copied();
        assert_eq!(from(Key::new(1, 1)), Some(Key::new(1, u64::MAX)));
        assert_eq!(from(Key::new(2, 2)), Some(Key::new(u64::MAX, 0)));
        assert_eq!(from(Key::new(u64::MAX, 1)), None);
        owned.check();
    }

    #[test]
    fn a_second_node_with_the_key_is_refused() {
        let mut owned = Owned::default();
        let first = owned.insert(key(1)).unwrap();
        assert_eq!(owned.insert(key(1)), Err(first));
        assert_eq!(owned.find(key(1)), Some(first));
        owned.check();
    }

    #[test]
    fn erase_takes_out_once_and_counts() {
        let mut owned = Owned::default();
        let nodes: Vec<_> = (0..MANY).map(|o| owned.insert(key(o)).unwrap()).collect();
        for (n, node) in nodes.iter().enumerate() {
            assert_eq!(owned.index.erasures(), n as u64);
            assert!(owned.erase(*node));
            assert!(!owned.erase(*node));
            owned.check();
        }
        assert_eq!(owned.index.erasures(), MANY);
        assert_eq!(owned.index.top.load(Relaxed), 0);
    }

    #[test]
    fn a_twin_that_is_not_in_the_index_is_not_erased_nor_replaced() {
        let mut owned = Owned::default();
        let there = owned.insert(key(1)).unwrap();
        let (twin, new) = (owned.create(key(1)), owned.create(key(1)));
        assert!(!owned.erase(twin));
        assert!(!owned.replace(twin, new));
        let other = owned.create(key(2));
        assert!(!owned.replace(there, other), "another key");
        assert!(!owned.replace(there, there));
        assert_eq!(owned.find(key(1)), Some(there));
        assert_eq!(owned.index.erasures(), 0);
        owned.check();
    }

    #[test]
    fn replace_puts_one_in_the_place_of_the_other() {
        let mut owned = Owned::default();
        for offset in 0..MANY {
            owned.insert(key(offset)).unwrap();
        }
        for offset in 0..MANY {
            let old = owned.find(key(offset)).unwrap();
            let new = owned.create(key(offset));
            assert!(owned.replace(old, new));
            assert_eq!(owned.find(key(offset)), Some(new));
            assert!(!owned.erase(old));
            owned.check();
        }
        assert_eq!(owned.index.erasures(), MANY);
    }

    #[test]
    fn a_reader_on_an_erased_node_goes_on() {
        let mut owned = Owned::default();
        let nodes: Vec<_> = (0..4).map(|o| owned.insert(key(o)).unwrap()).collect();
        let at = owned.index.find(key(1), &Token).unwrap();
        assert!(owned.erase(nodes[1]));
        assert!(owned.erase(nodes[2]));
        assert!(!at.is_linked());
        let rest: Vec<_> = Iter(Some(at)).map(|n| n.key().offset).collect();
        assert_eq!(rest, [1, 2, 3], "2 was there when 1 was erased");
    }

    #[test]
    #[cfg_attr(miri, ignore = "plain arithmetic, and much of it")]
    fn heights_are_spread_whatever_the_stride() {
        for stride in [1, 2, 4, 16, 4096, 1 << 21] {
            let mut at_least = [0u32; MAX_HEIGHT + 1];
            for n in 0..4096 {
                let height = Key::new(0xffff_8880_0123_4560, n * stride).height();
                assert!((1..=MAX_HEIGHT).contains(&height));
                for count in &mut at_least[1..=height] {
                    *count += 1;
                }
            }
            assert_eq!(at_least[1], 4096);
            assert!((768..1280).contains(&at_least[2]), "{stride}: {at_least:?}");
            assert!((160..352).contains(&at_least[3]), "{stride}: {at_least:?}");
        }
        assert_eq!(key_of_height(3, 0).height(), 3);
    }

    /// One step of the comparison with a map.
    #[derive(Clone, Debug)]
    enum Op {
        Insert(Key),
        Erase(Key),
        Replace(Key),
        Find(Key),
        From(Key),
    }

    fn op() -> impl Strategy<Value = Op> {
        let offset = prop_oneof![8 => 0u64..24, 1 => Just(u64::MAX)];
        let key = (0u64..3, offset).prop_map(|(inode, offset)| Key::new(inode, offset));
        (0..7, key).prop_map(|(kind, key)| match kind {
            0..=2 => Op::Insert(key),
            3 => Op::Erase(key),
            4 => Op::Replace(key),
            5 => Op::Find(key),
            _ => Op::From(key),
        })
    }

    /// Steps of one comparison, and nodes where many are wanted; Miri is slow.
    const OPS: usize = if cfg!(miri) { 40 } else { 120 };
    const MANY: u64 = if cfg!(miri) { 12 } else { 40 };

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 2 } else { 512 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn behaves_as_an_ordered_map(ops in prop::collection::vec(op(), 1..OPS)) {
            let mut owned = Owned::default();
            let mut map = BTreeMap::new();
            for op in ops {
                match op {
                    Op::Insert(key) => match (owned.insert(key), map.get(&key)) {
                        (Ok(node), None) => {
                            map.insert(key, node);
                        }
                        (Err(there), Some(node)) => prop_assert_eq!(there, *node),
                        (got, want) => prop_assert!(false, "{got:?}, {want:?}"),
                    },
                    Op::Erase(key) => {
                        if let Some(node) = map.remove(&key) {
                            prop_assert!(owned.erase(node));
                        }
                    }
                    Op::Replace(key) => {
                        if let Some(node) = map.get_mut(&key) {
                            let new = owned.create(key);
                            prop_assert!(owned.replace(*node, new));
                            *node = new;
                        }
                    }
                    Op::Find(key) => prop_assert_eq!(owned.find(key), map.get(&key).copied()),
                    Op::From(key) => {
                        let want: Vec<_> = map.range(key..).map(|(key, _)| *key).collect();
                        prop_assert_eq!(owned.keys_from(key), want);
                    }
                }
                owned.check();
            }
        }

        /// Whatever the order of the keys: a writer goes on from where it was.
        #[test]
        fn one_writer_makes_many_changes(
            batches in prop::collection::vec(prop::collection::vec(op(), 1..32), 1..OPS / 16)
        ) {
            let mut owned = Owned::default();
            let mut map = BTreeMap::new();
            for batch in batches {
                let with_node: Vec<_> = batch
                    .into_iter()
                    .map(|op| match op {
                        Op::Insert(key) | Op::Replace(key) => (owned.create(key), op),
                        _ => (NonNull::dangling(), op),
                    })
                    .collect();
                let mut token = Token;
                // SAFETY: There is one thread. Nodes are new where they go in, and are freed after
                // the index.
                unsafe {
                    let mut writer = owned.index.writer(&mut token);
                    for (node, op) in with_node {
                        match op {
                            Op::Insert(key) => match (writer.insert(node), map.get(&key)) {
                                (Ok(()), None) => {
                                    map.insert(key, node);
                                }
                                (Err(there), Some(node)) => {
                                    prop_assert_eq!(there.as_ptr(), *node);
                                }
                                (got, want) => prop_assert!(false, "{got:?}, {want:?}"),
                            },
                            Op::Erase(key) => {
                                if let Some(node) = map.remove(&key) {
                                    prop_assert!(writer.erase(node));
                                    prop_assert!(!writer.erase(node));
                                }
                            }
                            Op::Replace(key) => {
                                if let Some(old) = map.get_mut(&key) {
                                    prop_assert!(writer.replace(*old, node));
                                    *old = node;
                                }
                            }
                            Op::Find(_) | Op::From(_) => (),
                        }
                    }
                }
                owned.check();
                prop_assert_eq!(
                    owned.keys_from(Key::new(0, 0)),
                    map.keys().copied().collect::<Vec<_>>()
                );
            }
        }
    }

    /// Readers against a writer, on real threads; under Miri also a search for data races.
    #[test]
    fn readers_never_miss_what_stays() {
        let (stay, rounds) = if cfg!(miri) { (8, 6) } else { (64, 2000) };
        let mut owned = Owned::default();
        for n in 0..stay {
            owned.insert(key(n * 2)).unwrap();
        }
        let (index, mut churn) = (std::mem::take(&mut owned.index), Vec::new());
        let done = Atomic::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Acquire) {
                        for n in 0..stay {
                            let found = index.find(key(n * 2), &Token);
                            assert_eq!(found.map(NodeRef::key), Some(key(n * 2)));
                        }
                        let mut even = 0;
                        let mut last = None;
                        for node in index.iter_from(key(0), &Token) {
                            assert!(last < Some(node.key()));
                            last = Some(node.key());
                            even += u64::from(node.key().offset % 2 == 0);
                        }
                        assert_eq!(even, stay);
                    }
                });
            }
            for round in 0..rounds {
                let node = Object::create(key(round % stay * 2 + 1), 0usize);
                let twin = Object::create(key(round % stay * 2 + 1), 0usize);
                // SAFETY: One thread writes; nodes are new, and freed when no reader is left.
                unsafe {
                    let mut token = Token;
                    let mut writer = index.writer(&mut token);
                    assert!(writer.insert(node).is_ok());
                    assert!(writer.replace(node, twin));
                    assert!(writer.erase(twin));
                }
                churn.extend([node, twin]);
            }
            done.store(true, Release);
        });
        owned.index = index;
        owned.created.extend(churn);
        owned.check();
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::{
        objects::{key_of_height, Object, Token},
        *,
    };
    use crate::{
        last_hit::{LastHit, Site, Snapshot},
        sys::model,
    };
    use core::cell::Cell;
    use loom::{
        cell::UnsafeCell,
        sync::{
            atomic::{fence, Ordering::SeqCst},
            Arc, Mutex,
        },
        thread,
    };

    type Memory = UnsafeCell<()>;

    /// What the threads of a model share. The memory of objects is freed when the model ends;
    /// when it could have been freed is told to loom by a write to the payload.
    struct Shared {
        index: Index,
        /// Read sections in progress; see [`Shared::read`].
        readers: Atomic<u32>,
        created: std::sync::Mutex<Vec<usize>>,
    }

    /// A pointer that may go to another thread.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Ptr(NonNull<Node>);

    // SAFETY: What may be done with the pointer is said where it is done.
    unsafe impl Send for Ptr {}
    // SAFETY: As above.
    unsafe impl Sync for Ptr {}

    impl Shared {
        fn new(keys: &[Key]) -> (Arc<Self>, Vec<Ptr>) {
            let shared = Arc::new(Self {
                index: Index::new(),
                readers: Atomic::new(0),
                created: std::sync::Mutex::new(Vec::new()),
            });
            let nodes = keys.iter().map(|key| shared.insert(*key)).collect();
            (shared, nodes)
        }

        fn create(&self, key: Key) -> Ptr {
            let node = Object::<Memory>::create(key, UnsafeCell::new(()));
            self.created
                .lock()
                .unwrap()
                .push(node.as_ptr().expose_provenance());
            Ptr(node)
        }

        fn insert(&self, key: Key) -> Ptr {
            let node = self.create(key);
            // SAFETY: New; freed when the model ends; one writer at a time.
            assert!(unsafe { self.index.writer(&mut Token).insert(node.0) }.is_ok());
            node
        }

        fn erase(&self, node: Ptr) {
            // SAFETY: From `create`; freed when the model ends; one writer at a time.
            assert!(unsafe { self.index.writer(&mut Token).erase(node.0) });
        }

        fn replace(&self, old: Ptr) -> Ptr {
            // SAFETY: From `create`; freed when the model ends.
            let new = self.create(unsafe { old.0.as_ref() }.key());
            // SAFETY: As in `insert` and `erase`.
            assert!(unsafe { self.index.writer(&mut Token).replace(old.0, new.0) });
            new
        }

        fn find(&self, key: Key) -> Option<Ptr> {
            let found = self.index.find(key, &Token)?;
            assert_eq!(found.key(), key, "found another");
            self.touch(Ptr(found.as_ptr()));
            Some(Ptr(found.as_ptr()))
        }

        /// Reads the memory around a node; loom fails the model if it may have been freed.
        fn touch(&self, node: Ptr) {
            // SAFETY: From `create`; freed when the model ends.
            unsafe { Object::<Memory>::of(node.0) }.payload.with(|_| ());
        }

        /// A read section of the miniature RCU.
        fn read<R>(&self, section: impl FnOnce() -> R) -> R {
            self.readers.store(1, Relaxed);
            fence(SeqCst);
            let ret = section();
            self.readers.store(0, Release);
            ret
        }

        /// Frees the node if a grace period that starts now would be over at once. The other
        /// outcomes, in which it would take longer, are those in which nothing happens.
        fn free_after_grace_period(&self, node: Ptr) {
            fence(SeqCst);
            if self.readers.load(Acquire) == 0 {
                // SAFETY: From `create`; freed when the model ends.
                unsafe { Object::<Memory>::of(node.0) }
                    .payload
                    .with_mut(|_| ());
            }
        }
    }

    impl Drop for Shared {
        fn drop(&mut self) {
            for node in self.created.get_mut().unwrap().drain(..) {
                let node = core::ptr::with_exposed_provenance_mut(node);
                // SAFETY: From `create`; no thread of the model is left.
                unsafe { Object::<Memory>::free(NonNull::new(node).unwrap()) };
            }
        }
    }

    /// Keys in order, of which the second and the fourth are linked on two levels.
    fn five_keys() -> [Key; 5] {
        let mut keys = [
            key_of_height(1, 0),
            key_of_height(2, 0),
            key_of_height(1, 1),
            key_of_height(2, 1),
            key_of_height(1, 2),
        ];
        keys.sort_unstable();
        keys
    }

    fn against(shared: &Arc<Shared>, f: impl FnOnce(&Shared) + 'static) -> thread::JoinHandle<()> {
        let shared = shared.clone();
        thread::spawn(move || f(&shared))
    }

    #[test]
    fn loom_a_key_is_found_while_its_neighbours_come_and_go() {
        model(|| {
            let [a, b, c, d, e] = five_keys();
            let (shared, nodes) = Shared::new(&[b, c, e]);
            let (before, after) = (nodes[0], nodes[2]);
            let writer = against(&shared, move |shared| {
                shared.insert(a);
                shared.erase(before);
                shared.insert(d);
                shared.erase(after);
            });
            assert!(shared.find(c).is_some(), "missed");
            writer.join().unwrap();
            assert_eq!(shared.find(b), None);
            assert!(shared.find(d).is_some());
        });
    }

    #[test]
    fn loom_a_tall_key_is_found_while_its_neighbours_come_and_go() {
        model(|| {
            let [a, b, c, d, _] = five_keys();
            let (shared, nodes) = Shared::new(&[a, b, d]);
            let (before, beside) = (nodes[0], nodes[1]);
            let writer = against(&shared, move |shared| {
                shared.insert(c);
                shared.erase(beside);
                shared.erase(before);
            });
            assert!(shared.find(d).is_some(), "missed");
            writer.join().unwrap();
        });
    }

    #[test]
    fn loom_a_replaced_key_is_found_all_the_time() {
        model(|| {
            let [a, b, c, ..] = five_keys();
            let (shared, nodes) = Shared::new(&[a, b, c]);
            let old = nodes[1];
            let writer = against(&shared, move |shared| {
                shared.replace(old);
            });
            assert!(shared.find(b).is_some(), "missed");
            assert!(shared.find(c).is_some(), "missed");
            writer.join().unwrap();
            assert_ne!(shared.find(b), Some(old));
        });
    }

    #[test]
    fn loom_a_key_that_comes_and_goes_is_found_right_or_not_at_all() {
        model(|| {
            let [a, b, c, ..] = five_keys();
            let (shared, nodes) = Shared::new(&[a, b, c]);
            let old = nodes[1];
            let writer = against(&shared, move |shared| {
                shared.erase(old);
                shared.insert(b);
            });
            shared.find(b);
            assert!(shared.find(c).is_some(), "missed");
            writer.join().unwrap();
            assert!(shared.find(b).is_some_and(|now| now != old));
        });
    }

    #[test]
    fn loom_iteration_is_in_order_and_passes_over_nothing_that_stays() {
        model(|| {
            let [a, b, c, d, e] = five_keys();
            let (shared, nodes) = Shared::new(&[a, b, d, e]);
            let erased = nodes[1];
            let writer = against(&shared, move |shared| {
                shared.insert(c);
                shared.erase(erased);
            });
            let seen: Vec<_> = shared
                .index
                .iter_from(a, &Token)
                .map(NodeRef::key)
                .collect();
            assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "order");
            for stays in [a, d, e] {
                assert!(seen.contains(&stays), "missed");
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn loom_two_writers_take_turns() {
        model(|| {
            let [a, b, c, d, _] = five_keys();
            let (shared, nodes) = Shared::new(&[b]);
            let lock = Arc::new(Mutex::new(()));
            let (old, theirs) = (nodes[0], lock.clone());
            let writer = against(&shared, move |shared| {
                let _guard = theirs.lock().unwrap();
                shared.insert(d);
                shared.erase(old);
            });
            {
                let _guard = lock.lock().unwrap();
                shared.insert(a);
                shared.insert(c);
            }
            writer.join().unwrap();
            let left: Vec<_> = shared
                .index
                .iter_from(a, &Token)
                .map(NodeRef::key)
                .collect();
            assert_eq!(left, [a, c, d]);
            assert_eq!(shared.index.len(), 3);
        });
    }

    #[test]
    fn loom_memory_outlives_the_readers() {
        model(|| {
            let [a, b, c, ..] = five_keys();
            let (shared, nodes) = Shared::new(&[a, b, c]);
            let (first, second) = (nodes[0], nodes[1]);
            let writer = against(&shared, move |shared| {
                shared.erase(first);
                shared.erase(second);
                shared.free_after_grace_period(second);
                shared.free_after_grace_period(first);
            });
            shared.read(|| {
                for node in shared.index.iter_from(a, &Token) {
                    shared.touch(Ptr(node.as_ptr()));
                }
            });
            writer.join().unwrap();
        });
    }

    /// A task hits twice while the uprobe goes away. `late` reads the count after the lookup,
    /// which is wrong.
    fn last_hit_against_unregister(late: bool, replace: bool) {
        model(move || {
            let [_, b, ..] = five_keys();
            let (shared, nodes) = Shared::new(&[b]);
            let node = nodes[0];
            let writer = against(&shared, move |shared| {
                if replace {
                    shared.replace(node);
                } else {
                    shared.erase(node);
                }
                shared.free_after_grace_period(node);
            });
            let mut last = LastHit::<Node>::new();
            let now = || Snapshot {
                mm_seq: 0,
                erasures: shared.index.erasures(),
                stamp: 0,
            };
            let hits = Cell::new(0);
            for _ in 0..2 {
                shared.read(|| {
                    let seen = now();
                    if let Some(known) = last.find(7, &seen) {
                        shared.touch(Ptr(known.uprobe));
                        hits.set(hits.get() + 1);
                    } else if let Some(Ptr(uprobe)) = shared.find(b) {
                        let vm_flags = 0;
                        let site = Site { uprobe, vm_flags };
                        last.remember(7, if late { now() } else { seen }, site);
                    }
                });
            }
            assert!(hits.get() <= 1);
            writer.join().unwrap();
            // Who has seen the count must look again.
            let gone = shared.read(|| last.find(7, &now()));
            assert!(replace || gone.is_none(), "stale");
            assert!(gone.map(|site| site.uprobe) != Some(node.0), "stale");
        });
    }

    #[test]
    fn loom_a_last_hit_is_never_one_that_was_freed() {
        last_hit_against_unregister(false, false);
    }

    #[test]
    fn loom_a_last_hit_is_never_one_that_was_replaced_and_freed() {
        last_hit_against_unregister(false, true);
    }

    #[test]
    #[should_panic]
    fn loom_sees_a_count_that_was_read_too_late() {
        last_hit_against_unregister(true, false);
    }
}
