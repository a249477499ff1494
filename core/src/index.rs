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
//! [`Index::replace`] puts a node in the place of one with the same key, level by level. As the
//! two have the same key they have the same height; a reader that goes by the one on one level
//! and by the other on the next finds the same neighbours, and one of the two itself.
//!
//! # Erasures are counted
//!
//! [`Index::erasures`] grows after each node has been unlinked and before [`Index::erase`] or
//! [`Index::replace`] returns, hence before the grace period that the caller then waits for. A
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
    /// [`Index::replace`] leans on. Keys come from privileged users only, so nobody is tempted
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
    height: u32,
    linked: Atomic<bool>,
    next: Links,
}

impl Node {
    const_unless_loom! {
        /// Creates a node that is in no index.
        pub fn new(key: Key) -> Self {
            Self {
                key,
                // CAST: At most `MAX_HEIGHT`.
                height: key.height() as u32,
                linked: Atomic::new(false),
                next: Links::new(),
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
    /// Invariant: points to a node that stays readable for `'g`, as [`Index::insert`] demands.
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

    /// The pointer that [`Index::insert`] or [`Index::replace`] was given, from which the object
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
        // writers, nodes are erased by the holder only, who answers for it (`Index::erase`).
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
    /// Invariant: links lead to nodes that [`Index::insert`] or [`Index::replace`] was given and
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
    pub fn lower_bound<'g>(&self, key: Key, section: &'g impl ReadSection) -> Option<NodeRef<'g>> {
        self.descend(key, section, |_, _| ())
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

    /// Walks to the last place before `key`, calls `left` with the links on each level that it
    /// leaves, from the highest in use down to 0, and returns the node after that place.
    #[inline(always)]
    fn descend<'a, 'g: 'a>(
        &'a self,
        key: Key,
        _section: &'g impl ReadSection,
        mut left: impl FnMut(usize, &'a Links),
    ) -> Option<NodeRef<'g>> {
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
            left(level, links);
            if level == 0 {
                return after;
            }
            level -= 1;
        }
    }

    /// The links before `key` on all levels, and the node with this key.
    fn before<'a, 'g: 'a>(
        &'a self,
        key: Key,
        lock: &'g impl WriteLocked,
    ) -> ([&'a Links; MAX_HEIGHT], Option<NodeRef<'g>>) {
        let mut before = [&self.head; MAX_HEIGHT];
        let after = self.descend(key, lock, |level, links| {
            if let Some(slot) = before.get_mut(level) {
                *slot = links;
            }
        });
        (before, after.filter(|node| node.key() == key))
    }

    /// Inserts `node`, or returns the one that has its key already, which then stays.
    ///
    /// # Safety
    ///
    /// - `node` points to a [`Node`] that has never been in an index.
    /// - If this succeeds, the node is not moved, and is only accessed through shared references,
    ///   until it has been taken out by [`erase`](Self::erase) or [`replace`](Self::replace) and
    ///   every value of [`ReadSection`] that existed then is gone: a grace period.
    /// - `lock` stands for the lock of this index.
    ///
    /// # Context
    ///
    /// Under the lock of writers. Does not sleep.
    pub unsafe fn insert<'g>(
        &self,
        node: NonNull<Node>,
        lock: &'g impl WriteLocked,
    ) -> Result<(), NodeRef<'g>> {
        // SAFETY: By the contract of this function.
        let new = unsafe { node.as_ref() };
        let (before, there) = self.before(new.key, lock);
        if let Some(there) = there {
            return Err(there);
        }

        for (level, links) in before.iter().enumerate().take(new.height()) {
            let after = links.on(level).load(Relaxed);
            new.next.on(level).store(after, Relaxed);
        }
        new.linked.store(true, Relaxed);
        for (level, links) in before.iter().enumerate().take(new.height()) {
            // Release: the node's own links and key are visible to who finds it.
            links.on(level).store(node.as_ptr(), Release);
        }
        let top = new.height.saturating_sub(1);
        if top > self.top.load(Relaxed) {
            self.top.store(top, Relaxed);
        }
        self.len
            .store(self.len.load(Relaxed).wrapping_add(1), Relaxed);
        Ok(())
    }

    /// Takes out `node`; answers whether it was in the index. See [`Index::insert`] for how long
    /// it must still be left as it is.
    ///
    /// # Safety
    ///
    /// - `node` points to a [`Node`].
    /// - `lock` stands for the lock of this index.
    /// - A [`NodeRef`] that the caller has got by `lock` is not used after the memory of the node
    ///   it stands for, or of one that could be reached by [`NodeRef::next`], has been freed.
    ///
    /// # Context
    ///
    /// Under the lock of writers. Does not sleep.
    pub unsafe fn erase(&self, node: NonNull<Node>, lock: &impl WriteLocked) -> bool {
        // SAFETY: By the contract of this function.
        let old = unsafe { node.as_ref() };
        let (before, there) = self.before(old.key, lock);
        if there.is_none_or(|there| there.ptr != node) {
            return false;
        }

        for (level, links) in before.iter().enumerate().take(old.height()).rev() {
            let after = old.next.on(level).load(Relaxed);
            // Release: the node after it was made visible by another store, maybe by another CPU.
            links.on(level).store(after, Release);
        }
        self.lower_top();
        self.len
            .store(self.len.load(Relaxed).wrapping_sub(1), Relaxed);
        self.removed(old);
        true
    }

    /// Puts `new` in the place of `old`, such that a reader finds the one or the other at each
    /// moment; answers whether it did. It does nothing unless `old` is in the index and both
    /// have the same key.
    ///
    /// # Safety
    ///
    /// That of [`Index::insert`] for `new`, and that of [`Index::erase`] for `old`.
    ///
    /// # Context
    ///
    /// Under the lock of writers. Does not sleep.
    pub unsafe fn replace(
        &self,
        old: NonNull<Node>,
        new: NonNull<Node>,
        lock: &impl WriteLocked,
    ) -> bool {
        // SAFETY: By the contract of this function.
        let (from, to) = unsafe { (old.as_ref(), new.as_ref()) };
        let (before, there) = self.before(from.key, lock);
        if from.key != to.key || old == new || there.is_none_or(|there| there.ptr != old) {
            return false;
        }

        for level in 0..from.height() {
            let after = from.next.on(level).load(Relaxed);
            to.next.on(level).store(after, Relaxed);
        }
        to.linked.store(true, Relaxed);
        for (level, links) in before.iter().enumerate().take(from.height()) {
            // Release: as in `insert`.
            links.on(level).store(new.as_ptr(), Release);
        }
        self.removed(from);
        true
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

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}
