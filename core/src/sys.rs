// SPDX-License-Identifier: GPL-2.0

//! The one seam between kernel and host.
//!
//! In the kernel the names here are the `kernel` crate's. On the host they are stand-ins with
//! the same names and signatures over `core::sync::atomic`, or over loom's atomics under
//! `cfg(loom)`. No other file of this crate, tests aside, asks where it runs.
//!
//! The orderings are those of the Linux kernel memory model. The stand-ins are never stronger
//! than the kernel where a protocol could come to lean on it, with one exception: a `Full`
//! [`Atomic::cmpxchg`] that fails orders nothing in the kernel, but here still has the barrier in
//! front of it.
//!
//! Two differences cannot be hidden. Under loom, [`Atomic::new`] is not `const` (see
//! `const_unless_loom!` and `atomics!`) and there is no `get_mut`.
//!
//! Reference: `srctree/tools/memory-model/Documentation/explanation.txt`.

#[cfg(CONFIG_RUST)]
pub use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Full,
    Relaxed,
    Release, //
};

/// Ordering of a load whose result is only dereferenced, as `rcu_dereference()` has it.
///
/// The address dependency orders what is read through the pointer; the kernel's relaxed load
/// keeps it, at no cost on any of the ISAs. Rust's own model has no such thing, so the host
/// acquires. The pointer may be compared with null, but not with another pointer that could
/// then be used in its place.
#[cfg(CONFIG_RUST)]
pub use kernel::sync::atomic::Relaxed as Dependent;

#[cfg(not(CONFIG_RUST))]
pub use host::{
    Acquire,
    Atomic,
    Full,
    Relaxed,
    Release, //
};

/// Ordering of a load whose result is only dereferenced, as `rcu_dereference()` has it.
///
/// The address dependency orders what is read through the pointer; the kernel's relaxed load
/// keeps it, at no cost on any of the ISAs. Rust's own model has no such thing, so the host
/// acquires. The pointer may be compared with null, but not with another pointer that could
/// then be used in its place.
#[cfg(not(CONFIG_RUST))]
pub use host::Acquire as Dependent;

/// Defines a function that is `const`, except under loom, whose atomics cannot be.
#[cfg(not(loom))]
macro_rules! const_unless_loom {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => { $(#[$meta])* $vis const fn $($rest)* };
}

/// Defines a function that is `const`, except under loom, whose atomics cannot be.
#[cfg(loom)]
macro_rules! const_unless_loom {
    ($(#[$meta:meta])* $vis:vis fn $($rest:tt)*) => { $(#[$meta])* $vis fn $($rest)* };
}

/// An array of `$len` values that hold atomics: `atomics![Atomic::new(0); 4]`.
#[cfg(not(loom))]
macro_rules! atomics {
    [$value:expr; $len:expr] => { [const { $value }; $len] };
}

/// An array of `$len` values that hold atomics: `atomics![Atomic::new(0); 4]`.
#[cfg(loom)]
macro_rules! atomics {
    [$value:expr; $len:expr] => { core::array::from_fn::<_, { $len }, _>(|_| $value) };
}

pub(crate) use {atomics, const_unless_loom};

/// Tells the CPU that a loop waits for another CPU.
///
/// # Context
///
/// Any.
#[inline]
pub fn cpu_relax() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// A full memory barrier.
///
/// # Context
///
/// Any.
#[inline]
pub fn full_barrier() {
    #[cfg(CONFIG_RUST)]
    kernel::sync::barrier::smp_mb(kernel::sync::barrier::Full);
    #[cfg(all(not(CONFIG_RUST), not(loom)))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(loom)]
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}

/// A part of a value that must be given back and not dropped; a dropped one fails the test.
///
/// The kernel has no such check: it would be a jump on every path.
#[derive(Debug)]
pub(crate) struct Linear;

impl Linear {
    /// The value has been given back.
    #[inline]
    pub(crate) fn done(self) {
        let _ = core::mem::ManuallyDrop::new(self);
    }
}

#[cfg(any(test, loom))]
impl Drop for Linear {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "neither ended nor put");
    }
}

#[cfg(not(CONFIG_RUST))]
mod host {
    //! Stand-ins for `kernel::sync::atomic`.

    #[cfg(not(loom))]
    use core::sync::atomic as raw;
    #[cfg(loom)]
    use loom::sync::atomic as raw;

    use raw::{
        fence,
        Ordering::{self as Raw, SeqCst}, //
    };

    /// No ordering but coherence, and dependencies in the kernel only.
    pub struct Relaxed;
    /// The load comes before everything after it.
    pub struct Acquire;
    /// The store comes after everything before it.
    pub struct Release;
    /// A full memory barrier before and after the operation.
    pub struct Full;

    /// Value of [`Ordering::TYPE`].
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum OrderingType {
        /// [`Relaxed`]
        Relaxed,
        /// [`Acquire`]
        Acquire,
        /// [`Release`]
        Release,
        /// [`Full`]
        Full,
    }

    /// An ordering, known when compiled.
    pub trait Ordering {
        /// Which one.
        const TYPE: OrderingType;
    }

    /// An ordering that a load may have.
    pub trait AcquireOrRelaxed: Ordering {}
    /// An ordering that a store may have.
    pub trait ReleaseOrRelaxed: Ordering {}

    macro_rules! orderings {
        ($($name:ident)*) => {
            $(impl Ordering for $name { const TYPE: OrderingType = OrderingType::$name; })*
        };
    }
    orderings!(Relaxed Acquire Release Full);

    impl AcquireOrRelaxed for Acquire {}
    impl AcquireOrRelaxed for Relaxed {}
    impl ReleaseOrRelaxed for Release {}
    impl ReleaseOrRelaxed for Relaxed {}

    /// What an atomic of `core` or of loom can do.
    pub trait AtomicRepr<T>: Sized {
        /// Builds it, for loom, where no constructor is `const`.
        #[cfg(loom)]
        fn make(v: T) -> Self;
        /// Exclusive access.
        #[cfg(not(loom))]
        fn exclusive(&mut self) -> &mut T;
        /// Loads.
        fn get(&self, order: Raw) -> T;
        /// Stores.
        fn set(&self, v: T, order: Raw);
        /// Exchanges.
        fn swap(&self, v: T, order: Raw) -> T;
        /// Exchanges if equal.
        fn exchange(&self, old: T, new: T, order: Raw) -> Result<T, T>;
    }

    /// A type that [`Atomic`] can hold.
    ///
    /// # Safety
    ///
    /// Unless under loom, `Self` and `Self::Repr` have the same size and `Self` may be transmuted
    /// to `Self::Repr`.
    pub unsafe trait AtomicType: Copy {
        /// The atomic of `core` or of loom behind it.
        type Repr: AtomicRepr<Self>;
    }

    /// A type with wrapping atomic arithmetic.
    pub trait AtomicAdd<Rhs = Self>: AtomicType {
        /// Adds and returns the value before.
        fn fetch_add(repr: &Self::Repr, v: Rhs, order: Raw) -> Self;
        /// Subtracts and returns the value before.
        fn fetch_sub(repr: &Self::Repr, v: Rhs, order: Raw) -> Self;
    }

    macro_rules! repr {
        ($t:ty, $repr:ty $(, $param:ident)?) => {
            impl$(<$param>)? AtomicRepr<$t> for $repr {
                #[cfg(loom)]
                fn make(v: $t) -> Self {
                    <$repr>::new(v)
                }
                #[cfg(not(loom))]
                fn exclusive(&mut self) -> &mut $t {
                    self.get_mut()
                }
                #[inline]
                fn get(&self, order: Raw) -> $t {
                    self.load(order)
                }
                #[inline]
                fn set(&self, v: $t, order: Raw) {
                    self.store(v, order);
                }
                #[inline]
                fn swap(&self, v: $t, order: Raw) -> $t {
                    <$repr>::swap(self, v, order)
                }
                #[inline]
                fn exchange(&self, old: $t, new: $t, order: Raw) -> Result<$t, $t> {
                    self.compare_exchange(old, new, order, Raw::Relaxed)
                }
            }

            // SAFETY: `core` documents each of its atomics to have the size and bit validity of
            // its type.
            unsafe impl$(<$param>)? AtomicType for $t {
                type Repr = $repr;
            }
        };
    }

    macro_rules! arithmetic {
        ($t:ty, $repr:ty) => {
            repr!($t, $repr);
            impl AtomicAdd for $t {
                #[inline]
                fn fetch_add(repr: &$repr, v: $t, order: Raw) -> $t {
                    repr.fetch_add(v, order)
                }
                #[inline]
                fn fetch_sub(repr: &$repr, v: $t, order: Raw) -> $t {
                    repr.fetch_sub(v, order)
                }
            }
        };
    }

    repr!(bool, raw::AtomicBool);
    repr!(*mut P, raw::AtomicPtr<P>, P);
    arithmetic!(u32, raw::AtomicU32);
    arithmetic!(u64, raw::AtomicU64);
    arithmetic!(i32, raw::AtomicI32);
    arithmetic!(i64, raw::AtomicI64);
    arithmetic!(usize, raw::AtomicUsize);

    /// Runs a read-modify-write with the ordering `O` of the kernel's memory model.
    #[inline]
    fn ordered<O: Ordering, R>(op: impl FnOnce(Raw) -> R) -> R {
        match O::TYPE {
            OrderingType::Relaxed => op(Raw::Relaxed),
            OrderingType::Acquire => op(Raw::Acquire),
            OrderingType::Release => op(Raw::Release),
            OrderingType::Full => {
                // A sequentially consistent operation alone does not order what is around it.
                fence(SeqCst);
                let ret = op(SeqCst);
                fence(SeqCst);
                ret
            }
        }
    }

    /// An atomic variable; stand-in for `kernel::sync::atomic::Atomic`.
    ///
    /// # Context
    ///
    /// Any, for all methods.
    #[cfg(not(loom))]
    #[repr(transparent)]
    pub struct Atomic<T: AtomicType>(T::Repr);

    /// An atomic variable; stand-in for `kernel::sync::atomic::Atomic`.
    ///
    /// Loom tries another order of two accesses only if it knows that they conflict, and to know
    /// it keeps the last access of each variable. So when one thread has loaded, and another one
    /// loads and then stores, the second load hides the first from the store, and the order in
    /// which the store comes first is not tried (loom's issues 166 and 392). Each access therefore
    /// also exchanges a second variable, without ordering, which conflicts with every other access.
    #[cfg(loom)]
    pub struct Atomic<T: AtomicType>(T::Repr, raw::AtomicBool);

    impl<T: AtomicType> Atomic<T> {
        /// Creates the variable.
        #[cfg(not(loom))]
        #[inline]
        pub const fn new(v: T) -> Self {
            // SAFETY: `AtomicType` demands that the one may be transmuted to the other.
            Self(unsafe { core::mem::transmute_copy(&v) })
        }

        /// Creates the variable.
        #[cfg(loom)]
        pub fn new(v: T) -> Self {
            Self(T::Repr::make(v), raw::AtomicBool::new(false))
        }

        /// The variable, to be accessed now.
        #[cfg(not(loom))]
        #[inline(always)]
        fn access(&self) -> &T::Repr {
            &self.0
        }

        /// The variable, to be accessed now.
        #[cfg(loom)]
        fn access(&self) -> &T::Repr {
            self.1.swap(false, Raw::Relaxed);
            &self.0
        }

        /// The variable, to a caller who alone has it.
        #[cfg(not(loom))]
        #[inline]
        pub fn get_mut(&mut self) -> &mut T {
            self.0.exclusive()
        }

        /// Loads the value.
        #[inline]
        pub fn load<O: AcquireOrRelaxed>(&self, _: O) -> T {
            self.access().get(match O::TYPE {
                OrderingType::Acquire => Raw::Acquire,
                _ => Raw::Relaxed,
            })
        }

        /// Stores a value.
        #[inline]
        pub fn store<O: ReleaseOrRelaxed>(&self, v: T, _: O) {
            let order = match O::TYPE {
                OrderingType::Release => Raw::Release,
                _ => Raw::Relaxed,
            };
            self.access().set(v, order);
        }

        /// Stores a value and returns the one before.
        #[inline]
        pub fn xchg<O: Ordering>(&self, v: T, _: O) -> T {
            ordered::<O, _>(|order| self.access().swap(v, order))
        }

        /// Stores `new` if the value is `old`; returns the value before, as [`Err`] if it was
        /// not. A failure orders nothing.
        #[inline]
        pub fn cmpxchg<O: Ordering>(&self, old: T, new: T, _: O) -> Result<T, T> {
            ordered::<O, _>(|order| self.access().exchange(old, new, order))
        }

        /// Adds, wrapping around, without ordering.
        #[inline]
        pub fn add<Rhs>(&self, v: Rhs, _: Relaxed)
        where
            T: AtomicAdd<Rhs>,
        {
            T::fetch_add(self.access(), v, Raw::Relaxed);
        }

        /// Adds, wrapping around, and returns the value before.
        #[inline]
        pub fn fetch_add<Rhs, O: Ordering>(&self, v: Rhs, _: O) -> T
        where
            T: AtomicAdd<Rhs>,
        {
            ordered::<O, _>(|order| T::fetch_add(self.access(), v, order))
        }

        /// Subtracts, wrapping around, and returns the value before.
        #[inline]
        pub fn fetch_sub<Rhs, O: Ordering>(&self, v: Rhs, _: O) -> T
        where
            T: AtomicAdd<Rhs>,
        {
            ordered::<O, _>(|order| T::fetch_sub(self.access(), v, order))
        }
    }

    impl<T: AtomicType + core::fmt::Debug> core::fmt::Debug for Atomic<T> {
        fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            self.load(Relaxed).fmt(f)
        }
    }
}

/// Runs a loom model, with at most three preemptions unless `LOOM_MAX_PREEMPTIONS` says other.
#[cfg(all(test, loom))]
pub(crate) fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(f);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    static CONST_BUILT: Atomic<u64> = Atomic::new(7);

    #[test]
    fn exchange_returns_the_value_before() {
        let a = Atomic::new(1u32);
        assert_eq!(a.xchg(2, Full), 1);
        assert_eq!(a.cmpxchg(2, 3, Full), Ok(2));
        assert_eq!(a.cmpxchg(2, 4, Acquire), Err(3));
        assert_eq!(a.load(Acquire), 3);
    }

    #[test]
    fn arithmetic_wraps() {
        let a = Atomic::new(u64::MAX);
        assert_eq!(a.fetch_add(1, Full), u64::MAX);
        assert_eq!(a.fetch_sub(1, Release), 0);
        a.add(2, Relaxed);
        assert_eq!(a.load(Relaxed), 1);
    }

    #[test]
    fn every_type_can_be_held() {
        let mut x = 5u8;
        let mut p = Atomic::new(core::ptr::null_mut::<u8>());
        p.store(&raw mut x, Release);
        assert!(!p.load(Dependent).is_null());
        assert!(!p.get_mut().is_null());
        let b = Atomic::new(false);
        assert!(!b.xchg(true, Relaxed));
        assert!(b.load(Relaxed));
        assert_eq!(Atomic::new(-1i32).fetch_add(1, Relaxed), -1);
        assert_eq!(Atomic::new(-1i64).fetch_add(1, Relaxed), -1);
        assert_eq!(Atomic::new(3usize).fetch_add(1, Relaxed), 3);
        assert_eq!(CONST_BUILT.load(Relaxed), 7);
        let array: [Atomic<bool>; 3] = atomics![Atomic::new(true); 3];
        assert!(array.iter().all(|a| a.load(Relaxed)));
    }
}
