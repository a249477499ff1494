// SPDX-License-Identifier: GPL-2.0

//! Arithmetic of USDT semaphores.

#![forbid(unsafe_code)]

/// The new value of a semaphore at `count` that is to change by `delta`.
///
/// The counter belongs to the program, which may have set it to anything: what would become
/// negative or overflow stays as it is, so that no program can make an attach or a detach fail.
/// [`None`] means that nothing is to be written.
pub fn adjust(count: u16, delta: i16) -> Option<u16> {
    // The kernel and its tools have always treated the counter as a signed short.
    let new = i16::from_ne_bytes(count.to_ne_bytes()).checked_add(delta)?;
    (new >= 0).then(|| u16::from_ne_bytes(new.to_ne_bytes()))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::adjust;

    #[test]
    fn up_and_down() {
        assert_eq!(adjust(0, 1), Some(1));
        assert_eq!(adjust(2, -1), Some(1));
    }

    #[test]
    fn a_counter_that_the_program_reset_is_left_alone() {
        assert_eq!(adjust(0, -1), None);
    }

    #[test]
    fn no_overflow_and_nothing_negative() {
        assert_eq!(adjust(0x7fff, 1), None);
        assert_eq!(adjust(0xfff0, 1), None);
    }
}
