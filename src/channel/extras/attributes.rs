//! Values that are stored in a channel, one of each type.
//!
//! Invariants: there is at most one value of a type. Values stay on the channel's loop, so they
//! need neither `Send` nor a lock. They are dropped with the channel, after its handler's
//! `inactive`.

use std::{
    any::{Any, TypeId},
    fmt,
};

/// Values of a channel by their type: what a stage has found out and the handler wants to know.
///
/// From [`Context::attributes`](crate::Context::attributes) and [`attributes_mut`](crate::Context::attributes_mut), of a stage
/// from [`StageContext`](crate::pipeline::StageContext), and to begin with from
/// [`PipelineBuilder::attribute`](crate::pipeline::PipelineBuilder::attribute). They are looked for one by one, which is the fastest way for the
/// few that a channel has. Give each value a type of its own, so that two parts of a program do not meet by chance.
///
/// A [`Channel`](crate::Channel) handle does not reach them, since it may be on another thread: ask by
/// [`Channel::execute`](crate::Channel::execute). A channel without any pays a pointer at most.
///
/// ```
/// use netwheel::Attributes;
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
    /// None.
    pub const fn new() -> Self {
        Attributes(Vec::new())
    }

    fn find<T: Any>(&self) -> Option<usize> {
        let id = TypeId::of::<T>();
        self.0.iter().position(|(of, _)| *of == id)
    }

    /// Keeps a value; the one of this type that was kept before.
    pub fn insert<T: Any>(&mut self, value: T) -> Option<T> {
        match self.get_mut::<T>() {
            Some(kept) => Some(std::mem::replace(kept, value)),
            None => {
                self.0.push((TypeId::of::<T>(), Box::new(value)));
                None
            }
        }
    }

    /// The value of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.find::<T>().and_then(|n| self.0[n].1.downcast_ref())
    }

    /// The value of this type, to be changed.
    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.find::<T>().and_then(|n| self.0[n].1.downcast_mut())
    }

    /// The value of this type, made if there is none.
    pub fn get_or_insert_with<T: Any>(&mut self, make: impl FnOnce() -> T) -> &mut T {
        let n = self.find::<T>().unwrap_or_else(|| {
            self.0.push((TypeId::of::<T>(), Box::new(make())));
            self.0.len() - 1
        });
        self.0[n].1.downcast_mut().expect("it was found by its type")
    }

    /// Takes the value of this type out.
    pub fn remove<T: Any>(&mut self) -> Option<T> {
        let (_, value) = self.0.swap_remove(self.find::<T>()?);
        value.downcast().ok().map(|value| *value)
    }

    /// Whether there is a value of this type.
    pub fn contains<T: Any>(&self) -> bool {
        self.find::<T>().is_some()
    }

    /// Takes over all of `other`, which is left with what was kept of their types before.
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attributes").field("len", &self.len()).finish_non_exhaustive()
    }
}
