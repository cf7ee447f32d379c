//! State that only losses need. Its memory is allocated with the first one: most connections of a
//! server are idle or lose nothing, and their number is limited by memory.

use core::ops::Deref;

/// A type with a value that costs no memory.
pub trait Empty: Sized + 'static {
    /// The value.
    const EMPTY: &'static Self;
}

/// A value that is allocated when it is first changed. Until then, it reads as [`Empty::EMPTY`].
#[derive(Debug)]
pub struct OnDemand<T>(Option<Box<T>>);

impl<T> Default for OnDemand<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Empty> Deref for OnDemand<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::EMPTY)
    }
}

impl<T: Default> OnDemand<T> {
    /// Returns the value to change it.
    #[inline]
    pub fn change(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}
