// SPDX-License-Identifier: GPL-2.0

//! The error numbers that the subsystem gives.

/// A positive kernel error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl Errno {
            $($(#[$doc])* pub const $name: Errno = Errno($value);)*
        }
    };
}

errnos! {
    /// Operation not permitted.
    EPERM = 1;
    /// No such entry.
    ENOENT = 2;
    /// Interrupted by a fatal signal.
    EINTR = 4;
    /// Input or output error: the file cannot be read through the page cache.
    EIO = 5;
    /// Not an instruction of this ISA.
    ENOEXEC = 8;
    /// Try again.
    EAGAIN = 11;
    /// Out of memory.
    ENOMEM = 12;
    /// Bad address.
    EFAULT = 14;
    /// Busy.
    EBUSY = 16;
    /// Invalid argument.
    EINVAL = 22;
    /// Taken back because of another error.
    ECANCELED = 125;
    /// The probed code is of a kind that this ISA does not support.
    EOPNOTSUPP = 95;
    /// System call from a place that may not make it.
    EPROTO = 71;
    /// The instruction cannot be probed.
    ENOTSUPP = 524;
}

impl Errno {
    /// The error of a C function that returned the negative number `ret`.
    ///
    /// Anything that is no error number becomes [`Errno::EINVAL`].
    pub const fn from_ret(ret: i32) -> Errno {
        if ret < 0 && ret >= -4095 {
            Errno(-ret)
        } else {
            Errno::EINVAL
        }
    }

    /// The negative number that C functions return.
    pub const fn to_ret(self) -> i32 {
        -self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        assert_eq!(Errno::from_ret(-22), Errno::EINVAL);
        assert_eq!(Errno::EINVAL.to_ret(), -22);
    }

    #[test]
    fn no_error_number_becomes_einval() {
        for ret in [0, 1, i32::MIN, i32::MAX, -4096] {
            assert_eq!(Errno::from_ret(ret), Errno::EINVAL);
        }
    }
}
