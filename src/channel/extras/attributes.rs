//! Values that are stored in a channel, one of each type.
//!
//! Invariants: there is at most one value of a type. Values stay on the channel's loop, so they
//! need neither `Send` nor a lock. They are dropped with the channel, after its handler's
//! `inactive`.

use std::{
    any::{Any, TypeId},
    fmt,
};

/// Values of a channel by their type, for example results of a stage that the handler uses.
///
/// Handlers access them with [`Context::attributes`](crate::Context::attributes) and
/// [`attributes_mut`](crate::Context::attributes_mut), stages through
/// [`StageContext`](crate::pipeline::StageContext).
/// [`PipelineBuilder::attribute`](crate::pipeline::PipelineBuilder::attribute) sets initial values.
/// Lookup is a linear search, which is the fastest way for the few values of a channel. Give each
/// value a type of its own, so that two parts of a program do not overwrite each other's values.
///
/// A [`Channel`](crate::Channel) handle cannot access them, because it may be on another thread.
/// Use [`Channel::execute`](crate::Channel::execute). A channel without attributes pays at most one
/// pointer.
///
/// ```
/// use netwheel::channel::Attributes;
///
/// #[derive(Debug, PartialEq)]
/// struct User(String);
///
/// let mut attributes = Attributes::new();
/// assert_eq!(attributes.insert(User("ann".into())), None);
/// assert_eq!(attributes.get(), Some(&User("ann".into())));
/// attributes.get_or_insert_with(|| 0_u32).checked_add(1);
/// assert_eq!(attributes.remove::<User>(), Some(User("ann".into())));
/// assert_eq!(attributes.len(), 1);
/// ```
#[derive(Default)]
pub struct Attributes(Vec<(TypeId, Box<dyn Any>)>);

impl Attributes {
    /// Returns an empty set.
    pub const fn new() -> Self {
        Attributes(Vec::new())
    }

    fn find<T: Any>(&self) -> Option<usize> {
        let id = TypeId::of::<T>();
        self.0.iter().position(|(of, _)| *of == id)
    }

    /// Stores a value. Returns the previous value of this type.
    pub fn insert<T: Any>(&mut self, value: T) -> Option<T> {
        match self.get_mut::<T>() {
            Some(kept) => Some(std::mem::replace(kept, value)),
            None => {
                self.0.push((TypeId::of::<T>(), Box::new(value)));
                None
            }
        }
    }

    /// Returns the value of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.find::<T>().and_then(|n| self.0[n].1.downcast_ref())
    }

    /// Returns a mutable reference to the value of this type.
    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.find::<T>().and_then(|n| self.0[n].1.downcast_mut())
    }

    /// Returns the value of this type. Calls `make` if there is none.
    pub fn get_or_insert_with<T: Any>(&mut self, make: impl FnOnce() -> T) -> &mut T {
        let n = self.find::<T>().unwrap_or_else(|| {
            self.0.push((TypeId::of::<T>(), Box::new(make())));
            self.0.len() - 1
        });
        self.0[n].1.downcast_mut().expect("it was found by its type")
    }

    /// Removes and returns the value of this type.
    pub fn remove<T: Any>(&mut self) -> Option<T> {
        let (_, value) = self.0.swap_remove(self.find::<T>()?);
        value.downcast().ok().map(|value| *value)
    }

    /// Returns whether there is a value of this type.
    pub fn contains<T: Any>(&self) -> bool {
        self.find::<T>().is_some()
    }

    /// Moves all values of `other` into this set. `other` keeps the values that were replaced.
    pub(in crate::channel) fn absorb(&mut self, other: &mut Attributes) {
        let mut replaced = Vec::new();
        for (id, value) in other.0.drain(..) {
            match self.0.iter_mut().find(|(of, _)| *of == id) {
                Some((_, kept)) => replaced.push((id, std::mem::replace(kept, value))),
                None => self.0.push((id, value)),
            }
        }
        other.0 = replaced;
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attributes").field("len", &self.len()).finish_non_exhaustive()
    }
}
